// The result of a call. A failure has a text in lower case that names the thing, what was expected
// and what was found. The text may quote a file or a peer; therefore it is made printable
// (base/text.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace weft {

// The values are those of include/weft.h and never change.
enum class Code : int32_t {
  ok = 0,
  invalid = -1,  // an argument, shape or name that is not valid
  no_memory = -2,
  state = -3,  // the call is not allowed in this state
  again = -4,  // a queue is full
  canceled = -5,
  timed_out = -6,
  peer = -7,      // another rank is lost or refused
  protocol = -8,  // received bytes violate the protocol
  unsupported = -9,
  not_found = -10,
  user = -11,      // a callback of the caller failed
  internal = -12,  // an internal error of weft
  io = -13,        // a file could not be read or written
  data = -14,      // a file or stream was read, but its content is not valid
};

struct Origin;

// Copies share the text and the origin, so that returning a failure allocates nothing. Almost every
// call returns a status: a success is two words, and what only failures need is compiled as cold
// code, out of line.
class [[nodiscard]] Status {
 public:
  Status() = default;
  [[gnu::cold]] Status(Code code, std::string text);
  // The failure of a run; the text is origin_text(origin).
  [[gnu::cold]] explicit Status(const Origin& origin);
  Status(const Status& other) noexcept : code_(other.code_), details_(other.details_) {
    if (details_ != nullptr) share();
  }
  Status(Status&& other) noexcept
      : code_(other.code_), details_(std::exchange(other.details_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    code_ = other.code_;
    std::swap(details_, other.details_);
    return *this;
  }
  ~Status() {
    if (details_ != nullptr) release();
  }

  // The status for the exception that is being handled: no memory, or an unexpected exception.
  // Allocates nothing.
  [[gnu::cold]] static Status of_exception() noexcept;

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& text() const noexcept;
  // Why the run failed (base/origin.h); null for any other failure.
  const std::shared_ptr<const Origin>& origin() const noexcept;

  // The same failure with its context: "prefix: text".
  [[gnu::cold]] Status within(const std::string& prefix) const;
  // The same failure with an addition: "text; more".
  [[gnu::cold]] Status followed_by(const std::string& more) const;

 private:
  struct Details;

  Status with_text(std::string text) const;
  [[gnu::cold]] void share() const noexcept;
  [[gnu::cold]] void release() const noexcept;

  Code code_ = Code::ok;
  Details* details_ = nullptr;  // null for a success and for an exception
};

// Calls f, which returns a Status or nothing, and converts an exception to a Status.
template <typename F>
Status attempt(F&& f) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      return {};
    } else {
      return f();
    }
  } catch (...) {
    return Status::of_exception();
  }
}

}  // namespace weft

#define WEFT_TRY(expr)                                                                 \
  do {                                                                                 \
    if (::weft::Status weft_status_ = (expr); !weft_status_.ok()) return weft_status_; \
  } while (0)
