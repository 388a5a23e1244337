// Kernels that compute each element independently. Serial; callers cut tensors into tiles. In place
// is allowed (out == an operand).
#pragma once

#include <cstdint>

namespace weft::kernels {

void add(const float* a, const float* b, float* out, int64_t n);
void sub(const float* a, const float* b, float* out, int64_t n);
void mul(const float* a, const float* b, float* out, int64_t n);
void div(const float* a, const float* b, float* out, int64_t n);
void add_zero(float* x, int64_t n);             // replaces -0 by +0, and writes nothing else
void clear_past_caches(float* out, int64_t n);  // to +0
void scale(const float* x, float factor, float* out, int64_t n);
void scaled_difference(const float* a, const float* b, float factor, float* out,
                       int64_t n);  // (a - b) * factor
// out = cap * tanh(x / cap). The gradient reads the output y; it is 0 where dout is 0, even if y is
// not a number.
void softcap(const float* x, float cap, float* out, int64_t n);
void softcap_grad(const float* y, const float* dout, float cap, float* dx, int64_t n);

}  // namespace weft::kernels
