// What every schedule of the table must hold: golden timetables, and that it can run at every size
// that it is made for.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "goldens.h"
#include "player.h"
#include "schedule/chain_time.h"
#include "schedule/check.h"

namespace weft {
namespace {

std::string lines(const std::vector<std::string>& rows) {
  std::string out;
  for (const auto& row : rows) out += row + "\n";
  return out;
}

TEST(Golden, EveryScheduleHasATimetable) {
  for (const ScheduleKind& kind : all_schedules())
    EXPECT_TRUE(kind.asynchronous ||
                std::any_of(goldens().begin(), goldens().end(),
                            [&](const Golden& g) { return g.name == kind.name; }))
        << "no golden timetable for schedule '" << kind.name << "'";
}

TEST(Golden, TimetablesAreAsDrawn) {
  for (const Golden& golden : goldens()) {
    const ScheduleKind* kind = find_schedule(golden.name);
    ASSERT_NE(kind, nullptr) << golden.name;
    const Result<Schedule> schedule = kind->make(golden.sizes);
    ASSERT_TRUE(schedule.ok()) << golden.name << ": " << schedule.status().text();
    EXPECT_EQ(lines(timetable(schedule.value())), lines(golden.rows))
        << golden.name << ", " << golden.sizes.ranks << " ranks, " << golden.sizes.micro_batches
        << " micro-batches";
  }
}

// A chain, and a skip from the first stage to every later one.
std::vector<StageEdge> chain_and_skips(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  for (int32_t s = 2; s < stages; ++s) edges.push_back({.from = 0, .to = s});
  return edges;
}

// Stages take 1 to 5 times as long as the fastest.
void expect_time_of_player(const Schedule& schedule) {
  ScheduleCosts costs{.latency = 0.25};
  for (int32_t s = 0; s < schedule.stages; ++s) {
    costs.forward.push_back(1 + s * 7 % 5);
    costs.input.push_back(1 + s * 3 % 5);
    costs.weight.push_back(1 + s * 2 % 5);
  }
  std::vector<ChainEdge> edges(static_cast<size_t>(schedule.stages) - 1, {.latency = 0.25});
  const double free = play(schedule, costs).makespan;
  EXPECT_EQ(chain_time(schedule, costs, edges), free);
  for (ChainEdge& edge : edges) edge.transfer = 0.5;
  EXPECT_GE(chain_time(schedule, costs, edges), schedule.ranks() == 1 ? free : free + 0.5);
}

TEST(ChainTime, WaitsForSlots) {
  const Schedule schedule = find_schedule("gpipe")->make({.ranks = 2, .micro_batches = 4}).value();
  const ScheduleCosts costs{.forward = {1, 1}, .input = {2, 4}, .weight = {4, 2}};
  const auto seconds = [&](int32_t forward, int32_t gradient) {
    return chain_time(schedule, costs, {{.forward_slots = forward, .gradient_slots = gradient}});
  };
  // Forwards end at 5, gradients arrive from 11 on every 6 seconds, and take 6.
  EXPECT_EQ(seconds(0, 0), 35);
  EXPECT_EQ(seconds(4, 4), 35);
  EXPECT_EQ(seconds(2, 0), INFINITY);  // the slots of forwards are free after their gradients
}

void expect_runs(const ScheduleKind& kind, const ScheduleSizes& sizes) {
  SCOPED_TRACE(cat(kind.name, " p ", sizes.ranks, " m ", sizes.micro_batches, " v ", sizes.chunks,
                   " g ", sizes.group, " w ", sizes.warm_up));
  const Result<Schedule> schedule = kind.make(sizes);
  ASSERT_TRUE(schedule.ok()) << schedule.status().text();
  EXPECT_EQ(schedule.value().ranks(), sizes.ranks);
  EXPECT_EQ(schedule.value().micro_batches, sizes.micro_batches);
  EXPECT_EQ(schedule.value().stages, sizes.ranks * chunks_of(kind, sizes.chunks).value());
  expect_time_of_player(schedule.value());
  for (int32_t slack = 0; slack < 3; slack += 2) {
    const Result<Checked> checked =
        check_schedule(schedule.value(), chain_and_skips(schedule.value().stages), slack);
    EXPECT_TRUE(checked.ok()) << checked.status().text();
  }
  EXPECT_TRUE(play(schedule.value()).ran);
}

bool takes(const ScheduleKind& kind, ScheduleSizes sizes) { return kind.make(sizes).ok(); }

TEST(Conformance, CanRunAtEverySize) {
  for (const ScheduleKind& kind : all_schedules()) {
    if (kind.asynchronous) continue;  // see async_test.cc
    const bool grouped = takes(kind, {.group = 1}), warmed = takes(kind, {.warm_up = 2});
    const int32_t most_chunks = kind.chunks ? 0 : 4;
    for (int32_t p = 1; p <= 8; ++p)
      for (int32_t m = 1; m <= 20; ++m)
        for (int32_t v = 0; v <= most_chunks; ++v) {
          expect_runs(kind, {.ranks = p, .micro_batches = m, .chunks = v});
          if (grouped)
            for (const int32_t g : {1, 2, 3, p + 1, m}) expect_runs(kind, {p, m, v, g});
          if (warmed)
            for (const int32_t w : {1, 2, 3, 2147483647})
              expect_runs(kind, {.ranks = p, .micro_batches = m, .warm_up = w});
        }
  }
}

TEST(Conformance, FewActionsOfManyRanks) {
  for (const ScheduleKind& kind : all_schedules())
    for (const int32_t p : {17, 33, 64})
      for (const int32_t m : {1, 7, p, 2 * p + 1})
        if (!kind.asynchronous) expect_runs(kind, {.ranks = p, .micro_batches = m});
}

// Quadratic time would take minutes for each; the bound leaves room for a loaded machine and for
// sanitizers.
TEST(Conformance, AThousandStagesTakeNoTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const ScheduleKind& kind : all_schedules()) {
    if (kind.asynchronous) continue;
    const int32_t chunks = chunks_of(kind, 0).value();
    const Result<Schedule> schedule = kind.make({.ranks = 1024 / chunks, .micro_batches = 512});
    ASSERT_TRUE(schedule.ok()) << schedule.status().text();
    EXPECT_EQ(schedule.value().stages, 1024);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 30);
}

// V-shaped placement: rank 0 has the first stage and the last.
TEST(Conformance, StagesLieOnTheirRanks) {
  for (const ScheduleKind& kind : all_schedules()) {
    if (kind.asynchronous) continue;
    const Schedule schedule = kind.make({.ranks = 3, .micro_batches = 2}).take();
    const std::vector<int32_t> straight = {0, 1, 2}, round = {0, 1, 2, 0, 1, 2},
                               v = {0, 1, 2, 2, 1, 0};
    EXPECT_EQ(schedule.rank_of_stage, kind.chunks == 1   ? straight
                                      : kind.chunks == 2 ? v
                                                         : round)
        << kind.name;
  }
}

}  // namespace
}  // namespace weft
