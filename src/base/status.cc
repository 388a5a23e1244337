#include "base/status.h"

namespace weft {

Status Status::within(const std::string& prefix) const { return ok() ? Status() : Status(code_, prefix + ": " + text_); }

}  // namespace weft
