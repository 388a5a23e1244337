// What a call came to. A failure carries a text for a person: lower case, naming the thing, what
// was expected and what was found. The text may quote a file or a peer, so it is made printable
// (base/text.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace weft {

// The values are those of include/weft.h and never change.
enum class Code : int32_t {
  ok = 0,
  invalid = -1,  // an argument, shape or name that cannot be
  no_memory = -2,
  state = -3,  // right call, wrong moment
  again = -4,  // a bounded queue is full
  canceled = -5,
  timed_out = -6,
  peer = -7,      // another rank is lost or refused
  protocol = -8,  // bytes that no weft of this version sends
  unsupported = -9,
  not_found = -10,
  user = -11,      // a callback of the caller failed
  internal = -12,  // a fault of weft
  io = -13,        // a file could not be read or written
  data = -14,      // a file or stream was read and its content is wrong
};

struct Origin;

// Copies share the text and the facts: a failure is passed on without memory.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text);
  // Of a run that failed; the text is origin_text(origin).
  explicit Status(const Origin& origin);

  // Of the exception that is being handled: no memory, or an exception that nobody expected. Needs
  // no memory.
  static Status of_exception() noexcept;

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& text() const noexcept;
  // Why the run failed (base/origin.h); null for any other failure.
  const std::shared_ptr<const Origin>& origin() const { return origin_; }

  // The same failure seen from one level up: "prefix: text".
  Status within(const std::string& prefix) const;
  // The same failure with more to it: "text; more".
  Status followed_by(const std::string& more) const;

 private:
  Status with_text(std::string text) const;

  Code code_ = Code::ok;
  std::shared_ptr<const std::string> text_;  // of a success and of an exception there is none
  std::shared_ptr<const Origin> origin_;
};

// Calls f, which returns a Status; an exception becomes one.
template <typename F>
Status attempt(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    return Status::of_exception();
  }
}

}  // namespace weft

#define WEFT_TRY(expr)                                                                 \
  do {                                                                                 \
    if (::weft::Status weft_status_ = (expr); !weft_status_.ok()) return weft_status_; \
  } while (0)
