// Layer and RMS normalization over rows of n floats, and plain sums of rows. Serial; callers cut
// rows or columns into tiles.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace weft::kernels {

// out = (x - mean) rstd gamma + beta, where rstd = 1 / sqrt(variance + eps); mean and rstd are
// kept, one per row.
void layer_norm(const float* x, const float* gamma, const float* beta, float eps, int64_t rows,
                int64_t n, float* out, float* mean, float* rstd);
// out = x rstd gamma, where rstd = 1 / sqrt(mean(x^2) + eps); rstd is kept, one per row.
void rms_norm(const float* x, const float* gamma, float eps, int64_t rows, int64_t n, float* out,
              float* rstd);
// Of both; mean is null for the latter.
void norm_grad(const float* x, const float* gamma, const float* dy, const float* mean,
               const float* rstd, int64_t rows, int64_t n, float* dx);
// acc[c] += sum over rows of dy (x - mean) rstd, for columns [begin, end)
void norm_gamma(const float* x, const float* dy, const float* mean, const float* rstd, int64_t rows,
                int64_t n, int64_t begin, int64_t end, float* acc);
void norm_gamma(const Bf16* x, const Bf16* dy, const float* mean, const float* rstd, int64_t rows,
                int64_t n, int64_t begin, int64_t end, float* acc);

// out[r] = sum of x[r, :]
void row_sums(const float* x, int64_t rows, int64_t n, float* out);

}  // namespace weft::kernels
