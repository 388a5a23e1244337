// Idle time and peaks against the closed forms of each family, and against published tables.
//
// Times are of a whole rank: a rank's F, I and W cost 1 each and its stages share them evenly, so a
// stage holds 1/v of a micro-batch too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "player.h"
#include "schedule/check.h"

namespace weft {
namespace {

Schedule made(std::string_view name, const ScheduleSizes& sizes) {
  const ScheduleKind* kind = find_schedule(name);
  EXPECT_NE(kind, nullptr) << name;
  if (!kind) return {};
  Result<Schedule> schedule = kind->make(sizes);
  EXPECT_TRUE(schedule.ok()) << schedule.status().text();
  return schedule.ok() ? schedule.take() : Schedule();
}

Played played(std::string_view name, const ScheduleSizes& sizes, double latency = 0,
              double forward = 1, double input = 1, double weight = 1) {
  const Schedule schedule = made(name, sizes);
  const Played out = play(schedule, shared_costs(schedule, forward, input, weight, latency));
  EXPECT_TRUE(out.ran) << name;
  return out;
}

std::vector<StageEdge> chain(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  return edges;
}

TEST(ClosedForm, Peaks) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Result<Checked> one = check_schedule(made("1f1b", {p, m}), chain(p));
      const Result<Checked> all = check_schedule(made("gpipe", {p, m}), chain(p));
      ASSERT_TRUE(one.ok() && all.ok());
      for (int32_t r = 0; r < p; ++r) {
        const StagePeaks& few = one.value().peaks[static_cast<size_t>(r)];
        EXPECT_EQ(few.f_to_i, std::min(p - r, m));
        EXPECT_EQ(few.f_to_w, std::min(p - r, m));
        EXPECT_EQ(few.i_to_w, 1);
        const StagePeaks& many = all.value().peaks[static_cast<size_t>(r)];
        EXPECT_EQ(many.f_to_i, m);
        EXPECT_EQ(many.f_to_w, m);
        EXPECT_EQ(many.i_to_w, 1);
      }
    }
}

// The closed form that DeepSpeed's TrainSchedule is built on: F_i of stage s at slot 2i + s, B_i at
// slot 2i + 2p - 1 - s.
TEST(ClosedForm, OneForwardOneBackwardRowsFollowTheSlots) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      const Schedule schedule = made("1f1b", {p, m});
      for (int32_t s = 0; s < p; ++s) {
        std::map<int32_t, Action> by_slot;
        for (int32_t i = 0; i < m; ++i) {
          by_slot[2 * i + s] = {s, Kind::F, i};
          by_slot[2 * i + 2 * p - 1 - s] = {s, Kind::B, i};
        }
        std::vector<Action> row;
        for (const auto& [slot, action] : by_slot) row.push_back(action);
        EXPECT_EQ(schedule.rows[static_cast<size_t>(s)], row)
            << "p " << p << " m " << m << " stage " << s;
      }
    }
}

TEST(ClosedForm, OneForwardOneBackwardPlayed) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Schedule schedule = made("1f1b", {p, m});
      EXPECT_EQ(timetable(schedule)[0].size(), static_cast<size_t>(2 * (m + p - 1)));
      const std::map<std::string, int32_t> slot = slots(schedule);
      for (int32_t s = 0; s < p; ++s)
        for (int32_t i = 0; i < m; ++i) {
          EXPECT_EQ(slot.at(Action{s, Kind::B, i}.text()), 2 * i + 2 * p - 1 - s);
          // Greedy play runs warm-up forwards as soon as it can; the closed form spaces them two
          // slots apart.
          const int32_t forward = slot.at(Action{s, Kind::F, i}.text());
          if (i < p - s) {
            EXPECT_EQ(forward, i + s);
          } else {
            EXPECT_EQ(forward, 2 * i + s);
          }
        }
    }
}

