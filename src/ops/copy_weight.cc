// How ops that only copy a weight read it.
#include <algorithm>

#include "kernels/bf16.h"
#include "ops/op.h"

namespace weft {

void copy_weight(const Call& call, int64_t first, std::span<float> out) {
  const View& weight = call.weights.front();
  if (call.stored.data)
    kernels::read_packed(call.stored, first, out);
  else if (weight.desc.dtype == DType::bf16)
    kernels::from_bf16(weight.bf16() + first, out.data(), static_cast<int64_t>(out.size()));
  else
    std::copy_n(weight.f32() + first, out.size(), out.begin());
}

}  // namespace weft
