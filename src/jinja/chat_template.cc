#include "jinja/chat_template.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "jinja/python_text.h"

namespace weft {

namespace {

constexpr size_t kMostTemplateBytes = size_t{1} << 20;
// A template makes each message a few times, and some texts of its own.
constexpr uint64_t kMostSteps = 10'000'000;
constexpr uint64_t kBytes = uint64_t{64} << 20;
constexpr uint64_t kBytesPerByte = 64;

bool has_generation(const jinja::Block& block) {
  return std::any_of(block.begin(), block.end(), [](const jinja::Statement& statement) {
    return statement.kind == jinja::Statement::Kind::generation || has_generation(statement.body) ||
           has_generation(statement.otherwise) ||
           std::any_of(statement.branches.begin(), statement.branches.end(),
                       [](const auto& branch) { return has_generation(branch.body); });
  });
}

Status check_text(const std::string& text, const std::string& what) {
  return valid_utf8(text) ? Status() : Status(Code::invalid, cat(what, " is not UTF-8"));
}

Result<jinja::Value> value_of(std::span<const ChatMessage> messages) {
  jinja::Items items;
  jinja::Budget unlimited(0, UINT64_MAX);  // the keys are not those of a template
  for (const ChatMessage& message : messages) {
    WEFT_TRY(check_text(message.role, cat("message ", items.size(), ": the role")));
    WEFT_TRY(check_text(message.content, cat("message ", items.size(), ": the content")));
    WEFT_TRY_ASSIGN(
        jinja::Value item,
        jinja::Value::dict({{"role", message.role}, {"content", message.content}}, unlimited));
    items.push_back(std::move(item));
  }
  return jinja::Value::sequence(std::move(items));
}

Status changes_text(const std::string& name, size_t message) {
  return Status(Code::unsupported,
                cat(name, ": message ", message,
                    " changes the text of earlier messages, so that the place of an answer is not "
                    "known; a template with generation blocks is required"));
}

Status lacks_prompt(const std::string& name, size_t message) {
  return Status(Code::unsupported,
                cat(name, ": the text of message ", message,
                    " is not the begin of the generation prompt and then its content, so that the "
                    "place of the answer is not known; a template with generation blocks is "
                    "required"));
}

}  // namespace

struct ChatTemplate::Parsed {
  std::string name;
  jinja::Block block;
  bool has_generation;

