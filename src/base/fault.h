// The error of data that is not valid.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace weft {

inline Status fault(std::string text) { return Status(Code::data, std::move(text)); }

}  // namespace weft
