// The parser of Jinja templates.
#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace weft::jinja {

// A construct that is not supported is refused by its name and line.
Result<Block> parse_template(std::string_view text);

}  // namespace weft::jinja
