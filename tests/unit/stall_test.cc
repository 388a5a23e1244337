// StallWatch: when silence is too long.
#include <gtest/gtest.h>

#include "runtime/stall.h"

namespace weft {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(Stall, ThirtySecondsAtLeast) {
  StallWatch watch;
  watch.begin(100 * kSecond);
  EXPECT_EQ(watch.stalled(130 * kSecond), 0);
  EXPECT_EQ(watch.stalled(131 * kSecond), 31 * kSecond);
  watch.ran({.begin = 130 * kSecond, .end = 131 * kSecond});
  EXPECT_EQ(watch.stalled(161 * kSecond), 0);
}

TEST(Stall, TenTimesTheMedianOfLongActions) {
  StallWatch watch;
  int64_t now = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t length = i % 3 == 2 ? 1 * kSecond : 8 * kSecond;   // the median is 8 s
    watch.ran({.begin = now, .end = now + length});
    now += length;
  }
  EXPECT_EQ(watch.limit(), 80 * kSecond);
  EXPECT_EQ(watch.stalled(now + 80 * kSecond), 0);
  EXPECT_EQ(watch.stalled(now + 81 * kSecond), 81 * kSecond);
}

}  // namespace
}  // namespace weft
