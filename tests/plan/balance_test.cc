// Partitions for machines that are not alike: known answers, and the search against every possible
// cut.
#include "partition/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "random_schedules.h"

namespace weft {
namespace {

using Ints = std::vector<int32_t>;
using Costs = std::vector<double>;
using Bytes = std::vector<int64_t>;

std::vector<StageRoom> rooms(int32_t stages) {
  std::vector<StageRoom> out(static_cast<size_t>(stages));
  for (int32_t s = 0; s < stages; ++s) out[static_cast<size_t>(s)].rank = s;
  return out;
}

// Of each first node of a stage.
CutTime cut_times(const Costs& cut) {
  if (cut.empty()) return {};
  return [cut](const RunOfNodes& run) { return cut[run.begin]; };
}

// `held` is of each micro-batch in flight.
BytesOfRun sum_of(const Bytes& fixed, const Bytes& held, int64_t in_flight, int64_t limit,
                  const RunOfNodes& run) {
  int64_t sum = 0;
  for (size_t v = run.begin; v < run.end; ++v)
    sum += (fixed.empty() ? 0 : fixed[v]) + (held.empty() ? 0 : in_flight * held[v]);
  return {.all = sum, .limit = limit, .most = sum, .least = sum, .more = sum <= limit};
}

ChainLoads loads_of(const Bytes& fixed, const Bytes& held, const Bytes& in_flight,
                    const Bytes& limits, const Costs& cut = {}) {
  return {.cut_time = cut_times(cut), .bytes = [=](const RunOfNodes& run) {
            return sum_of(fixed, held, in_flight.empty() ? 1 : in_flight[run.stage],
                          limits[run.stage], run);
          }};
}

Ints starts_of(const Result<Partition>& partition) {
  EXPECT_TRUE(partition.ok()) << partition.status().text();
  return partition.ok() ? partition.value().first_node : Ints();
}

TEST(Balance, AFasterRankGetsMore) {
  const Costs cost(12, 1.0);
  std::vector<StageRoom> two = rooms(2);
  EXPECT_EQ(starts_of(partition_for({cost, {}}, {}, two)), (Ints{0, 6}));
  two[0].speed = 2;
  EXPECT_EQ(starts_of(partition_for({cost, {}}, {}, two)), (Ints{0, 8}));
}

TEST(Balance, ASlowCutIsAvoidedUnlessBothStagesShareARank) {
  const Costs cost(6, 1.0);
  const Costs cut = {0, 9, 9, 9, 2, 9};
  std::vector<StageRoom> two = rooms(2);
  EXPECT_EQ(starts_of(partition_for({cost, {}}, {cut_times(cut), {}}, two)), (Ints{0, 4}));
  two[1].rank = 0;
  EXPECT_EQ(starts_of(partition_for({cost, {}}, {cut_times(cut), {}}, two)), (Ints{0, 3}));
}

TEST(Balance, StagesAreEvenWhereALinkIsTheBottleneck) {
  const Costs cost(12, 1.0), cut(12, 40.0);
  EXPECT_EQ(starts_of(partition_for({cost, {}}, {cut_times(cut), {}}, rooms(3))), (Ints{0, 4, 8}));
}

TEST(Balance, AStageThatHoldsMoreMicroBatchesGetsFewerNodes) {
  const Costs cost(6, 1.0);
  const Bytes fixed(6, 10), held(6, 10);
  const auto loads = loads_of(fixed, held, {4, 1}, {100, 100});
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads, rooms(2))), (Ints{0, 2}));
}

