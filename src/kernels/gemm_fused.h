// The product by weft's own kernels, for processors with fused multiply-add vectors.
#pragma once

#include "kernels/gemm.h"

namespace weft::kernels {

// Whether the vectors that the kernels use on this processor have a fused multiply-add.
bool has_fused();

// gemm_tile() on such a processor; not to be called on another one.
void fused_product(const Gemm& product);

}  // namespace weft::kernels
