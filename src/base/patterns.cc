#include "base/patterns.h"

namespace weft {

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = pattern.npos, taken = 0;  // the last '*', and the end of the text that it matches
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool matches_any(std::string_view patterns, std::string_view name) {
  while (!patterns.empty())
    if (matches(take_item(patterns, ','), name)) return true;
  return false;
}

}  // namespace weft