TEST(Balance, WhatFitsNowhereIsNamed) {
  const Costs cost(4, 1.0);
  const Bytes fixed = {10, 10, 50, 10};
  const auto fault = [&](const Bytes& limits) {
    return partition_for({cost, {}}, loads_of(fixed, {}, {}, limits), rooms(2)).status().text();
  };
  EXPECT_EQ(fault({55, 55}),
            "no partition fits: rank 1 needs 60 bytes for the nodes that do not fit on the ranks "
            "before it, the limit is 55 bytes");
  EXPECT_EQ(fault({5, 55}),
            "no partition fits: rank 0 needs 10 bytes for the smallest possible stage, the limit "
            "is 5 bytes");
  EXPECT_EQ(partition_for({cost, {}}, loads_of(fixed, {}, {}, {55}), rooms(1)).status().text(),
            "no partition fits: rank 0 needs 80 bytes for all nodes, the limit is 55 bytes");
}

TEST(Balance, BytesOfFewRunsAreCountedIfTheFastestFit) {
  const Costs cost(1000, 1.0);
  size_t counted = 0;
  ChainLoads loads;
  loads.bytes = [&counted](const RunOfNodes& run) {
    ++counted;
    const auto bytes = static_cast<int64_t>(run.end - run.begin);
    return BytesOfRun{
        .all = bytes, .limit = 100, .most = bytes, .least = bytes, .more = bytes <= 100};
  };
  const auto found = partition_for({cost, {}}, loads, rooms(10));
  EXPECT_EQ(starts_of(found), (Ints{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}));
  EXPECT_LT(counted, 100u);
}

// The first stage begins at node 0, and a stage begins where those before it can end in time.
TEST(Balance, BytesAreCountedWhereStagesCanBegin) {
  const Costs cost(40, 1.0);
  bool sound = true;
  ChainLoads loads;
  loads.bytes = [&sound](const RunOfNodes& run) {
    sound = sound && run.begin <= 15 * run.stage;
    const auto bytes = static_cast<int64_t>(run.end - run.begin);
    const int64_t limit = run.stage == 0 ? 9 : 100;
    return BytesOfRun{
        .all = bytes, .limit = limit, .most = bytes, .least = bytes, .more = bytes <= limit};
  };
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads, rooms(4))), (Ints{0, 9, 19, 29}));
  EXPECT_TRUE(sound);
}

TEST(Balance, FaultsAreNamed) {
  const Costs cost(4, 1.0);
  std::vector<StageRoom> two = rooms(2);
  const auto text = [&](const ChainLoads& loads) {
    return partition_for({cost, {}}, loads, two).status().text();
  };
  two[1].speed = 0;
  EXPECT_EQ(text({}), "rank 1 has speed 0, expected a finite number above 0");
  EXPECT_EQ(partition_for({cost, {}}, {}, rooms(5)).status().text(),
            "5 stages need at least as many nodes, found 4");
}

struct Case {
  Costs cost, cut, sent;
  Costs fed;  // time of the inputs of each node
  Bytes fixed, held, in_flight, limits;
  std::vector<StageRoom> stages;
  std::vector<size_t> needed;

  Costs link;  // time per unit of `cut` and `fed`, of the link to each stage

  double cut_time(const RunOfNodes& run) const {
    double time = cut[run.begin];
    for (size_t v = run.begin; v < run.end && stages[run.stage - 1].rank == 0 && !fed.empty(); ++v)
      time += fed[v];
    return time * link[run.stage];
  }

