// Element-wise kernels over a whole tensor, in blocks that threads take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/elementwise.h"
#include "kernels/large.h"
#include "kernels/tiles.h"

namespace weft {

constexpr int64_t kLoopBlock = 16384;

inline void add_tensors(Tiles& tiles, const float* a, const float* b, float* out, int64_t n) {
  for_tiles(tiles, static_cast<int>((n + kLoopBlock - 1) / kLoopBlock), [&](int tile) {
    const int64_t begin = tile * kLoopBlock, count = std::min(kLoopBlock, n - begin);
    kernels::add(a + begin, b + begin, out + begin, count);
  });
}

inline void clear_tensor(Tiles& tiles, float* x, int64_t n) {
  if (!kernels::is_large(n)) {
    std::fill_n(x, n, 0.0f);
    return;
  }
  for_tiles(tiles, static_cast<int>((n + kLoopBlock - 1) / kLoopBlock), [&](int tile) {
    const int64_t begin = tile * kLoopBlock;
    kernels::clear_past_caches(x + begin, std::min(kLoopBlock, n - begin));
  });
}

inline void from_bf16(Tiles& tiles, const kernels::Bf16* x, float* out, int64_t n) {
  for_tiles(tiles, static_cast<int>((n + kLoopBlock - 1) / kLoopBlock), [&](int tile) {
    const int64_t begin = tile * kLoopBlock;
    kernels::from_bf16(x + begin, out + begin, std::min(kLoopBlock, n - begin));
  });
}

inline void to_bf16(Tiles& tiles, const float* x, kernels::Bf16* out, int64_t n) {
  for_tiles(tiles, static_cast<int>((n + kLoopBlock - 1) / kLoopBlock), [&](int tile) {
    const int64_t begin = tile * kLoopBlock;
    kernels::to_bf16(x + begin, out + begin, std::min(kLoopBlock, n - begin));
  });
}

inline void copy_bytes(Tiles& tiles, std::byte* to, const std::byte* from, size_t bytes) {
  const int64_t n = static_cast<int64_t>(bytes);
  for_tiles(tiles, static_cast<int>((n + kLoopBlock - 1) / kLoopBlock), [&](int tile) {
    const int64_t begin = tile * kLoopBlock;
    std::memcpy(to + begin, from + begin, static_cast<size_t>(std::min(kLoopBlock, n - begin)));
  });
}

}  // namespace weft
