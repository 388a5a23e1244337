// Patterns of names: '*' is any text, '?' any character.
#pragma once

#include <string_view>

namespace weft {

// Whether the whole name matches.
bool matches(std::string_view pattern, std::string_view name);
// `patterns`: separated by commas.
bool matches_any(std::string_view patterns, std::string_view name);

}  // namespace weft
