// Normalization of the columns of a matrix with rows of n floats. Serial; callers cut columns
// [begin, end) or rows into tiles.
#pragma once

#include <cstdint>

namespace weft::kernels {

// Of each column: the mean, and the mean of squared distances from it.
void column_moments(const float* x, int64_t rows, int64_t n, int64_t begin, int64_t end,
                    float* mean, float* variance);
// out[c] = sum over rows of dy (x - mean)
void column_products(const float* x, const float* mean, const float* dy, int64_t rows, int64_t n,
                     int64_t begin, int64_t end, float* out);
// out = (x - mean) scale + shift, where mean, scale and shift have one number per column.
void scale_columns(const float* x, const float* mean, const float* scale, const float* shift,
                   int64_t rows, int64_t n, float* out);
// dx = scale (dy - g - (x - mean) h), where scale, g, mean and h have one number per column.
void scale_columns_grad(const float* x, const float* dy, const float* mean, const float* scale,
                        const float* g, const float* h, int64_t rows, int64_t n, float* dx);

}  // namespace weft::kernels