TEST(ClosedForm, AllForwardThenAllBackward) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Schedule schedule = made("gpipe", {p, m});
      EXPECT_EQ(timetable(schedule)[0].size(), static_cast<size_t>(2 * (m + p - 1)));
      const std::map<std::string, int32_t> slot = slots(schedule);
      for (int32_t s = 0; s < p; ++s)
        for (int32_t i = 0; i < m; ++i) {
          EXPECT_EQ(slot.at(Action{s, Kind::F, i}.text()), i + s);
          EXPECT_EQ(slot.at(Action{s, Kind::B, i}.text()), m + p - 1 + (p - 1 - s) + i);
        }
    }
}

// Costs that tell F, I and W apart; B is I + W.
struct Costs {
  double f, i, w;
};
constexpr Costs kEqual = {1, 1, 1}, kUneven = {1, 1.25, 0.75};

TEST(ClosedForm, IdleOfFusedSchedules) {
  for (const Costs& c : {kEqual, kUneven})
    for (int32_t p = 1; p <= 8; ++p)
      for (int32_t m = 1; m <= 20; ++m) {
        SCOPED_TRACE(cat("p ", p, " m ", m));
        const double all = (p - 1) * (c.f + c.i + c.w);
        EXPECT_DOUBLE_EQ(played("gpipe", {p, m}, 0, c.f, c.i, c.w).most_idle(), all);
        EXPECT_DOUBLE_EQ(played("1f1b", {p, m}, 0, c.f, c.i, c.w).most_idle(), all);
        EXPECT_DOUBLE_EQ(
            played("1f1b", {.ranks = p, .micro_batches = m, .warm_up = 2}, 0, c.f, c.i, c.w)
                .most_idle(),
            all);
        if (m % p) continue;
        for (int32_t v = 1; v <= 4; ++v) {
          EXPECT_NEAR(played("interleaved", {p, m, v}, 0, c.f, c.i, c.w).most_idle(), all / v, 1e-9)
              << "v " << v;
          EXPECT_NEAR(played("looped-bfs", {p, m, v}, 0, c.f, c.i, c.w).most_idle(), all / v, 1e-9)
              << "v " << v;
        }
      }
}

// The last group is short by as many micro-batches as it lacks; each costs at most what a whole
// turn of it would.
TEST(ClosedForm, ShortGroupsCostNoMoreThanFullOnes) {
  for (int32_t p = 1; p <= 6; ++p)
    for (int32_t m = 1; m <= 20; ++m)
      for (int32_t v = 2; v <= 4; ++v)
        for (const char* name : {"interleaved", "interleaved-zb"}) {
          SCOPED_TRACE(cat(name, " p ", p, " m ", m, " v ", v));
          const Played shorter = played(name, {p, m, v}),
                       full = played(name, {p, (m + p - 1) / p * p, v});
          EXPECT_LE(shorter.makespan, full.makespan + 1e-9);
          for (size_t r = 0; r < shorter.held.size(); ++r)
            EXPECT_LE(shorter.held[r], full.held[r] + 1e-9);
        }
}

TEST(ClosedForm, PeaksOfFusedSchedules) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 24; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      for (const int32_t k : {1, 2, 3}) {
        const Played eager = played("1f1b", {.ranks = p, .micro_batches = m, .warm_up = k});
        for (int32_t r = 0; r < p; ++r)
          EXPECT_EQ(eager.held[static_cast<size_t>(r)], std::min(k * (p - 1 - r) + 1, m));
      }
      if (m % p) continue;
      for (int32_t v = 2; v <= 4; ++v) {
        const Played round = played("interleaved", {p, m, v}),
                     breadth = played("looped-bfs", {p, m, v});
        for (int32_t r = 0; r < p; ++r) {
          const int32_t stages = std::min(2 * (p - 1 - r) + (v - 1) * p + 1, m * v);
          EXPECT_NEAR(round.held[static_cast<size_t>(r)], stages / static_cast<double>(v), 1e-9);
          EXPECT_NEAR(breadth.held[static_cast<size_t>(r)], m, 1e-9);
        }
      }
    }
}

