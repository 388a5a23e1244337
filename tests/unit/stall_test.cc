// StallWatch: when silence is too long.
#include <gtest/gtest.h>

#include "runtime/stall.h"

namespace weft {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Asks every second until there is an answer, at most up to `until`.
int64_t ask(StallWatch& watch, int64_t from, int64_t until) {
  for (int64_t now = from; now <= until; now += kSecond)
    if (const int64_t stalled = watch.stalled(now)) return stalled;
  return 0;
}

TEST(Stall, ThirtySecondsAtLeast) {
  StallWatch watch(StallWatch::kLeast, 0, 100 * kSecond);
  EXPECT_EQ(ask(watch, 101 * kSecond, 130 * kSecond), 0);
  EXPECT_EQ(watch.stalled(131 * kSecond), 31 * kSecond);
  watch.ran({.begin = 130 * kSecond, .end = 131 * kSecond});
  EXPECT_EQ(ask(watch, 132 * kSecond, 161 * kSecond), 0);
}

TEST(Stall, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  StallWatch watch(StallWatch::kLeast, 0, 0);
  EXPECT_EQ(ask(watch, kSecond, 10 * kSecond), 0);
  EXPECT_EQ(watch.stalled(1000 * kSecond), 0);
  EXPECT_EQ(ask(watch, 1001 * kSecond, 1020 * kSecond), 0);
  EXPECT_EQ(watch.stalled(1021 * kSecond), 31 * kSecond);
}

TEST(Stall, AFirstActionMayBeLongWhereOnesAreExpected) {
  EXPECT_EQ(StallWatch(StallWatch::kLeast, 0.001, 0).limit(), 30 * kSecond);
  StallWatch watch(StallWatch::kLeast, 2, 0);
  EXPECT_EQ(watch.limit(), 200 * kSecond);
  watch.ran({.begin = 0, .end = kSecond});
  EXPECT_EQ(watch.limit(), 200 * kSecond);
}

TEST(Stall, OpsOfTheProgramMayTakeTenMinutes) {
  StallWatch watch(StallWatch::kLeastWithOps, 0.001, 0);
  EXPECT_EQ(watch.limit(), 600 * kSecond);
  EXPECT_EQ(StallWatch(StallWatch::kLeastWithOps, 7, 0).limit(), 700 * kSecond);
}

TEST(Stall, TenTimesTheMedianOfLongActions) {
  StallWatch watch(StallWatch::kLeast, 0, 0);
  int64_t now = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t length = i % 3 == 2 ? 1 * kSecond : 8 * kSecond;  // the median is 8 s
    watch.ran({.begin = now, .end = now + length});
    now += length;
  }
  EXPECT_EQ(watch.limit(), 80 * kSecond);
  watch.begin(now);
  EXPECT_EQ(ask(watch, now + kSecond, now + 80 * kSecond), 0);
  EXPECT_EQ(watch.stalled(now + 81 * kSecond), 81 * kSecond);
}

}  // namespace
}  // namespace weft
