// Copies runs of elements between different strides, for slice and concat.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/ranges.h"

namespace weft {

// `rows` runs of `run` four-byte elements; runs lie from_stride and to_stride elements apart.
inline void copy_runs(Tiles& tiles, int64_t rows, int64_t run, const int32_t* from,
                      int64_t from_stride, int32_t* to, int64_t to_stride) {
  for_ranges(tiles, rows, tile_rows(run), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<size_t>(run) * 4);
  });
}

}  // namespace weft
