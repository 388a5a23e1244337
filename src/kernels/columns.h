// Sums down the columns of a matrix. Serial; callers cut the columns into tiles.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace weft::kernels {

// acc[j] += the sum over i of x[i * stride + j], for j < columns. The order depends on `rows` only.
void add_column_sums(const float* x, int64_t rows, int64_t columns, int64_t stride, float* acc);
void add_column_sums(const Bf16* x, int64_t rows, int64_t columns, int64_t stride, float* acc);

}  // namespace weft::kernels
