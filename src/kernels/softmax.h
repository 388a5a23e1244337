// Softmax, its log, and the parts of cross entropy that use them, over rows of n floats. Serial;
// callers cut rows into tiles.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace weft::kernels {

void softmax(const float* x, int64_t rows, int64_t n, float* out);
void softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx);
void log_softmax(const float* x, int64_t rows, int64_t n, float* out);
void log_softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx);

// The log of the sum of exp(x[r, :]) in two parts, since one float would lose the log beside a
// large maximum: top[r] is the maximum, log[r] the log of the sum of exp(x[r, :] - top[r]).
void log_sum_exp(const float* x, int64_t rows, int64_t n, float* top, float* log);
void log_sum_exp(const Bf16* x, int64_t rows, int64_t n, float* top, float* log);
// Of one row: dx = exp(x - top) exp(-log) * factor.
void log_sum_exp_grad(const float* x, float top, float log, float factor, int64_t n, float* dx);

}  // namespace weft::kernels
