#include "cli/conversation.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

int64_t local_time_ns() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return (static_cast<int64_t>(now) + local.tm_gmtoff) * kSecond;
}

// Appends bytes of standard input. False at its end.
bool read_more(std::string& bytes) {
  char buffer[4096];
  ssize_t n = -1;
  while (n < 0) {
    if (!wait_for_bytes(STDIN_FILENO)) return false;
    n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return false;
  }
  bytes.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

// False at the end of standard input, if there is no text before it.
bool read_line(std::string& line) {
  static std::string rest;  // was read with the line before
  size_t end = rest.find('\n');
  while (end == rest.npos && read_more(rest)) end = rest.find('\n');
  if (stop_signal() != 0 || (end == rest.npos && rest.empty())) return false;
  line = rest.substr(0, end);
  rest.erase(0, end == rest.npos ? end : end + 1);
  return true;
}

}  // namespace

Conversation::Conversation(const std::string& system) {
  if (!system.empty()) messages_.emplace_back("system", system);
}

Outcome Conversation::prompt(const weft_tokenizer* tokenizer, const std::string& question,
                             std::string& text) const {
  if (question.find('\0') != question.npos)
    return {kBadInput, "the question has a zero byte, which no text has", ""};
  std::vector<weft_chat_message> messages;
  for (const auto& [role, content] : messages_) messages.push_back({role.c_str(), content.c_str()});
  messages.push_back({"user", question.c_str()});
  weft_chat_config config = defaults(weft_chat_config_init);
  config.local_time_ns = local_time_ns();
  weft_error err = sized<weft_error>();
  size_t size = 4096;
  do {
    text.resize(size);
    CLI_CALL(weft_tokenizer_chat(tokenizer, messages.data(), messages.size(), &config, text.data(),
                                 text.size(), &size, &err));
  } while (size > text.size());
  text.resize(size);
  return {};
}

void Conversation::add(const std::string& question, const std::string& answer) {
  messages_.emplace_back("user", question);
  messages_.emplace_back("assistant", answer);
}

bool read_question(std::string& line) {
  const bool asks = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  do {
    if (asks) print_text("> ");
    if (!read_line(line)) return false;
  } while (line.find_first_not_of(" \t\r") == line.npos);
  return true;
}

}  // namespace weft::cli
