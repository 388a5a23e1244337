// Conversion of IEEE 754 half precision, which files contain and in which nothing is computed.
#pragma once

#include <cstdint>

namespace weft::kernels {

using F16 = uint16_t;  // the bits

// Exact, whatever the floating-point mode; a NaN keeps its bits.
void from_f16(const F16* x, float* out, int64_t n);

}  // namespace weft::kernels
