// All numbers of half precision, against their definition.
#include "kernels/f16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/fpenv.h"

namespace weft::kernels {
namespace {

float defined(F16 half) {
  const int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

void expect_exact() {
  std::vector<F16> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<F16>(bits));
  std::vector<float> floats(halves.size());
  from_f16(halves.data(), floats.data(), static_cast<int64_t>(halves.size()));
  for (const F16 half : halves) {
    const float expected = defined(half), found = floats[half];
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found)) << half;
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected)) << half;
  }
}

TEST(F16, WidensExactly) { expect_exact(); }

TEST(F16, WidensExactlyWhereSubnormalNumbersAreZero) {
  const ComputeScope scope;
  expect_exact();
}

}  // namespace
}  // namespace weft::kernels
