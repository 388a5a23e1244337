// The monotonic clock for the times of jobs; all processes of a machine share it.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace weft
