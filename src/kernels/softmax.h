// Softmax and what cross entropy needs of it, over rows of n floats. Serial; callers cut rows into tiles.
#pragma once

#include <cstdint>

namespace weft::kernels {

void softmax(const float* x, int64_t rows, int64_t n, float* out);
void softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx);

// out[r] = log of the sum of exp(x[r, :])
void log_sum_exp(const float* x, int64_t rows, int64_t n, float* out);
// dx[r, :] = (exp(x[r, :] - lse[r]) - [column = targets[r]]) * factor; zeros where the target is negative.
void cross_entropy_grad(const float* x, const int32_t* targets, const float* lse, float factor, int64_t rows, int64_t n, float* dx);

}  // namespace weft::kernels
