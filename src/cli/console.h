// The terminal: results go to standard output, everything else to standard error. Text may quote a
// file or a peer: what is printed as a line is made printable (cli/utf8.h).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace weft::cli {

// One line, flushed. False if the reader has closed it; then all later output is dropped.
bool print_line(std::string_view line);
[[gnu::format(printf, 1, 2)]] bool print_format(const char* format, ...);
bool print_text(std::string_view text);  // unchanged
// Data from a file or a peer: unchanged into a file or a pipe; on a terminal it is made printable,
// except line ends.
bool print_content(std::string_view text);
bool stdout_closed();        // the reader has closed it: not an error, but a reason to stop
bool stdout_failed();        // a write failed: the disk is full, for example
std::string stdout_fault();  // the text for that

// Prints "weft: command: text", and a hint on a separate line.
void complain(std::string_view command, std::string_view text, std::string_view hint = "");

// The text as one word for a shell.
std::string shell_word(const std::string& text);

// A line on standard error that shows progress. On a terminal it is rewritten at most ten times a
// second; elsewhere a new line is printed now and then.
class Progress {
 public:
  explicit Progress(bool silent);
  ~Progress() { clear(); }
  void show(std::string_view line);
  void note(std::string_view line);  // a line that is not rewritten
  void clear();
  bool terminal() const { return terminal_ && !silent_; }

 private:
  using Clock = std::chrono::steady_clock;
  const bool silent_, terminal_;
  bool shown_ = false, any_ = false;
  Clock::time_point last_;
};

}  // namespace weft::cli
