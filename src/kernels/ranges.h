// Cuts work into tiles that depend only on its shape, not on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/tiles.h"

namespace weft {

// Elements per tile: small enough that a few threads share a small tensor, large enough that the
// cost of distributing tiles is negligible.
constexpr int64_t kTileElements = 16384;

// Rows per tile when each row has `width` elements.
constexpr int64_t tile_rows(int64_t width) {
  return std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, width));
}

// for_ranges(tiles, n, size, [&](int64_t begin, int64_t end) { ... });  ranges are [0, size),
// [size, 2 size), ..
template <typename F>
void for_ranges(Tiles& tiles, int64_t n, int64_t size, F&& body) {
  for_tiles(tiles, static_cast<int>((n + size - 1) / size), [&](int tile) {
    const int64_t begin = tile * size;
    body(begin, std::min(n, begin + size));
  });
}

}  // namespace weft
