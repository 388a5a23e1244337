// Kernels that treat each element alone. Serial; callers cut tensors into tiles. In place is
// allowed (out == an operand).
#pragma once

#include <cstdint>

namespace weft::kernels {

void add(const float* a, const float* b, float* out, int64_t n);
void mul(const float* a, const float* b, float* out, int64_t n);
void scale(const float* x, float factor, float* out, int64_t n);
void scaled_difference(const float* a, const float* b, float factor, float* out,
                       int64_t n);  // (a - b) * factor

void relu(const float* x, float* out, int64_t n);
void relu_grad(const float* out, const float* dout, float* dx,
               int64_t n);  // needs the output alone

}  // namespace weft::kernels
