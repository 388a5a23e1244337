// The queue of events against a list that is sorted each time.
#include "sim/events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace weft {
namespace {

TEST(SimEvents, ComeInOrderOfTimeAndAtOneTimeThoseSaidNowFirst) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    SimEvents events;
    std::vector<std::pair<double, int32_t>> later;  // ascending
    std::vector<int32_t> now;                       // pushed for the current time
    int32_t said = 0, together = 0;
    // Few different delays give equal times, and times that differ only in their last
    // bits.
    const double delays[] = {0, 0, 0.1, 0.3, 0.1 + 0.2, 1e-9, 1e6};
    for (int step = 0; step < 2000; ++step) {
      ASSERT_EQ(events.empty(), now.empty() && later.empty());
      if (events.empty() || random() % 2 == 0) {
        const double time = events.now() + delays[random() % std::size(delays)];
        events.push({.what = said}, time);
        if (time <= events.now()) {
          now.push_back(said);
        } else {
          const auto at = std::upper_bound(later.begin(), later.end(), time,
                                           [](double t, const auto& e) { return t < e.first; });
          if (at != later.begin() && (at - 1)->first == time) ++together;
          later.insert(at, {time, said});
        }
        ++said;
        continue;
      }
      const SimEvent event = events.pop();
      if (!now.empty()) {
        ASSERT_EQ(event.what, now.front());
        now.erase(now.begin());
      } else {
        ASSERT_EQ(event.what, later.front().second);
        ASSERT_EQ(events.now(), later.front().first);
        later.erase(later.begin());
      }
    }
    EXPECT_GT(together, 10);
  }
}

}  // namespace
}  // namespace weft
