// ComputeScope: the bits of a computation do not depend on the host's floating-point mode, and the
// mode survives.
#include "kernels/fpenv.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

namespace weft {
namespace {

// The compiler must not compute these itself, and must not move them across the scope.
float divide(float a, float b) {
  volatile float dividend = a, divisor = b;
  volatile float quotient = dividend / divisor;
  return quotient;
}

TEST(ComputeScope, RoundsToNearestWhateverTheHostChose) {
  const float nearest = divide(1, 3);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float up = divide(-1, 3);
  float inside = 0;
  {
    ComputeScope scope;
    inside = divide(-1, 3);
  }
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_NE(up, -nearest) << "the test would not notice";
  EXPECT_EQ(inside, -nearest);
  EXPECT_EQ(after, FE_UPWARD);
}

// What -ffast-math sets at start-up: results are flushed to zero, and so are operands.
#if defined(__x86_64__)
constexpr unsigned kFast = 0x8040, kExceptions = 0x3f;
unsigned& control(fenv_t& state) { return state.__mxcsr; }
#else
constexpr unsigned kFast = 1u << 24, kExceptions = 0;
unsigned& control(fenv_t& state) { return state.__fpcr; }
#endif

TEST(ComputeScope, KeepsSubnormalNumbersInAFastMathHost) {
  fenv_t before, fast, after;
  std::fegetenv(&before);
  fast = before;
  control(fast) |= kFast;
  std::fesetenv(&fast);
  const float tiny = std::numeric_limits<float>::min();
  const float outside = divide(tiny, 4);
  float inside = 0, nested = 0;
  {
    ComputeScope scope;
    inside = divide(tiny, 4);
    {
      ComputeScope again;
      nested = divide(tiny, 4);
    }
  }
  std::fegetenv(&after);
  std::fesetenv(&before);
  EXPECT_EQ(outside, 0.f) << "the test would not notice";
  EXPECT_EQ(inside, 0x1p-128f);
  EXPECT_EQ(nested, 0x1p-128f);
  EXPECT_EQ(control(after) & ~kExceptions, control(fast) & ~kExceptions);
}

TEST(FlushScope, MakesSubnormalNumbersZero) {
  const float tiny = std::numeric_limits<float>::min();
  float result = 1, operand = 1, after = 0;
  {
    ComputeScope outer;
    {
      FlushScope scope;
      result = divide(-tiny, 4);
      operand = divide(0x1p-128f, tiny);
    }
    after = divide(tiny, 4);
  }
  EXPECT_EQ(result, 0.f);
  EXPECT_TRUE(std::signbit(result));
  EXPECT_EQ(operand, 0.f);
  EXPECT_EQ(after, 0x1p-128f);
}

}  // namespace
}  // namespace weft