// A single stage per rank leaves nothing to interleave.
TEST(ClosedForm, OneChunkIsTheScheduleWithoutChunks) {
  for (int32_t p = 1; p <= 6; ++p)
    for (int32_t m = 1; m <= 13; ++m)
      for (const int32_t g : {0, 1, 3}) {
        EXPECT_EQ(made("interleaved", {p, m, 1, g}).text(), made("1f1b", {p, m}).text());
        EXPECT_EQ(made("interleaved-zb", {p, m, 1, g}).text(), made("zb-h1", {p, m}).text());
        EXPECT_EQ(made("looped-bfs", {p, m, 1}).text(), made("gpipe", {p, m}).text());
      }
}

// With every micro-batch in one group the forwards go breadth first.
TEST(ClosedForm, OneGroupGoesBreadthFirst) {
  const Schedule one =
      made("interleaved", {.ranks = 3, .micro_batches = 7, .chunks = 3, .group = 7});
  const Schedule breadth = made("looped-bfs", {.ranks = 3, .micro_batches = 7, .chunks = 3});
  for (size_t r = 0; r < 3; ++r) {
    std::vector<Action> forwards[2];
    for (const Action& action : one.rows[r])
      if (action.kind == Kind::F) forwards[0].push_back(action);
    for (const Action& action : breadth.rows[r])
      if (action.kind == Kind::F) forwards[1].push_back(action);
    EXPECT_EQ(forwards[0], forwards[1]);
  }
}

// (p-1)(F + I - W) for zb-h1 and 1/v of it interleaved; (p-1)F for zb-h2, whose own span has
// (p-1)(F + I - 2W): what is left when one step's start may overlap the other's end. These hold
// where there are micro-batches enough to fill the pipeline.
TEST(ClosedForm, IdleOfZeroBubbleSchedules) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 2 * p - 1; m <= 24; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      EXPECT_DOUBLE_EQ(played("zb-h1", {p, m}).most_idle(), p - 1);
      EXPECT_DOUBLE_EQ(played("zb-h1", {p, m}).most_idle_in_span(), p - 1);
      EXPECT_DOUBLE_EQ(played("zb-h1", {p, m}, 0, 1, 1.25, 0.75).most_idle(), 1.5 * (p - 1));
      EXPECT_DOUBLE_EQ(played("zb-h2", {p, m}).most_idle(), p - 1);
      EXPECT_DOUBLE_EQ(played("zb-h2", {p, m}).most_idle_in_span(), 0);
      EXPECT_DOUBLE_EQ(played("zb-h2", {p, m}, 0, 1, 1.25, 0.75).most_idle_in_span(),
                       0.75 * (p - 1));
      EXPECT_DOUBLE_EQ(played("zb-v", {p, m}).most_idle(), 0.5 * (p - 1));
      EXPECT_DOUBLE_EQ(played("zb-v", {p, m}).most_idle_in_span(), 0);
      if (m >= 2 * p) {
        EXPECT_DOUBLE_EQ(played("dualpipe-v", {p, m}).most_idle(), 0.5 * (p - 1));
      }
      if (m % p) continue;
      for (int32_t v = 2; v <= 4; ++v) {
        EXPECT_NEAR(played("interleaved-zb", {p, m, v}).most_idle(), (p - 1.) / v, 1e-9)
            << "v " << v;
        EXPECT_NEAR(played("interleaved-zb", {p, m, v}, 0, 1, 1.25, 0.75).most_idle(),
                    1.5 * (p - 1) / v, 1e-9)
            << "v " << v;
      }
    }
}

// At most the group's further micro-batches more than 1f1b.
TEST(ClosedForm, PeaksOfDelayedWeightGradients) {
  for (int32_t p = 1; p <= 6; ++p)
    for (int32_t m = 1; m <= 24; ++m)
      for (const int32_t group : {1, 2, 5}) {
        const Played out =
            played("1f1b-delayed-w", {.ranks = p, .micro_batches = m, .group = group});
        for (int32_t r = 0; r < p; ++r)
          EXPECT_LE(out.held[static_cast<size_t>(r)], std::min(m, p - r + group - 1))
              << p << " ranks, " << m << " micro-batches, group " << group << ", rank " << r;
        EXPECT_EQ(out.held.back(), std::min(m, group));
      }
}

