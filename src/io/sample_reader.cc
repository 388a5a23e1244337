#include "io/sample_reader.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/fault.h"
#include "base/text.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr const char *kPrompt = "prompt", *kCompletion = "completion", *kMessages = "messages",
                     *kText = "text", *kRole = "role", *kContent = "content", *kType = "type";

// Such a value is what a table has in a column that a row does not use. False is no such value: it
// may exclude an answer.
bool is_empty(const Json& value) { return value.is_off() && !value.is_boolean(); }

// A key that is not used, such as one of calls of tools, would change the text.
Status refuse_others(const Json& object, std::initializer_list<std::string_view> used,
                     const std::string& where) {
  for (const auto& [key, value] : object.members())
    if (std::find(used.begin(), used.end(), key) == used.end() && !is_empty(value))
      return Status(Code::unsupported, cat(where, shown(key), " is not supported"));
  return {};
}

// A text, or a list of {"type": "text", "text": TEXT}, one after another.
Result<std::string> content_of(Fields& fields, const Json& message, const std::string& where) {
  std::string out;
  const auto at = message.members().find(kContent);
  if (at == message.members().end() || !at->second.is_array()) {
    WEFT_TRY(fields.text(kContent, out));
    return out;
  }
  WEFT_TRY_ASSIGN(const Json* parts, fields.list(kContent));
  for (const Json& part : parts->items()) {
    if (!part.is_object()) return fault(cat(where, "'content' expects texts or objects"));
    Fields of_part(part, cat(where, kContent, ": "));
    std::string type, text;
    WEFT_TRY(of_part.text(kType, type));
    if (type != kText) return fault(cat(where, "'content' has a part of type ", shown(type)));
    WEFT_TRY(of_part.text(kText, text));
    WEFT_TRY(refuse_others(part, {kType, kText}, cat(where, kContent, ": ")));
    out += text;
  }
  return out;
}

Result<ChatMessage> message_of(const Json& item, const std::string& where) {
  ChatMessage out;
  Fields fields(item, where);
  WEFT_TRY(refuse_others(item, {kRole, kContent}, where));  // a call of tools may lack a content
  WEFT_TRY(fields.text(kRole, out.role));
  WEFT_TRY_ASSIGN(out.content, content_of(fields, item, where));
  return out;
}

Result<std::vector<ChatMessage>> messages_of(const Json& object) {
  Fields all(object, "");
  WEFT_TRY_ASSIGN(const Json* list, all.list(kMessages));
  if (list->items().empty()) return fault(cat("'", kMessages, "' is empty"));
  std::vector<ChatMessage> out;
  for (const Json& item : list->items()) {
    const std::string at = cat(kMessages, "[", out.size(), "]");
    if (!item.is_object()) return fault(cat(at, " expects an object, found ", item.type_name()));
    WEFT_TRY_ASSIGN(ChatMessage message, message_of(item, at + ": "));
    out.push_back(std::move(message));
  }
  return out;
}

// Other keys than those of a sample describe it, except for these, which would change what is
// learned.
Status check_others(const Json& object) {
  for (const char* key :
       {"chat_template_kwargs", "documents", "functions", "system", "tools", "weight"}) {
    const auto at = object.members().find(key);
    if (at != object.members().end() && !is_empty(at->second))
      return Status(Code::unsupported, cat("'", key, "' is not supported"));
  }
  return {};
}

// Of an object, for an error: "'a', 'b'".
std::string keys_of(const Json& object) {
  constexpr size_t kMost = 5;
  std::string out;
  size_t count = 0;
  for (const auto& [key, value] : object.members()) {
    if (count++ == kMost) return out + ", ...";
    append(out, count > 1 ? ", " : "", shown(key));
  }
  return out.empty() ? "no keys" : out;
}

// The number of ids at the begin of both.
size_t common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

}  // namespace

Result<std::vector<int32_t>> SampleReader::encode(std::string_view text, bool add_begin) const {
  std::vector<uint32_t> ids;
  WEFT_TRY(tokenizer_.encode(text, {.add_begin = add_begin}, ids));
  for (const uint32_t id : ids)
    if (id >= vocabulary_)
      return fault(cat("the tokenizer makes token ", id, ", the model has a vocabulary of ",
                       vocabulary_,
                       "; expected the tokenizer of the model, or a model with at least ",
                       tokenizer_.size(), " tokens"));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

// Files for other trainers may have the token at the end of texts in the text.
void SampleReader::add_end(std::vector<int32_t>& ids) const {
  const auto ends = [this](int32_t id) {
    return id == end_ || std::find(ends_.begin(), ends_.end(), id) != ends_.end();
  };
  if (end_ >= 0 && (ids.empty() || !ends(ids.back()))) ids.push_back(end_);
}

// A completion that is encoded by itself would begin as a text does, which many tokenizers mark
// with a space. So the ids are those of the whole text, as in read_messages().
Result<SampleIds> SampleReader::read_completion(const Json& object) const {
  Fields fields(object, "");
  std::string prompt, completion;
  WEFT_TRY(fields.text(kPrompt, prompt));
  WEFT_TRY(fields.text(kCompletion, completion));
  SampleIds out;
  WEFT_TRY_ASSIGN(const std::vector<int32_t> before, encode(prompt, /*add_begin=*/true));
  WEFT_TRY_ASSIGN(out.ids, encode(prompt + completion, /*add_begin=*/true));
  const size_t first = common(before, out.ids);
  if (first == out.ids.size()) return fault("'completion' has no tokens");
  out.learned.assign(first, false);
  add_end(out.ids);
  out.learned.resize(out.ids.size(), true);
  return out;
}

Result<SampleIds> SampleReader::read_text(const Json& object) const {
  Fields fields(object, "");
  std::string text;
  WEFT_TRY(fields.text(kText, text));
  if (text.empty()) return fault(cat("'", kText, "' is empty"));
  SampleIds out;
  WEFT_TRY_ASSIGN(out.ids, encode(text, /*add_begin=*/true));
  add_end(out.ids);
  out.learned.assign(out.ids.size(), true);
  return out;
}

// The ids are those of the whole text, as the model sees it. An answer begins with the first id
// that the text before it does not have.
Result<SampleIds> SampleReader::read_messages(const Json& object) const {
  WEFT_TRY_ASSIGN(const std::vector<ChatMessage> messages, messages_of(object));
  WEFT_TRY(chat_.status());
  const ChatSource& source = chat_.value();
  ChatVariables variables;
  variables.texts = source.tokens;
  WEFT_TRY_ASSIGN(const RenderedChat chat, source.chat.render_answers(messages, variables));
  SampleIds out;
  WEFT_TRY_ASSIGN(out.ids, encode(chat.text, /*add_begin=*/false));
  out.learned.assign(out.ids.size(), false);
  const auto ids_before = [&](size_t end) -> Result<size_t> {
    WEFT_TRY_ASSIGN(const std::vector<int32_t> ids,
                    encode(std::string_view(chat.text).substr(0, end), /*add_begin=*/false));
    return common(ids, out.ids);
  };
  for (const auto& [begin, end] : chat.answers) {
    WEFT_TRY_ASSIGN(const size_t first, ids_before(begin));
    WEFT_TRY_ASSIGN(const size_t last, ids_before(end));
    for (size_t i = first; i < last; ++i) out.learned[i] = true;
  }
  return out;
}

bool SampleIds::cut(size_t most) {
  size_t end = std::min(most, ids.size());
  while (end > 1 && !learned[end - 1]) --end;  // nothing precedes the first id
  ids.resize(end);
  learned.resize(end);
  return end > 1;
}

Result<SampleIds> SampleReader::read(std::string_view line) const {
  // Keys that describe the sample may have fractions and many levels.
  const JsonLimits limits{.fractions = Fractions::allow, .depth = 64};
  WEFT_TRY_ASSIGN(const Json object, read_json(line, limits));
  Fields fields(object, "");
  const auto has = [&fields](const char* key) { return !fields.absent(key); };
  const bool has_messages = has(kMessages), has_text = has(kText), has_prompt = has(kPrompt),
             has_completion = has(kCompletion);
  if (has_messages + has_text + has_completion > 1 || (has_text && has_prompt))
    return fault(cat("has more than one of '", kCompletion, "', '", kText, "' and '", kMessages,
                     "', or '", kPrompt, "' with '", kText, "'"));
  if (!has_messages && !has_text && !has_completion && !has_prompt)
    return fault(cat("expected '", kPrompt, "' and '", kCompletion, "', '", kText, "', or '",
                     kMessages, "' with '", kRole, "' and '", kContent, "', found ",
                     keys_of(object)));
  WEFT_TRY(check_others(object));
  WEFT_TRY_ASSIGN(SampleIds out, has_messages ? read_messages(object)
                                 : has_text   ? read_text(object)
                                              : read_completion(object));
  if (out.ids.size() < 2) return fault("is one token, which no other one precedes");
  if (std::find(out.learned.begin() + 1, out.learned.end(), true) == out.learned.end())
    return fault("has no answer, so that nothing is learned");
  return out;
}

}  // namespace weft
