// Dropout by counter-based random numbers: element e uses word e % 4 of block e / 4 of the stream,
// so any part of a mask can be computed again.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace weft::kernels {

// out = x / (1 - probability) where kept, else 0; x[0] is element `first` of the stream.
void dropout(const Stream& stream, double probability, int64_t first, const float* x, int64_t n,
             float* out);

}  // namespace weft::kernels
