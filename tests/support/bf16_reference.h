// bf16 in plain scalar code, for tests of the kernels: the conversions, the products by the
// contract of kernels/bf16_product.h, and bits to try them with.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/bf16.h"

namespace weft::test {

using kernels::Bf16;

inline float widened(Bf16 x) { return std::bit_cast<float>(uint32_t{x} << 16); }

// The nearer of the two neighbours of x, decided by their distances.
inline Bf16 rounded(float x) {
  if (std::isnan(x)) return 0x7fc0;
  const auto down = static_cast<Bf16>(std::bit_cast<uint32_t>(x) >> 16);
  const double lower = widened(down), exact = x;
  if (lower == exact) return down;
  const auto up = static_cast<Bf16>(down + 1);
  // Beyond the largest finite number lies 2^128, where numbers round to infinity.
  const double upper = std::isinf(widened(up)) ? std::copysign(0x1p128, exact) : widened(up);
  const double below = std::fabs(exact - lower), above = std::fabs(upper - exact);
  if (below == above) return down % 2 ? up : down;
  return below < above ? down : up;
}

// c + the sum of a[p] b[p], both read by functions of p < k. The caller has a FlushScope.
template <typename A, typename B>
float reference_sum(int64_t k, float c, const A& a, const B& b) {
  const auto at = [k](const auto& x, int64_t p) { return p < k ? widened(x(p)) : 0.0f; };
  for (int64_t chunk = 0; chunk < k; chunk += 32) {
    float even = 0, odd = 0;
    for (int64_t p = chunk; p < chunk + 32; p += 2) {
      even = std::fma(at(a, p), at(b, p), even);
      odd = std::fma(at(a, p + 1), at(b, p + 1), odd);
    }
    c = c + (even + odd);
  }
  return c;
}

enum class Numbers {
  usual,    // between 1/2 and 2
  small,    // whose products and sums leave the normal range; some special values
  any_bits  // mostly with sums that overflow
};

inline Bf16 random_bf16(Numbers numbers, uint32_t bits) {
  const auto low = static_cast<Bf16>(bits);
  const uint32_t choice = bits >> 16;
  if (numbers == Numbers::usual) return static_cast<Bf16>((low & 0x80ff) | 0x3f00);
  if (numbers == Numbers::any_bits) return low;
  if (choice % 64 == 0) return low & 0x807f;    // a subnormal number, or zero
  if (choice % 4096 == 1) return low | 0x7f80;  // NaN, or infinity
  if (choice % 4096 == 2) return (low & 0x8000) | 0x7f80;
  return static_cast<Bf16>((low & 0x807f) | (choice % 12 + 58) << 7);
}

inline std::vector<Bf16> random_bf16s(Numbers numbers, int64_t n, uint64_t seed) {
  const Stream stream = Stream::data(seed, 0);
  std::vector<Bf16> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = random_bf16(numbers, static_cast<uint32_t>(stream.draw(i)[0]));
  return out;
}

}  // namespace weft::test
