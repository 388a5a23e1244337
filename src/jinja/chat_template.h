// Chat templates of Hugging Face models: from messages to the text of a prompt, with the bytes that
// Transformers renders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft {

struct ChatMessage {
  std::string role, content;
};

// What a template sees besides the messages.
struct ChatVariables {
  std::map<std::string, std::string> texts;  // bos_token, eos_token, ...
  std::map<std::string, bool> flags;         // enable_thinking, ...
  // The local time for strftime_now(), in seconds since 1970-01-01 00:00. Without a time the
  // function is not defined, so that results do not depend on the day.
  std::optional<int64_t> now;
};

using TextRange = std::pair<size_t, size_t>;  // the first byte, and the byte after the last one

struct RenderedChat {
  std::string text;
  std::vector<TextRange> answers;  // ascending
};

// Immutable; several threads may use it.
class ChatTemplate {
 public:
  // Refuses what this version of weft does not know, by its name and line. `name`: the begin of
  // every error, for instance a path.
  static Result<ChatTemplate> parse(std::string_view text, std::string name = "chat template");

  // Fails with Code::invalid if the template refuses the messages, for example a role.
  // `add_generation_prompt`: the text ends with the begin of an answer.
  Result<std::string> render(std::span<const ChatMessage> messages, const ChatVariables& variables,
                             bool add_generation_prompt) const;

  // The text of a conversation, and where the answers are: the content of the generation blocks, if
  // the template has them. Otherwise an answer is what a message of role "assistant" adds to the
  // text after a generation prompt, with the end of its turn; fails if a later message changes more
  // of the text than what a template puts around its last answer, so that there is no such place. A
  // prompt may begin a reasoning that the text of answers does not have.
  Result<RenderedChat> render_answers(std::span<const ChatMessage> messages,
                                      const ChatVariables& variables) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  // Of message i in the text of all, from its content to the end of its turn; none: it is not
  // known.
  Result<std::optional<TextRange>> place_of_answer(std::span<const ChatMessage> messages, size_t i,
                                                   const ChatVariables& variables,
                                                   std::string_view whole) const;

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace weft
