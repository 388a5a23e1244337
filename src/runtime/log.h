// Log lines of a run, for a callback of the host. Without one, no text is made.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/status.h"

namespace weft {

enum class LogLevel : uint32_t { warning = 1, info = 2, debug = 3 };

// The callback gets the lines up to the level `most`.
struct LogSink {
  std::function<void(LogLevel level, const char* text)> write = {};
  LogLevel most = LogLevel::info;
};

class Log {
 public:
  explicit Log(const LogSink& sink) : sink_(sink) {}

  // Any thread; the callback gets one line at a time. `text()` makes the line if it is wanted. A
  // line for which there is no memory is dropped.
  template <typename F>
  void say(LogLevel level, F&& text) {
    if (!sink_.write || level > sink_.most) return;
    (void)attempt([&] {
      const std::string line = text();
      const std::lock_guard lock(mutex_);
      sink_.write(level, line.c_str());
    });
  }
  template <typename F>
  void warning(F&& text) {
    say(LogLevel::warning, text);
  }
  template <typename F>
  void info(F&& text) {
    say(LogLevel::info, text);
  }
  template <typename F>
  void debug(F&& text) {
    say(LogLevel::debug, text);
  }

 private:
  const LogSink sink_;
  std::mutex mutex_;
};

}  // namespace weft