  Result<jinja::Rendered> render(std::span<const ChatMessage> messages,
                                 const ChatVariables& variables, bool add_generation_prompt) const;
};

Result<jinja::Rendered> ChatTemplate::Parsed::render(std::span<const ChatMessage> messages,
                                                     const ChatVariables& variables,
                                                     bool add_generation_prompt) const {
  // What Transformers passes if a program does not: no tools and no documents.
  jinja::Variables out = {{"tools", jinja::Value()}, {"documents", jinja::Value()}};
  for (const auto& [key, text] : variables.texts) {
    WEFT_TRY(check_text(text, cat("the variable ", shown(key))));
    out[key] = jinja::Value(text);
  }
  for (const auto& [key, flag] : variables.flags) out[key] = jinja::Value(flag);
  out["add_generation_prompt"] = jinja::Value(add_generation_prompt);
  WEFT_TRY_ASSIGN(out["messages"], value_of(messages));
  const jinja::Budget budget(kMostSteps, kBytes + kBytesPerByte * out["messages"].bytes());
  jinja::Interpreter interpreter(std::move(out), variables.now, budget);
  return interpreter.render(block).within(name);
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string name) {
  if (text.size() > kMostTemplateBytes)
    return Status(Code::data,
                  cat(name, ": has ", text.size(), " bytes, the limit is ", kMostTemplateBytes));
  if (!valid_utf8(text)) return Status(Code::data, cat(name, ": is not UTF-8"));
  WEFT_TRY_ASSIGN(jinja::Block block, jinja::parse_template(text).within(name));
  const bool generation = has_generation(block);
  return ChatTemplate(
      std::make_shared<const Parsed>(Parsed{std::move(name), std::move(block), generation}));
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatVariables& variables,
                                         bool add_generation_prompt) const {
  WEFT_TRY_ASSIGN(jinja::Rendered rendered,
                  parsed_->render(messages, variables, add_generation_prompt));
  return std::move(rendered.text);
}

Result<RenderedChat> ChatTemplate::render_answers(std::span<const ChatMessage> messages,
                                                  const ChatVariables& variables) const {
  WEFT_TRY_ASSIGN(jinja::Rendered whole, parsed_->render(messages, variables, false));
  RenderedChat out{std::move(whole.text), std::move(whole.generations)};
  if (parsed_->has_generation) return out;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    WEFT_TRY_ASSIGN(const std::string before, render(messages.first(i), variables, true));
    std::string through = out.text;
    if (i + 1 < messages.size()) {
      WEFT_TRY_ASSIGN(through, render(messages.first(i + 1), variables, false));
    }
    if (!through.starts_with(before)) {
      WEFT_TRY_ASSIGN(const auto found, place_of_answer(messages, i, variables, out.text));
      if (!found || !before.starts_with(std::string_view(out.text).substr(0, found->first)))
        return lacks_prompt(parsed_->name, i);
      out.answers.push_back(*found);
      continue;
    }
    size_t end = through.size();
    if (!out.text.starts_with(through)) {
      if (!out.text.starts_with(before)) return changes_text(parsed_->name, i + 1);
      WEFT_TRY_ASSIGN(const auto found, place_of_answer(messages, i, variables, out.text));
      if (!found) return changes_text(parsed_->name, i + 1);
      end = found->second;
    }
    out.answers.emplace_back(before.size(), end);
  }
  return out;
}

// A template may write its last answer in another way than earlier ones; Qwen 3 puts an empty
// reasoning before it. The place is then that of a text that stands in for the answer.
Result<std::optional<TextRange>> ChatTemplate::place_of_answer(
    std::span<const ChatMessage> messages, size_t i, const ChatVariables& variables,
    std::string_view whole) const {
  using Place = std::optional<TextRange>;
  std::string other = "weft";
  while (jinja::find_text(whole, other, 0) != whole.npos) other += other;
  std::vector<ChatMessage> changed(messages.begin(), messages.end());
  changed[i].content = other;
  const std::span<const ChatMessage> all = changed;
  WEFT_TRY_ASSIGN(const std::string text, render(all, variables, false));
  WEFT_TRY_ASSIGN(const std::string last, render(all.first(i + 1), variables, false));
  const size_t begin = jinja::find_text(text, other, 0),
               begin_of_last = jinja::find_text(last, other, 0);
  if (begin == text.npos || begin_of_last == last.npos) return Place();
  const std::string_view rest = std::string_view(text).substr(begin + other.size());
  std::string_view turn = std::string_view(last).substr(begin_of_last + other.size());
  if (const auto eos = variables.texts.find("eos_token");
      !rest.starts_with(turn) && eos != variables.texts.end() && turn.ends_with(eos->second))
    turn.remove_suffix(eos->second.size());  // the end of the whole text, as with Phi-3
  if (rest.size() + begin > whole.size()) return Place();
  const size_t end = whole.size() - rest.size();
  const auto bare = [](std::string_view part) { return jinja::stripped(part, jinja::Side::both); };
  const bool same = whole.substr(0, begin) == std::string_view(text).substr(0, begin) &&
                    whole.substr(end) == rest && rest.starts_with(turn) &&
                    // Otherwise a part of the answer, such as its reasoning, is left out.
                    bare(whole.substr(begin, end - begin)) == bare(messages[i].content);
  return same ? Place(TextRange(begin, end + turn.size())) : Place();
}

}  // namespace weft
