// Patterns of names: '*' is any text, '?' any character.
#pragma once

#include <string_view>

#include "base/status.h"
#include "base/text.h"

namespace weft {

// Whether the whole name matches.
bool matches(std::string_view pattern, std::string_view name);
// f(pattern) for each of a list that is separated by commas, until one fails. An empty list has
// none; otherwise a pattern can be empty.
template <typename F>
Status each_pattern(std::string_view patterns, const F& f) {
  for (bool more = !patterns.empty(); more;) {
    more = patterns.find(',') != patterns.npos;
    WEFT_TRY(f(take_item(patterns, ',')));
  }
  return {};
}
// One of a list.
bool matches_any(std::string_view patterns, std::string_view name);

}  // namespace weft
