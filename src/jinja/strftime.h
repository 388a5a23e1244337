// Times as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::jinja {

// datetime.strftime() of Python with English names, which no locale changes. `seconds` are those
// since 1970-01-01 00:00 in local time. A directive that is not known is refused.
Result<std::string> time_text(int64_t seconds, std::string_view format);

}  // namespace weft::jinja
