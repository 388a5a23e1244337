// Chat templates: any text is refused or is a template, which makes UTF-8 from messages, or fails.
// What follows a NUL is the content of the last message.
#include "jinja/chat_template.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const auto parsed = weft::ChatTemplate::parse(input.substr(0, end));
  if (!parsed.ok()) return 0;
  const std::vector<weft::ChatMessage> messages = {
      {"system", "Be kind."},
      {"user", "What is \"1 + 1\"?\n"},
      {"assistant", "<think>\n\xc3\xa9\n</think>\n2"},
      {"user", end < size ? std::string(input.substr(end + 1)) : "Why?"}};
  weft::ChatVariables variables;
  variables.texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  variables.now = 0;
  const auto text = parsed.value().render(messages, variables, true);
  const auto chat = parsed.value().render_answers(messages, variables);
  size_t from = 0;
  bool valid = !text.ok() || weft::valid_utf8(text.value());
  if (chat.ok())
    for (const auto& [begin, past] : chat.value().answers) {
      valid = valid && from <= begin && begin <= past && past <= chat.value().text.size();
      from = past;
    }
  if (valid) return 0;
  std::fprintf(stderr, "not UTF-8, or the places of answers are wrong\n");
  std::abort();
}
