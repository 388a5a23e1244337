// Operands that a call takes as they are stored, f32 or bf16.
#pragma once

#include "kernels/bf16.h"
#include "tensor/shape.h"

namespace weft {

inline float as_float(float x) { return x; }
inline float as_float(kernels::Bf16 x) { return kernels::to_float(x); }

// body(x), where x points to the elements of a tensor.
template <typename F>
void with_elements(const View& view, F&& body) {
  if (view.desc.dtype == DType::bf16)
    body(static_cast<const kernels::Bf16*>(view.bf16()));
  else
    body(static_cast<const float*>(view.f32()));
}

// body(a, b), of two tensors of one type.
template <typename F>
void with_elements(const View& a, const View& b, F&& body) {
  with_elements(a, [&b, &body](const auto* x) { body(x, static_cast<decltype(x)>(b.data)); });
}

}  // namespace weft
