#include "base/status.h"

#include <atomic>
#include <new>

#include "base/origin.h"
#include "base/text.h"

namespace weft {

struct Status::Details {
  std::string text;
  std::shared_ptr<const Origin> origin = {};
  std::atomic<int> users = 1;
};

Status::Status(Code code, std::string text)
    : code_(code), details_(new Details{.text = printable(std::move(text))}) {}

Status::Status(const Origin& origin) : Status(origin.code, origin_text(origin)) {
  details_->origin = std::make_shared<const Origin>(origin);
}

void Status::share() const noexcept { details_->users.fetch_add(1, std::memory_order_relaxed); }

void Status::release() const noexcept {
  if (details_->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete details_;
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
  if (details_ != nullptr) return details_->text;
  return code_ == Code::ok ? none : code_ == Code::no_memory ? out_of_memory : exception;
}

const std::shared_ptr<const Origin>& Status::origin() const noexcept {
  static const std::shared_ptr<const Origin> none;
  return details_ != nullptr ? details_->origin : none;
}

Status Status::with_text(std::string text) const {
  if (ok()) return {};
  Status out(code_, std::move(text));
  out.details_->origin = origin();
  return out;
}

Status Status::within(const std::string& prefix) const { return with_text(prefix + ": " + text()); }

Status Status::followed_by(const std::string& more) const {
  return more.empty() ? *this : with_text(text() + "; " + more);
}

}  // namespace weft
