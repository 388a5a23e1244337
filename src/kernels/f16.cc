#include "kernels/f16.h"

#include <bit>

namespace weft::kernels {

namespace {

float from_f16(F16 half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal; none is subnormal in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // infinity or NaN; another bias
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace

void from_f16(const F16* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = from_f16(x[i]);
}

}  // namespace weft::kernels
