// zb-auto, the schedule made from costs: against the published rates, against zb-h1, and under
// caps.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "player.h"
#include "random_schedules.h"
#include "schedule/check.h"
#include "support/cases.h"

namespace weft {
namespace {

constexpr double kSlack = 1e-6;

Result<Schedule> make_auto(int32_t p, int32_t m, const ScheduleCosts& costs) {
  return make_zb_auto({.ranks = p, .micro_batches = m, .costs = costs});
}

std::vector<StageEdge> chain(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  return edges;
}

struct Published {
  int32_t p, m;
  double forward, backward, weight, latency;  // of the zero-bubble authors' four models, in ms
  int32_t hidden, heads;
  double one, zb1p, zb2p;
};

// Table of Qi et al. 2023. Their rate is idle time over the longest span of a rank, from its own
// first action to its own last; for 1f1b, where rank 0 begins and ends the step, that is the share
// of the makespan. Their memory: a layer keeps 34h + 5as from F (h: hidden size, a: heads, s: 1024
// tokens) of which 32h stay from I to W. Were all kept until W, zb-2p's figures would be out of
// reach: the last rank could put off 2p-1 W only, so rank 0 would be idle for (p-1)(F + I + 2
// latency) - (2p-1) W, 0.1015 for the first model.
TEST(ZbAuto, RatesAreNoWorseThanPublished) {
  for (const Published& row :
       {Published{8, 24, 18.522, 18.086, 9.337, 0.601, 2304, 24, 0.2431, 0.1585, 0.0433},
        {8, 24, 29.718, 29.444, 19.927, 0.527, 4096, 32, 0.2347, 0.1323, 0.0029},
        {16, 48, 11.347, 11.248, 8.132, 0.377, 5120, 40, 0.2552, 0.1397, 0.0066},
        {32, 96, 10.419, 10.207, 7.715, 0.408, 6144, 48, 0.2646, 0.1421, 0.0038}}) {
    SCOPED_TRACE(cat("p ", row.p, " hidden ", row.hidden));
    const auto all = [&](double cost) {
      return std::vector<double>(static_cast<size_t>(row.p), cost);
    };
    ScheduleCosts costs{.forward = all(row.forward),
                        .input = all(row.backward),
                        .weight = all(row.weight),
                        .held = all(34. * row.hidden + 5. * row.heads * 1024),
                        .parked = all(32. * row.hidden),
                        .latency = row.latency,
                        .short_spans = true};
    const double work = row.m * (row.forward + row.backward + row.weight);
    const auto rate = [&](const Schedule& schedule) {
      const Played played = play(schedule, costs);
      EXPECT_TRUE(played.ran);
      EXPECT_TRUE(costs.cap == 0 || played.most_held() <= costs.cap * (1 + kSlack));
      double span = 0;
      for (size_t r = 0; r < played.last.size(); ++r)
        span = std::max(span, played.last[r] - played.first[r]);
      return 1 - work / span;
    };
    constexpr double kDigit = 0.00005;  // published with four digits
    EXPECT_NEAR(rate(make_1f1b({.ranks = row.p, .micro_batches = row.m}).take()), row.one, kDigit);
    costs.cap = row.p * costs.held[0];
    const double zb1p = rate(make_auto(row.p, row.m, costs).take());
    EXPECT_LE(zb1p, row.zb1p + kDigit);
    costs.cap *= 2;
    const double zb2p = rate(make_auto(row.p, row.m, costs).take());
    EXPECT_LE(zb2p, row.zb2p + kDigit);
    RecordProperty(cat("zb1p_", row.hidden), cat(zb1p));
    RecordProperty(cat("zb2p_", row.hidden), cat(zb2p));
  }
}

// The least time of any schedule: the last rank cannot begin before (p-1) forwards have gone by.
// Reached with memory enough.
TEST(ZbAuto, EqualCostsReachTheFloor) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 2 * p - 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      EXPECT_DOUBLE_EQ(play(make_auto(p, m, {}).take()).makespan, p - 1 + 3 * m);
      const Played played = play(make_auto(p, m, {.short_spans = true}).take());
      EXPECT_DOUBLE_EQ(played.makespan, p - 1 + 3 * m);
      EXPECT_DOUBLE_EQ(played.most_idle_in_span(), 0);
    }
}

ScheduleCosts random_costs(int32_t p, Dice& dice) {
  ScheduleCosts costs;
  const bool equal = dice.below(3) == 0;
  for (auto* list : {&costs.forward, &costs.input, &costs.weight, &costs.held, &costs.parked})
    for (int32_t r = 0; r < p; ++r)
      list->push_back(equal && r > 0 ? list->front()
                                     : dice.from_to(list == &costs.held ? 1 : 0, 20) / 7.);
  if (dice.below(2)) costs.parked.clear();
  costs.latency = dice.below(2) ? dice.from_to(0, 20) / 9. : 0;
  return costs;
}

