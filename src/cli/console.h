// The terminal: results go to standard output, everything else to standard error. Text may quote a
// file or a peer: what is printed as a line is made printable (cli/utf8.h).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace weft::cli {

// One line, flushed. False once nobody reads any more; then standard output stays silent.
bool print_line(std::string_view line);
bool print_text(std::string_view text);  // as it is
// What was made from data that may hold anything: as it is into a file or a pipe; on a terminal
// printable, with its lines.
bool print_content(std::string_view text);
bool stdout_closed();  // nobody reads: no fault, but a reason to stop
bool stdout_failed();  // it could not be written: the disk is full, for example

// "weft: command: text", and a hint on a line of its own.
void complain(std::string_view command, std::string_view text, std::string_view hint = "");

// The text as a word of the shell, to be pasted.
std::string shell_word(const std::string& text);

// A line on standard error that tells how far something is. On a terminal it is rewritten in place,
// at most ten times a second; elsewhere a line appears now and then.
class Progress {
 public:
  explicit Progress(bool silent);
  ~Progress() { clear(); }
  void show(std::string_view line);
  void note(std::string_view line);  // a line that stays
  void clear();
  bool terminal() const { return terminal_ && !silent_; }

 private:
  using Clock = std::chrono::steady_clock;
  const bool silent_, terminal_;
  bool shown_ = false, any_ = false;
  Clock::time_point last_;
};

}  // namespace weft::cli
