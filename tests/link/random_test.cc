// Seeded runs over a network that loses, repeats, reorders, delays, flips bits and breaks
// connections. The outcome is complete and correct, or an error on both ends in time; never a wrong
// byte, never silence.
#include <gtest/gtest.h>

#include "pair.h"

namespace weft::test {
namespace {

constexpr LinkTime kSend = 2000;  // traffic begins and ends within it
// From the last frame that something can have happened to; a data frame may be the one that was
// lost.
constexpr LinkTime kPromise = kDataSilence * LinkTimes().silence + 2000;

struct Tally {
  int complete = 0, failed = 0;
};

void run(uint64_t seed, Tally& tally) {
  std::mt19937_64 rng(seed);
  SimFaults faults;
  faults.latency = static_cast<LinkTime>(rng() % 20);
  faults.jitter = static_cast<LinkTime>(rng() % 50);
  if (seed % 4 != 0)
    for (uint32_t* chance :
         {&faults.lose, &faults.duplicate, &faults.reorder, &faults.corrupt, &faults.disconnect})
      if (rng() % 3 == 0) *chance = static_cast<uint32_t>(rng() % 20000);
  const bool from_the_start = rng() % 4 == 0;  // else the handshake is spared
  Pair pair(seed, from_the_start ? faults : SimFaults{});
  pair.run_until(200);
  pair.network.set_faults(faults);

  std::vector<std::vector<std::byte>> sent[2];
  size_t grants[2] = {0, 0}, messages[2] = {0, 0};
  for (LinkTime at = 200; at < kSend; at += static_cast<LinkTime>(1 + rng() % 60)) {
    pair.run_until(at);
    const size_t from = rng() % 2;
    Side& side = from ? pair.b : pair.a;
    if (!side.link.is_open()) continue;
    switch (rng() % 3) {
      case 0: {
        const size_t size = rng() % 150 == 0 ? rng() % (size_t{3} << 20) : rng() % 2000;
        sent[from].push_back(pattern(size, seed + sent[from].size()));
        side.send_tensor({1, static_cast<int32_t>(sent[from].size() - 1), 0}, sent[from].back());
        break;
      }
      case 1: side.link.send_grant({1, static_cast<int32_t>(grants[from]++), 3}, side); break;
      default: {
        const auto bytes = pattern(rng() % 300, messages[from]);
        side.link.send_message(static_cast<uint32_t>(messages[from]++), bytes, pair.now, side);
      }
    }
  }
  // A fault that left no trace by now is found by the next heartbeat or never was one.
  pair.run_until(kSend + (from_the_start ? 10000 : 0) + kPromise);

  // What arrived is what was sent, in order, whatever happened later.
  for (size_t from : {size_t{0}, size_t{1}}) {
    Side& to = from ? pair.a : pair.b;
    ASSERT_LE(to.arrivals.size(), sent[from].size());
    for (size_t i = 0; i < to.arrivals.size(); ++i) {
      ASSERT_EQ(to.arrivals[i], (Tag{1, static_cast<int32_t>(i), 0}));
      ASSERT_EQ((to.landed[{static_cast<int32_t>(i), 0}]), sent[from][i]) << "tensor " << i;
    }
    for (size_t i = 0; i < to.grants.size(); ++i)
      ASSERT_EQ(to.grants[i], (Tag{1, static_cast<int32_t>(i), 3}));
    for (size_t i = 0; i < to.messages.size(); ++i) {
      ASSERT_EQ(to.messages[i].first, i);
      ASSERT_EQ(to.messages[i].second, pattern(to.messages[i].second.size(), i));
    }
  }
  if (pair.open()) {
    ASSERT_EQ(pair.a.failures + pair.b.failures, 0);
    for (size_t from : {size_t{0}, size_t{1}}) {
      const Side &me = from ? pair.b : pair.a, &to = from ? pair.a : pair.b;
      // The links are whole, so everything has come.
      ASSERT_EQ(to.arrivals.size(), sent[from].size());
      ASSERT_EQ(me.releases.size(), sent[from].size());
      ASSERT_EQ(to.grants.size(), grants[from]);
      ASSERT_EQ(to.messages.size(), messages[from]);
    }
    ++tally.complete;
    return;
  }
  for (const Side* side : {&pair.a, &pair.b}) {
    ASSERT_EQ(side->failures, 1) << "one end hangs";
    ASSERT_TRUE(side->link.is_dead());
    ASSERT_FALSE(origin_text(side->failure).empty());
    ASSERT_TRUE(side->failure.rank == 2 || side->failure.rank == 5);
  }
  ASSERT_LE(std::abs(pair.a.failed_at - pair.b.failed_at), from_the_start ? 10000 : kPromise);
  ++tally.failed;
}

TEST(RandomLink, CompleteAndCorrectOrAnErrorOnBothEndsInTime) {
  Tally tally;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run(seed, tally);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tally.complete, 500);
  EXPECT_GT(tally.failed, 700);
}

}  // namespace
}  // namespace weft::test
