// Partitions for machines that are not alike: known answers, and the search against every possible
// cut.
#include "partition/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

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
  return {sum, limit, sum <= limit};
}

ChainLoads loads_of(const Bytes& fixed, const Bytes& held, const Bytes& in_flight,
                    const Bytes& limits, const Costs& cut = {}) {
  return {cut_times(cut), [=](const RunOfNodes& run) {
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
            "before it, the limit is 55");
  EXPECT_EQ(
      fault({5, 55}),
      "no partition fits: rank 0 needs 10 bytes for the smallest possible stage, the limit is 5");
  EXPECT_EQ(partition_for({cost, {}}, loads_of(fixed, {}, {}, {55}), rooms(1)).status().text(),
            "no partition fits: rank 0 needs 80 bytes for all nodes, the limit is 55");
}

TEST(Balance, BytesOfOtherRunsAreNotCountedIfTheFastestFit) {
  const Costs cost(1000, 1.0);
  size_t counted = 0;
  ChainLoads loads;
  loads.bytes = [&counted](const RunOfNodes& run) {
    ++counted;
    const auto bytes = static_cast<int64_t>(run.end - run.begin);
    return BytesOfRun{bytes, 100, bytes <= 100};
  };
  const auto found = partition_for({cost, {}}, loads, rooms(10));
  EXPECT_EQ(starts_of(found), (Ints{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}));
  EXPECT_EQ(counted, 10u);
}

// The first stage begins at node 0, and a stage begins where those before it can end in time.
TEST(Balance, BytesAreCountedWhereStagesCanBegin) {
  const Costs cost(40, 1.0);
  bool sound = true;
  ChainLoads loads;
  loads.bytes = [&sound](const RunOfNodes& run) {
    sound = sound && run.begin <= 15 * run.stage;
    const auto bytes = static_cast<int64_t>(run.end - run.begin);
    return BytesOfRun{bytes, run.stage == 0 ? 9 : 100, run.stage > 0 || bytes <= 9};
  };
  EXPECT_EQ(starts_of(partition_for({cost, {}}, loads, rooms(4))), (Ints{0, 7, 18, 29}));
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
  Costs cost, cut;
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

  // The bottleneck of a partition that fits, and its slowest stage; infinity otherwise.
  std::pair<double, double> judge(const Ints& starts) const {
    double worst = 0, stage = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto begin = static_cast<size_t>(starts[s]),
                 end = s + 1 < starts.size() ? static_cast<size_t>(starts[s + 1]) : cost.size();
      double time = 0;
      int64_t bytes = 0;
      for (size_t v = begin; v < end; ++v)
        time += cost[v], bytes += fixed[v] + in_flight[s] * held[v];
      const bool has = std::any_of(needed.begin(), needed.end(),
                                   [&](size_t v) { return v >= begin && v < end; });
      if (bytes > limits[s] || !(has || needed.empty())) return {INFINITY, INFINITY};
      stage = std::max(stage, time / stages[s].speed);
      if (s > 0 && stages[s].rank != stages[s - 1].rank)
        worst = std::max(worst, cut_time({s, begin, end}));
    }
    return {std::max(worst, stage), stage};
  }

  // Of all partitions the best; of several the one with the earliest cuts, which comes first here.
  Ints best() const {
    Ints found, starts = {0};
    std::pair<double, double> least = {INFINITY, INFINITY};
    const std::function<void()> extend = [&] {
      if (starts.size() == stages.size()) {
        if (const auto worst = judge(starts); worst < least) least = worst, found = starts;
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
    ASSERT_EQ(found.value().first_node, best) << "case " << i;
  }
  EXPECT_GT(refused, 100);
}

TEST(Balance, WithoutMachinesItIsThePartitionByCost) {
  std::mt19937 rng(11);
  for (int i = 0; i < 300; ++i) {
    Costs cost(1 + rng() % 60);
    for (double& v : cost) v = static_cast<double>(rng() % 1000) / 7;
    const auto stages = static_cast<int32_t>(1 + rng() % cost.size());
    ASSERT_EQ(starts_of(partition_for({cost, {}}, {}, rooms(stages))),
              starts_of(partition_by_cost({cost, {}}, stages)))
        << "case " << i;
  }
}

}  // namespace
}  // namespace weft
