// Normally distributed numbers from a stream, many at once.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace weft::kernels {

// out[i] = deviation * element first + i of the stream, where elements 2 j and 2 j + 1 are
// stream.normal(j). The same bits as these on every processor.
void draw_normal(const Stream& stream, double deviation, int64_t first, int64_t n, float* out);

}  // namespace weft::kernels
