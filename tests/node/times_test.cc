// Times of a rank on another machine come out on the controller's clock, as well as messages can
// tell.
#include <gtest/gtest.h>

#include "engine/messages.h"

namespace weft {
namespace {

// A rank whose clock is ahead by that much works from 1000 to 2000 of the controller's; messages
// take `there` and `back`.
RankTimes received_with(int64_t ahead, int64_t there, int64_t back) {
  const RankTimes theirs = {1000 + ahead, 2000 + ahead, 700, 900 + there + ahead, 2100 + ahead};
  return on_our_clock(theirs, 900, 2100 + back);
}

TEST(Times, OneClockStaysOneClock) {
  for (const int64_t delay : {0, 5, 80}) {
    const RankTimes t = received_with(0, delay, 40);
    EXPECT_EQ(t.begin, 1000);
    EXPECT_EQ(t.end, 2000);
    EXPECT_EQ(t.busy, 700);
  }
}

TEST(Times, AnotherClockIsFoundFromTheMessages) {
  for (const int64_t ahead : {int64_t{1} << 50, int64_t{-3'600'000'000'000}, int64_t{500}}) {
    const RankTimes t = received_with(ahead, 30, 30);
    EXPECT_EQ(t.begin, 1000) << ahead;
    EXPECT_EQ(t.end, 2000) << ahead;
    EXPECT_EQ(t.busy, 700);
  }
}

TEST(Times, AWayThatIsSlowerErrsByHalfTheDifference) {
  EXPECT_EQ(received_with(1'000'000, 60, 20).begin, 1000 - 20);
  EXPECT_EQ(received_with(-1'000'000, 20, 60).begin, 1000 + 20);
}

}  // namespace
}  // namespace weft
