// Kernels of the update rules and of the gradient norm. Serial; callers cut parameters into tiles.
#pragma once

#include <cstdint>

namespace weft::kernels {

// g = grad * scale + l2 * w, then w -= rate * g.
void sgd(float* w, const float* grad, int64_t n, float scale, float l2, float rate);

// The same with slot = momentum * slot + g in the place of g.
void sgd_momentum(float* w, const float* grad, float* slot, int64_t n, float scale, float l2,
                  float rate, float momentum);

// Numbers of one step that all parameters share.
struct AdamStep {
  float scale;  // of the gradient
  float l2;     // Adam's decay, added to the gradient
  float keep;   // AdamW's decay: w *= keep; otherwise 1
  float beta2;
  float rest1, rest2;   // 1 - beta1, 1 - beta2
  float inverse_root2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float size;  // rate / (1 - beta1^t)
};
void adam(float* w, const float* grad, float* m, float* v, int64_t n, const AdamStep& step);

// Sum of squares in double: sixteen partial sums, folded by halves.
double sum_of_squares(const float* x, int64_t n);

}  // namespace weft::kernels
