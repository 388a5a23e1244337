// Conversion between float32 and bf16, the upper half of a float32.
#pragma once

#include <bit>
#include <cstdint>

namespace weft::kernels {

using Bf16 = uint16_t;  // the bits

// Rounds to nearest, ties to even. Every NaN becomes 0x7fc0. Subnormal numbers are kept, whatever
// the floating-point mode.
void to_bf16(const float* x, Bf16* out, int64_t n);

// Exact.
inline float to_float(Bf16 x) { return std::bit_cast<float>(uint32_t{x} << 16); }
void from_bf16(const Bf16* x, float* out, int64_t n);

}  // namespace weft::kernels
