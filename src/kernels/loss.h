// Kernels of the losses. Serial; callers cut tensors into tiles.
#pragma once

#include <cstdint>

namespace weft::kernels {

// Sum of (a - b)^2 in double: eight partial sums, folded by halves.
double squared_error(const float* a, const float* b, int64_t n);

}  // namespace weft::kernels
