// Element-wise kernels over a whole tensor, in blocks that threads take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/elementwise.h"
#include "kernels/large.h"
#include "kernels/ranges.h"
#include "tensor/shape.h"

namespace weft {

inline void add_tensors(Tiles& tiles, const float* a, const float* b, float* out, int64_t n) {
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    kernels::add(a + begin, b + begin, out + begin, end - begin);
  });
}

inline void clear_tensor(Tiles& tiles, float* x, int64_t n) {
  if (!kernels::is_large(n)) {
    std::fill_n(x, n, 0.0f);
    return;
  }
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    kernels::clear_past_caches(x + begin, end - begin);
  });
}

// Of a tensor that is converted by the next two.
inline DType type_of_copy(DType stored) { return stored == DType::bf16 ? DType::f32 : DType::bf16; }

inline void from_bf16(Tiles& tiles, const kernels::Bf16* x, float* out, int64_t n) {
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    kernels::from_bf16(x + begin, out + begin, end - begin);
  });
}

inline void to_bf16(Tiles& tiles, const float* x, kernels::Bf16* out, int64_t n) {
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    kernels::to_bf16(x + begin, out + begin, end - begin);
  });
}

inline void copy_bytes(Tiles& tiles, std::byte* to, const std::byte* from, size_t bytes) {
  for_ranges(tiles, static_cast<int64_t>(bytes), kTileElements, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace weft