  // What is compared, first to last.
  struct Judged {
    double bottleneck = 0, stage = 0;
    int64_t bytes = 0;  // of the largest rank
    double sum = 0;
    auto operator<=>(const Judged&) const = default;
  };
  // No result if it does not fit.
  std::optional<Judged> judge(const Ints& starts) const {
    Judged out;
    double fastest = 0;
    double mean_cut = 0;
    for (const double bytes : sent) mean_cut += bytes / static_cast<double>(sent.size());
    Costs times;
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto begin = static_cast<size_t>(starts[s]),
                 end = s + 1 < starts.size() ? static_cast<size_t>(starts[s + 1]) : cost.size();
      double time = 0;
      int64_t bytes = 0;
      for (size_t v = begin; v < end; ++v) {
        time += cost[v];
        bytes += fixed[v] + in_flight[s] * held[v];
      }
      const bool has = std::any_of(needed.begin(), needed.end(),
                                   [&](size_t v) { return v >= begin && v < end; });
      if (bytes > limits[s] || !(has || needed.empty())) return {};
      out.bytes = std::max(out.bytes, bytes);
      times.push_back(time / stages[s].speed);
      fastest = std::max(fastest, stages[s].speed);
      out.stage = std::max(out.stage, times[s]);
      if (s > 0 && stages[s].rank != stages[s - 1].rank)
        out.bottleneck = std::max(out.bottleneck, cut_time({s, begin, end}));
    }
    out.bottleneck = std::max(out.bottleneck, out.stage);
    double total = 0;
    for (const double time : cost) total += time;
    const double others = total / fastest - out.stage,
                 mean = std::max(others / std::max(1.0, static_cast<double>(stages.size()) - 1),
                                 out.stage / 1024);
    // From the last one on, so that rounding is the same.
    for (size_t s = stages.size(); s-- > 0;) {
      const double share = mean > 0 ? times[s] / mean : 0;
      const double at_cut = s + 1 < stages.size() && mean_cut > 0
                                ? 0.2 * (sent[static_cast<size_t>(starts[s + 1])] / mean_cut)
                                : 0;
      out.sum = share * share * (stages[s].speed / fastest) + at_cut + out.sum;
    }
    return out;
  }

  // Of all partitions the best; of several the one with the earliest cuts, which comes first here.
  Ints best() const {
    Ints found, starts = {0};
    std::optional<Judged> least;
    const std::function<void()> extend = [&] {
      if (starts.size() == stages.size()) {
        const auto judged = judge(starts);
        if (!judged || (least && !(*judged < *least))) return;
        least = judged;
        found = starts;
        return;
      }
      for (int32_t v = starts.back() + 1; v < static_cast<int32_t>(cost.size()); ++v) {
        starts.push_back(v);
        extend();
        starts.pop_back();
      }
    };
    extend();
    return found;
  }
};

// Fewer than 128 bytes, so that 1 % of them is less than a byte.
TEST(Balance, IsTheBestOfAllCuts) {
  std::mt19937 rng(7);
  const auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    Case c;
    const int32_t nodes = 1 + below(9),
                  stages = 1 + below(static_cast<uint32_t>(std::min(nodes, 5)));
    for (int32_t v = 0; v < nodes; ++v) {
      // Small whole numbers: sums are exact, and ties are common.
      c.cost.push_back(below(6));
      c.cut.push_back(below(8));
      c.sent.push_back(below(4));
      c.fixed.push_back(below(6));
      c.held.push_back(below(4));
    }
    c.stages = rooms(stages);
    const bool capped = below(2), chunked = below(4) == 0;
    for (size_t s = 0; s < c.stages.size(); ++s) {
      c.stages[s].speed = below(2) ? 1 : 2;
      c.in_flight.push_back(1 + below(3));
      c.link.push_back(below(3));
      c.limits.push_back(capped ? 4 + below(30) : INT64_MAX);
      if (chunked) c.stages[s].rank = static_cast<int32_t>(s / 2);
    }
    if (below(2))
      for (int32_t v = 0; v < nodes; ++v)
        if (below(2)) c.needed.push_back(static_cast<size_t>(v));
    if (c.needed.size() < c.stages.size()) c.needed.clear();
    for (int32_t v = 0; v < nodes && i % 2 == 1; ++v) c.fed.push_back(below(3));
    ChainLoads loads = loads_of(c.fixed, c.held, c.in_flight, c.limits, c.cut);
    loads.cut_bytes = c.sent;
    loads.needed = c.needed;
    loads.cut_time = [&c](const RunOfNodes& run) { return c.cut_time(run); };
    const auto found = partition_for({c.cost, {}}, loads, c.stages);
    const Ints best = c.best();
    if (best.empty()) {
      ++refused;
      ASSERT_FALSE(found.ok()) << "case " << i;
      ASSERT_EQ(found.status().code(), Code::invalid) << "case " << i;
      continue;
    }
    ASSERT_TRUE(found.ok()) << "case " << i << ": " << found.status().text();
    const auto judged = c.judge(found.value().first_node), least = c.judge(best);
    ASSERT_TRUE(judged && least) << "case " << i;
    ASSERT_EQ(judged->bottleneck, least->bottleneck) << "case " << i;
    ASSERT_EQ(judged->stage, least->stage) << "case " << i;
    ASSERT_EQ(judged->bytes, least->bytes) << "case " << i;
    ASSERT_NEAR(judged->sum, least->sum, 1e-12 * least->sum) << "case " << i;
  }
  EXPECT_GT(refused, 100);
}

