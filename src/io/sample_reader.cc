#include "io/sample_reader.h"

#include <algorithm>
#include <string>

#include "base/fault.h"
#include "base/text.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr const char *kPrompt = "prompt", *kCompletion = "completion", *kMessages = "messages",
                     *kText = "text", *kRole = "role", *kContent = "content";

Result<std::vector<ChatMessage>> messages_of(const Json& object) {
  Fields all(object, "");
  WEFT_TRY_ASSIGN(const Json* list, all.list(kMessages));
  WEFT_TRY(all.finish());
  if (list->items().empty()) return fault(cat("'", kMessages, "' is empty"));
  std::vector<ChatMessage> out;
  for (const Json& item : list->items()) {
    const std::string where = cat(kMessages, "[", out.size(), "].");
    if (!item.is_object())
      return fault(
          cat(kMessages, "[", out.size(), "] expects an object, found ", item.type_name()));
    ChatMessage& message = out.emplace_back();
    Fields fields(item, where);
    WEFT_TRY(fields.text(kRole, message.role));
    WEFT_TRY(fields.text(kContent, message.content));
    WEFT_TRY(fields.finish());
  }
  return out;
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
      return fault(
          cat("the tokenizer makes token ", id, ", the model has a vocabulary of ", vocabulary_));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

// Files for other trainers may have the token at the end of texts in the text.
void SampleReader::add_end(std::vector<int32_t>& ids) const {
  if (end_ >= 0 && (ids.empty() || ids.back() != end_)) ids.push_back(end_);
}

Result<SampleIds> SampleReader::read_completion(const Json& object) const {
  Fields fields(object, "");
  std::string prompt, completion;
  WEFT_TRY(fields.text(kPrompt, prompt));
  WEFT_TRY(fields.text(kCompletion, completion));
  WEFT_TRY(fields.finish());
  SampleIds out;
  WEFT_TRY_ASSIGN(out.ids, encode(prompt, /*add_begin=*/true));
  WEFT_TRY_ASSIGN(const std::vector<int32_t> answer, encode(completion, /*add_begin=*/false));
  if (answer.empty()) return fault("'completion' has no tokens");
  out.learned.assign(out.ids.size(), false);
  out.ids.insert(out.ids.end(), answer.begin(), answer.end());
  add_end(out.ids);
  out.learned.resize(out.ids.size(), true);
  return out;
}

Result<SampleIds> SampleReader::read_text(const Json& object) const {
  Fields fields(object, "");
  std::string text;
  WEFT_TRY(fields.text(kText, text));
  WEFT_TRY(fields.finish());
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

Result<SampleIds> SampleReader::read(std::string_view line) const {
  WEFT_TRY_ASSIGN(const Json object, read_json(line));
  const Fields fields(object, "");
  const bool has_messages = fields.has(kMessages), has_text = fields.has(kText);
  if (!has_messages && !has_text && !fields.has(kPrompt) && !fields.has(kCompletion))
    return fault(cat("expected '", kPrompt, "' and '", kCompletion, "', '", kText, "', or '",
                     kMessages, "', found none of them"));
  WEFT_TRY_ASSIGN(SampleIds out, has_messages ? read_messages(object)
                                 : has_text   ? read_text(object)
                                              : read_completion(object));
  if (out.ids.size() < 2) return fault("is one token, which no other one precedes");
  if (std::find(out.learned.begin() + 1, out.learned.end(), true) == out.learned.end())
    return fault("has no answer, so that nothing is learned");
  return out;
}

}  // namespace weft
