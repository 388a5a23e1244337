// Times as the interface and traces have them.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

// Of so many seconds; the largest number if there are more.
inline int64_t nanoseconds(double seconds) {
  const double ns = std::round(seconds * 1e9);
  return ns < 9.2e18 ? static_cast<int64_t>(ns) : INT64_MAX;
}

}  // namespace weft