// A heuristic in wide use ends at 22 here.
TEST(Balance, TheBottleneckIsTheSmallest) {
  const auto found = partition_for({Costs{4, 18, 9, 2, 6, 14, 1, 3}, {}}, {}, rooms(4));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*std::max_element(found.value().cost.begin(), found.value().cost.end()), 18);
  EXPECT_EQ(found.value().first_node, (Ints{0, 1, 2, 5}));
}

TEST(Balance, StagesAreEvenBesideANodeThatTakesLong) {
  EXPECT_EQ(starts_of(partition_for({Costs{1, 1, 1, 1, 1, 1, 9}, {}}, {}, rooms(4))),
            (Ints{0, 2, 4, 6}));
  EXPECT_EQ(starts_of(partition_for({Costs(4, 0.0), {}}, {}, rooms(3))), (Ints{0, 1, 2}));
  EXPECT_EQ(starts_of(partition_for({Costs{5}, {}}, {}, rooms(1))), (Ints{0}));
}

TEST(Balance, OfEquallyFastPartitionsTheLargestRankIsTheSmallest) {
  const Costs cost = {1, 1, 1, 1, 9};
  const Bytes fixed = {500, 100, 100, 100, 100}, unlimited(3, INT64_MAX);
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads_of(fixed, {}, {}, unlimited), rooms(3))),
            (Ints{0, 1, 4}));
}

TEST(Balance, OfEquallyLargePartitionsTheCutsAreNarrow) {
  Costs cost(11, 1.0), sent(11, 4.0);
  cost.back() = 30;
  sent[4] = 1;
  ChainLoads loads;
  loads.cut_bytes = sent;
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads, rooms(3))), (Ints{0, 4, 10}));
}

// More than are compared by their bytes.
TEST(Balance, NoStageOfALongChainIsSmallBecauseItsCutIsNarrow) {
  Costs cost(501, 1.0), sent(501, 4.0);
  cost.back() = 200;
  sent[1] = sent[2] = 0;
  ChainLoads loads = loads_of(Bytes(501, 1), {}, {}, Bytes(6, INT64_MAX));
  loads.cut_bytes = sent;
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads, rooms(6))),
            (Ints{0, 100, 200, 300, 400, 500}));
}

// Rounding must not make the search miss its own bottleneck.
TEST(Balance, CostsOfAnySizeHaveAPartition) {
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Dice dice(seed);
    const int32_t n = dice.from_to(1, 11), stages = dice.from_to(1, n);
    Costs cost;
    for (int32_t v = 0; v < n; ++v) {
      const uint32_t word = dice.below(1u << 30);
      cost.push_back(dice.below(2) ? word * 1e-7
                                   : std::ldexp(word, static_cast<int>(word % 1400) - 700));
    }
    const auto found = partition_for({cost, {}}, {}, rooms(stages));
    ASSERT_TRUE(found.ok()) << "seed " << seed << ": " << found.status().text();
    ASSERT_EQ(found.value().stages(), stages) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft
