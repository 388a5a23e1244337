// Sizes of tensors in memory: aligned, and counted without overflow.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/shape.h"

namespace weft {

// The maximum size of a rank in a plan.
constexpr int64_t kMostBytes = int64_t{1} << 46;
// Sizes and counts come from the caller. The result saturates instead of overflowing; the caller of
// this function reports the rank that is too large.
constexpr int64_t kEndless = int64_t{1} << 61;

constexpr int64_t kAlign = 64;
constexpr int64_t align_up(int64_t bytes) {
  return (std::min(bytes, kEndless) + kAlign - 1) / kAlign * kAlign;
}
constexpr int64_t sum_of_bytes(int64_t a, int64_t b) {
  return std::min(std::min(a, kEndless) + std::min(b, kEndless), kEndless);
}
constexpr int64_t bytes_of_many(int64_t bytes, int64_t count) {
  int64_t out = 0;
  return __builtin_mul_overflow(bytes, count, &out) ? kEndless : std::min(out, kEndless);
}

inline int64_t padded_bytes(const Desc& desc) {
  return align_up(static_cast<int64_t>(desc.bytes()));
}

}  // namespace weft