TEST(ZbAuto, NeverWorseThanZbH1AndUnderTheCap) {
  int capped = 0;
  for (uint64_t seed = 0; seed < 2000; seed += test::kEvery) {
    Dice dice(seed);
    const int32_t p = dice.from_to(1, 8), m = dice.from_to(1, 20);
    ScheduleCosts costs = random_costs(p, dice);
    double least = 0;
    for (const auto* list : {&costs.held, &costs.parked})
      for (const double one : *list) least = std::max(least, one);
    if (dice.below(4) != 0) costs.cap = least * dice.from_to(2, 5 * p) / 2;
    SCOPED_TRACE(cat("seed ", seed, " p ", p, " m ", m, " cap ", costs.cap));
    const Result<Schedule> made = make_auto(p, m, costs);
    ASSERT_TRUE(made.ok()) << made.status().text();
    ASSERT_TRUE(check_schedule(made.value(), chain(p), 0).ok());
    const Played played = play(made.value(), costs);
    EXPECT_TRUE(costs.cap == 0 || played.most_held() <= costs.cap * (1 + kSlack))
        << played.most_held();
    for (const auto make : {make_zb_h1, make_zb_h2, make_1f1b}) {
      const Played closed = play(make({.ranks = p, .micro_batches = m}).take(), costs);
      if (costs.cap > 0 && closed.most_held() > costs.cap) {
        ++capped;  // it would not fit
        continue;
      }
      EXPECT_LE(played.makespan, closed.makespan * (1 + kSlack))
          << (make == make_zb_h1 ? "zb-h1" : "another");
    }
  }
  EXPECT_GT(capped, 300 / test::kEvery);
}

// So that recompute "stage" has nothing to compute again there: the costs do not include that.
TEST(ZbAuto, LastRankRunsEachInputGradientDirectlyAfterItsForward) {
  for (uint64_t seed = 0; seed < 500; seed += test::kEvery) {
    Dice dice(seed);
    const int32_t p = dice.from_to(1, 8), m = dice.from_to(1, 20);
    ScheduleCosts costs = random_costs(p, dice);
    if (dice.below(2)) costs.cap = 20. / 7 * dice.from_to(2, 2 * p);
    SCOPED_TRACE(cat("seed ", seed, " p ", p, " m ", m, " cap ", costs.cap));
    const Result<Schedule> made = make_auto(p, m, costs);
    ASSERT_TRUE(made.ok()) << made.status().text();
    const std::vector<Action>& row = made.value().rows.back();
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind != Kind::F) continue;
      ASSERT_LT(i + 1, row.size());
      ASSERT_EQ(row[i + 1].kind, Kind::I) << made.value().text();
      ASSERT_EQ(row[i + 1].micro_batch, row[i].micro_batch);
    }
  }
}

// As in a plan, where what I frees of a micro-batch is in another slot than what stays until W.
TEST(ZbAuto, SlotsOfEachKindKeepTheCap) {
  for (uint64_t seed = 0; seed < 500; seed += test::kEvery) {
    Dice dice(seed);
    const int32_t p = dice.from_to(1, 8), m = dice.from_to(1, 20);
    ScheduleCosts costs = random_costs(p, dice);
    if (costs.parked.empty()) costs.parked = costs.held;
    double least = 0;
    for (size_t r = 0; r < costs.held.size(); ++r) {
      costs.kept.push_back(std::min(costs.held[r], costs.parked[r]) * dice.from_to(0, 4) / 4);
      costs.fixed.push_back(dice.from_to(0, 9));
      least = std::max(least, costs.fixed[r] + costs.held[r] + costs.parked[r] - costs.kept[r]);
    }
    costs.cap = least * dice.from_to(4, 12) / 4;
    SCOPED_TRACE(cat("seed ", seed, " p ", p, " m ", m, " cap ", costs.cap));
    const Result<Schedule> made = make_auto(p, m, costs);
    ASSERT_TRUE(made.ok()) << made.status().text();
    const Result<Checked> checked = check_schedule(made.value(), chain(p), 0);
    ASSERT_TRUE(checked.ok());
    for (size_t r = 0; r < costs.held.size(); ++r) {
      const StagePeaks& peaks = checked.value().peaks[r];
      EXPECT_LE(costs.fixed[r] + (costs.held[r] - costs.kept[r]) * peaks.f_to_i +
                    costs.kept[r] * peaks.f_to_w + (costs.parked[r] - costs.kept[r]) * peaks.i_to_w,
                costs.cap * (1 + kSlack))
          << "rank " << r;
    }
  }
}

TEST(ZbAuto, RefusesCostsAndCapsNamingWhatWouldDo) {
  const auto fault = [](const ScheduleCosts& costs) {
    const Result<Schedule> made = make_auto(3, 4, costs);
    return made.ok() ? "made" : made.status().text();
  };
  EXPECT_EQ(fault({.forward = {1, 2}}),
            "costs.forward has 2 entries, expected one for each of 3 stages");
  EXPECT_EQ(fault({.weight = {1, 2, -3}}), "costs.weight of stage 2 is -3, expected 0 or more");
  EXPECT_EQ(fault({.held = {2, 2, 2}, .parked = {2, 1, 2}, .kept = {1, 2, 1}}),
            "costs.kept of stage 1 is 2, expected at most 1");
  EXPECT_EQ(fault({.latency = -1}), "costs.latency is -1, expected 0 or more");
  EXPECT_EQ(fault({.held = {1, 7, 2}, .cap = 6.5}),
            "the limit of a rank is 6.5, expected at least 7, which rank 1 holds of a single "
            "micro-batch");
  EXPECT_EQ(fault({.held = {1, 7, 2}, .cap = 7}), "made");
  EXPECT_EQ(fault({.forward = {0, 0, 0},
                   .input = {0, 0, 0},
                   .weight = {0, 0, 0},
                   .held = {0, 0, 0},
                   .cap = 1}),
            "made");
}

}  // namespace
}  // namespace weft
