// The functions of unary.def and their gradients. Serial; callers cut tensors into tiles. In place
// is allowed (out == an operand).
#pragma once

#include <cstdint>

namespace weft::kernels {

// NAME_grad computes dx from dout and from the input or the output, as unary.def names it. A
// function of which nothing is saved does not read `saved`, which may then be any n floats.
#define WEFT_UNARY(name, saved, forward_flops, gradient_flops) \
  void name(const float* x, float* out, int64_t n);            \
  void name##_grad(const float* saved, const float* dout, float* dx, int64_t n);
#include "kernels/unary.def"
#undef WEFT_UNARY

}  // namespace weft::kernels
