// Dropout by counter-based random numbers: element e takes word e % 4 of block e / 4 of the stream, so any part of a mask can be
// made again from nothing.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace weft::kernels {

// out = x / (1 - probability) where kept, else 0; for elements [begin, end), begin a multiple of 4.
void dropout(const Stream& stream, double probability, const float* x, int64_t begin, int64_t end, float* out);

}  // namespace weft::kernels
