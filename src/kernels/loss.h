// Sums of losses over elements, in double. Serial; callers cut tensors into blocks.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace weft::kernels {

// Sum of (a - b)^2.
double squared_error(const float* a, const float* b, int64_t n);
// Sum of log(1 + exp(x)) - x target.
double binary_cross_entropy(const float* x, const float* target, int64_t n);
// (1 / (1 + exp(-x)) - target) * factor
void binary_cross_entropy_grad(const float* x, const float* target, float factor, float* dx,
                               int64_t n);
// Sum of top - x.
double sum_below(const float* x, float top, int64_t n);
double sum_below(const Bf16* x, float top, int64_t n);

}  // namespace weft::kernels
