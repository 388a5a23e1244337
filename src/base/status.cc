#include "base/status.h"

#include "base/text.h"

namespace weft {

Status::Status(Code code, std::string text) : code_(code), text_(printable(std::move(text))) {}

Status Status::within(const std::string& prefix) const { return ok() ? Status() : Status(code_, prefix + ": " + text_); }

}  // namespace weft
