// Gaussian error linear unit, exact (erf) and by its tanh approximation. Serial; callers cut
// tensors into tiles.
#pragma once

#include <cstdint>

namespace weft::kernels {

void gelu_erf(const float* x, float* out, int64_t n);
void gelu_erf_grad(const float* x, const float* dout, float* dx, int64_t n);
void gelu_tanh(const float* x, float* out, int64_t n);
void gelu_tanh_grad(const float* x, const float* dout, float* dx, int64_t n);

}  // namespace weft::kernels