TEST(ClosedForm, PeaksOfZeroBubbleSchedules) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 24; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Played h1 = played("zb-h1", {p, m}), h2 = played("zb-h2", {p, m}),
                   v = played("zb-v", {p, m});
      const Played dual = played("dualpipe-v", {p, m});
      for (size_t r = 0; r < static_cast<size_t>(p); ++r) {
        EXPECT_EQ(h1.held[r], std::min(p, m)) << r;
        EXPECT_EQ(h2.held[r], std::min(2 * p - 1, m)) << r;
        if (m >= 2 * p) {
          EXPECT_EQ(v.held[r], p) << r;
          EXPECT_EQ(dual.held[r], p + 0.5) << r;
        } else {
          EXPECT_LE(v.held[r], p) << r;
          EXPECT_LE(dual.held[r], p + 0.5) << r;
        }
      }
      if (m % p) continue;
      for (int32_t chunks = 2; chunks <= 4; ++chunks) {
        const Played round = played("interleaved-zb", {p, m, chunks});
        for (const double held : round.held) EXPECT_NEAR(held, std::min(m, p), 1e-9);
      }
    }
}
// Peaks in stages, on the rank that holds most, once there are micro-batches enough; 1f1b holds 2p
// stages' worth. About 1/2 and 1/3 of it.
TEST(ClosedForm, PeaksOfVHalfAndVMin) {
  const int32_t half[] = {2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14, 16, 16, 18};
  const int32_t least[] = {2, 4, 4, 4, 6, 6, 6, 8, 8, 8, 10, 10, 10, 12, 12, 12};
  for (int32_t p = 1; p <= 16; ++p) {
    EXPECT_EQ(2 * played("v-half", {p, 6 * p}).most_held(), half[p - 1]) << p;
    EXPECT_EQ(2 * played("v-min", {p, 6 * p}).most_held(), least[p - 1]) << p;
    EXPECT_EQ(2 * played("1f1b", {p, 6 * p}).most_held(), 2 * p);
  }
  for (const int32_t p : {1, 2, 3, 4, 5, 11, 12, 13, 62, 63, 64}) {
    const int32_t stages_half = p % 2 ? p + 1 : p + 2,
                  stages_min = (2 * p + 2) / 3 + (p % 3 == 1 ? 1 : 2);
    for (const int32_t m : {1, 2, p, 3 * p}) {
      EXPECT_LE(2 * played("v-half", {p, m}).most_held(), stages_half) << p << " " << m;
      EXPECT_LE(2 * played("v-min", {p, m}).most_held(), stages_min) << p << " " << m;
    }
  }
  EXPECT_NEAR(played("v-half", {64, 192}).most_held() / 64, 0.5, 0.02);
  EXPECT_NEAR(played("v-min", {63, 192}).most_held() / 63, 1. / 3, 0.02);
}

// Half and two thirds of the 3(p-1) of 1f1b, give or take what keeps slots apart.
TEST(ClosedForm, IdleOfVHalfAndVMin) {
  for (int32_t p = 2; p <= 16; ++p) {
    EXPECT_DOUBLE_EQ(played("v-half", {p, 6 * p}).most_idle(), 1.5 * (p - 1) - (p % 2 ? 0.5 : 0))
        << p;
    EXPECT_DOUBLE_EQ(played("v-min", {p, 6 * p}).most_idle(), 2 * (p - 1) + (p % 3 ? -0.5 : 0.5))
        << p;
  }
}

struct Row {
  const char* name;
  int32_t warm_up;
  double idle, idle_in_span;
};

