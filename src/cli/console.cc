#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "cli/files.h"
#include "cli/outcome.h"
#include "cli/utf8.h"

namespace weft::cli {

namespace {

// Of the only standard output of this process.
bool g_closed = false;
int g_failure = 0;  // errno

// Whether standard output is a terminal that was closed. Writes to it fail before the signal
// arrives.
bool has_hung_up() { return isatty(STDOUT_FILENO) == 0 && errno == EIO; }

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term && std::string_view(term) != "dumb";
}

// The beginning of a line that does not fill a row of the terminal: only one row can be rewritten.
std::string fitting(std::string line) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  size_t at = 0;
  for (int columns = 1; columns < size.ws_col && at < line.size(); ++columns)
    at += character_bytes(std::string_view(line).substr(at));
  return line.substr(0, at);
}

}  // namespace

bool print_text(std::string_view text) {
  if (g_closed || g_failure) return false;
  if (write_all(STDOUT_FILENO, text)) return true;
  if (errno == EPIPE)
    g_closed = true;
  else
    g_failure = errno;
  if (has_hung_up()) std::raise(SIGHUP);
  return false;
}

bool print_line(std::string_view line) { return print_text(printable(line) + "\n"); }
bool print_format(const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, format, args);
  std::string line(static_cast<size_t>(std::max(size, 0)), 0);
  std::vsnprintf(line.data(), line.size() + 1, format, again);
  va_end(again);
  va_end(args);
  return print_line(line);
}
bool print_content(std::string_view text) {
  return print_text(isatty(STDOUT_FILENO) == 1 ? printable(text, "\n\t") : std::string(text));
}

bool stdout_closed() { return g_closed; }
bool stdout_failed() { return g_failure != 0; }
std::string stdout_fault() { return "cannot write to standard output: " + reason(g_failure); }

namespace {

// Messages end up in logs. A join line, or its key, can be in the place of any argument.
std::string without_keys(std::string_view text) {
  constexpr std::ptrdiff_t kDigits = WEFT_KEY_SIZE - 1;  // of the shortest key
  std::string out;
  while (!text.empty()) {
    const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
    const auto* const end = std::find_if_not(text.begin(), text.end(), is_digit);
    const std::ptrdiff_t digits = end - text.begin();
    out += digits >= kDigits ? "..." : text.substr(0, static_cast<size_t>(digits));
    text.remove_prefix(static_cast<size_t>(digits));
    const auto* const next = std::find_if(text.begin(), text.end(), is_digit);
    out.append(text.begin(), next);
    text.remove_prefix(static_cast<size_t>(next - text.begin()));
  }
  return out;
}

}  // namespace

void complain(std::string_view command, std::string_view text, std::string_view hint) {
  std::string out = "weft: ";
  const std::string whose = command.empty() ? "" : std::string(command) + ": ";
  if (!text.starts_with(whose)) out += whose;  // the library may name a plan, too
  out += without_keys(printable(text)) + "\n";
  if (!hint.empty()) out += without_keys(printable(hint)) + "\n";
  write_all(STDERR_FILENO, out);
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Progress::Progress(bool silent) : silent_(silent), terminal_(is_terminal()) {}

void Progress::show(std::string_view line) {
  const auto now = Clock::now();
  if (silent_ || (any_ && now - last_ < (terminal_ ? std::chrono::milliseconds(100)
                                                   : std::chrono::milliseconds(10000))))
    return;
  any_ = true;
  last_ = now;
  shown_ = terminal_;
  const std::string text = printable(line);
  write_all(STDERR_FILENO, terminal_ ? "\r" + fitting(text) + "\x1b[K" : text + "\n");
}

void Progress::note(std::string_view line) {
  clear();
  if (!silent_) write_all(STDERR_FILENO, printable(line) + "\n");
}

void Progress::clear() {
  if (shown_) write_all(STDERR_FILENO, "\r\x1b[K");
  shown_ = false;
}

}  // namespace weft::cli
