#include "base/status.h"

#include <new>

#include "base/origin.h"
#include "base/text.h"

namespace weft {

Status::Status(Code code, std::string text)
    : code_(code), text_(std::make_shared<const std::string>(printable(std::move(text)))) {}

Status::Status(const Origin& origin) : Status(origin.code, origin_text(origin)) {
  origin_ = std::make_shared<const Origin>(origin);
}

Status Status::of_exception() noexcept {
  Status out;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    out.code_ = Code::no_memory;
  } catch (...) {
    out.code_ = Code::internal;
  }
  return out;
}

// Short texts: a std::string of this size allocates nothing.
const std::string& Status::text() const noexcept {
  static const std::string none, out_of_memory("out of memory"), exception("an exception");
  if (text_) return *text_;
  return code_ == Code::ok ? none : code_ == Code::no_memory ? out_of_memory : exception;
}

Status Status::with_text(std::string text) const {
  if (ok()) return {};
  Status out(code_, std::move(text));
  out.origin_ = origin_;
  return out;
}

Status Status::within(const std::string& prefix) const { return with_text(prefix + ": " + text()); }

Status Status::followed_by(const std::string& more) const {
  return more.empty() ? *this : with_text(text() + "; " + more);
}

}  // namespace weft
