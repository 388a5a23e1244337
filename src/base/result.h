// A value, or the status with the reason why there is no value (C++20 has no std::expected).
#pragma once

#include <cassert>
#include <optional>
#include <utility>

#include "base/status.h"

namespace weft {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }
  Result(Code code, std::string text) : status_(code, std::move(text)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    assert(ok());
    return *value_;
  }
  const T& value() const {
    assert(ok());
    return *value_;
  }
  T take() {
    assert(ok());
    return std::move(*value_);
  }
  // The same value, or the same failure with its context, as Status::within().
  Result within(const std::string& prefix) && {
    return ok() ? std::move(*this) : Result(status_.within(prefix));
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace weft

#define WEFT_CONCAT_(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_(a, b)
#define WEFT_TRY_ASSIGN_(tmp, lhs, expr) \
  auto tmp = (expr);                     \
  if (!tmp.ok()) return tmp.status();    \
  lhs = tmp.take()
// WEFT_TRY_ASSIGN(auto plan, make_plan(...));
#define WEFT_TRY_ASSIGN(lhs, expr) WEFT_TRY_ASSIGN_(WEFT_CONCAT(weft_result_, __LINE__), lhs, expr)