// p = 4, m = 12, F = I = W = 1: idle against a common start and finish, and in a rank's own span,
// which is what a second step costs if it need not wait for the end of the first.
TEST(Published, IdleOfFourRanks) {
  for (const Row& row : {Row{"gpipe", 0, 9, 9},
                         {"1f1b", 0, 9, 9},
                         {"1f1b", 2, 9, 9},
                         {"interleaved", 0, 4.5, 4.5},
                         {"looped-bfs", 0, 4.5, 4.5},
                         {"zb-h1", 0, 3, 3},
                         {"zb-h2", 0, 3, 0},
                         {"interleaved-zb", 0, 1.5, 1.5},
                         {"zb-v", 0, 1.5, 0},
                         {"dualpipe-v", 0, 1.5, 1.5},
                         {"v-half", 0, 4.5, 4.5},
                         {"v-min", 0, 5.5, 5.5}}) {
    const Played out = played(row.name, {.ranks = 4, .micro_batches = 12, .warm_up = row.warm_up});
    EXPECT_DOUBLE_EQ(out.most_idle(), row.idle) << row.name;
    EXPECT_DOUBLE_EQ(out.most_idle_in_span(), row.idle_in_span) << row.name;
  }
}

// The same with a barrier and F, I, W that differ.
TEST(Published, IdleOfFourRanksWithUnevenCosts) {
  struct {
    Costs costs;
    double h1, h2, interleaved, v;
  } const rows[] = {{{1, 1, 0.5}, 4.5, 3, 2.25, 1.5},
                    {{1, 1.2, 0.8}, 4.2, 3, 2.1, 1.8},
                    {{1, 1, 1.2}, 3, 3, 1.5, 1.7}};
  for (const auto& row : rows) {
    const auto idle = [&](const char* name) {
      return played(name, {4, 12}, 0, row.costs.f, row.costs.i, row.costs.w).most_idle();
    };
    EXPECT_NEAR(idle("zb-h1"), row.h1, 1e-9) << row.costs.w;
    EXPECT_NEAR(idle("zb-h2"), row.h2, 1e-9) << row.costs.w;
    EXPECT_NEAR(idle("interleaved-zb"), row.interleaved, 1e-9) << row.costs.w;
    EXPECT_NEAR(idle("zb-v"), row.v, 1e-9) << row.costs.w;
  }
}

// Share of idle time in the makespan, in percent, as messages take longer: p = 4, m = 32, F = I = W
// = 1.
TEST(Published, IdleGrowsWithLatency) {
  struct {
    double latency, gpipe, one, eager, h1, h2, interleaved, v;
  } const rows[] = {{0, 8.6, 8.6, 8.6, 3.0, 3.0, 4.5, 1.5},
                    {0.05, 8.8, 10.8, 8.8, 3.6, 3.2, 5.1, 2.2},
                    {0.1, 9.1, 12.9, 9.1, 4.2, 3.3, 5.8, 2.8},
                    {0.25, 9.9, 18.6, 9.9, 5.9, 3.8, 7.7, 4.7},
                    {0.5, 11.1, 26.7, 11.1, 8.6, 4.5, 10.7, 8.1}};
  for (const auto& row : rows) {
    const auto share = [&](const char* name, int32_t warm_up = 0) {
      const Played out =
          played(name, {.ranks = 4, .micro_batches = 32, .warm_up = warm_up}, row.latency);
      return 100 * out.most_idle() / out.makespan;
    };
    SCOPED_TRACE(row.latency);
    constexpr double kDigit = 0.05 + 1e-9;  // given to one digit
    EXPECT_NEAR(share("gpipe"), row.gpipe, kDigit);
    EXPECT_NEAR(share("1f1b"), row.one, kDigit);
    EXPECT_NEAR(share("1f1b", 2), row.eager, kDigit);
    EXPECT_NEAR(share("zb-h1"), row.h1, kDigit);
    EXPECT_NEAR(share("zb-h2"), row.h2, kDigit);
    EXPECT_NEAR(share("interleaved"), row.interleaved, kDigit);
    EXPECT_NEAR(share("zb-v"), row.v, kDigit);
  }
}

}  // namespace
}  // namespace weft
