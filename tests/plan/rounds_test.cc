// PipeDream and PipeDream-2BW with replicated stages: timetables, versions of the weights, and what
// the checker refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "plan/asynchronous.h"
#include "schedule/check.h"

namespace weft {
namespace {

Schedule made(const ScheduleSizes& sizes, const char* name = "pipedream") {
  Result<Schedule> schedule = find_schedule(name)->make(sizes);
  EXPECT_TRUE(schedule.ok()) << schedule.status().text();
  return schedule.ok() ? schedule.take() : Schedule();
}

std::vector<StageEdge> chain(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  return edges;
}

TEST(Golden, PipedreamWithReplicas) {
  EXPECT_EQ(made({.ranks = 3, .micro_batches = 1, .segment = 4, .replicas = {2, 1}}).text(),
            "0F0 0F2 0B0 0O0 0B2 0O1\n"
            "0F1 0F3 0B1 0O0 0B3 0O1\n"
            "1F0 1B0 1O0 1F1 1B1 1O1 1F2 1B2 1O2 1F3 1B3 1O3\n");
  EXPECT_EQ(made({.ranks = 3, .micro_batches = 1, .segment = 4, .replicas = {1, 2}}).text(),
            "0F0 0F1 0F2 0B0 0O0 0F3 0B1 0O1 0B2 0O2 0B3 0O3\n"
            "1F0 1B0 1O0 1F2 1B2 1O1\n"
            "1F1 1B1 1O0 1F3 1B3 1O1\n");
  EXPECT_EQ(made({.ranks = 2, .micro_batches = 1, .segment = 4, .replicas = {1, 1}}),
            made({.ranks = 2, .micro_batches = 1, .segment = 4}));
}

TEST(Golden, Pipedream2bwWithReplicas) {
  EXPECT_EQ(
      made({.ranks = 4, .micro_batches = 2, .segment = 4, .replicas = {2, 2}}, "pipedream-2bw")
          .text(),
      "0F0 0F2 0B0 0F4 0B2 0O0 0F6 0B4 0B6 0O1\n"
      "0F1 0F3 0B1 0F5 0B3 0O0 0F7 0B5 0B7 0O1\n"
      "1F0 1B0 1F2 1B2 1F4 1O0 1B4 1F6 1B6 1O1\n"
      "1F1 1B1 1F3 1B3 1F5 1O0 1B5 1F7 1B7 1O1\n");
}

// Each replica runs the row of a pipeline without replicas, for every r-th micro-batch.
TEST(Conformance, ReplicasOfPipedream2bwCanRun) {
  for (int32_t p = 1; p <= 4; ++p)
    for (int32_t r = 2; r <= 4; ++r)
      for (int32_t m = p; m <= p + 2; ++m)
        for (const int32_t updates : {1, 2, 5}) {
          const ScheduleSizes sizes{.ranks = p * r,
                                    .micro_batches = m,
                                    .segment = updates * r,
                                    .replicas = std::vector<int32_t>(static_cast<size_t>(p), r)};
          const Schedule schedule = made(sizes, "pipedream-2bw"),
                         one = made({.ranks = p, .micro_batches = m, .segment = updates},
                                    "pipedream-2bw");
          SCOPED_TRACE(schedule.text());
          for (int32_t rank = 0; rank < p * r; ++rank) {
            std::vector<Action> row = one.rows[static_cast<size_t>(rank / r)];
            for (Action& action : row)
              if (action.kind != Kind::O) action.micro_batch = action.micro_batch * r + rank % r;
            EXPECT_EQ(schedule.rows[static_cast<size_t>(rank)], row);
          }
          for (int32_t slack = 0; slack < 2; ++slack) {
            const auto checked = check_schedule(schedule, chain(p), slack);
            ASSERT_TRUE(checked.ok()) << checked.status().text();
          }
          for (const WeightVersions& of : weight_versions(schedule, false).take()) {
            EXPECT_EQ(of.round, m * r);
            EXPECT_EQ(of.count, std::min(updates, 2));
            for (int32_t u = 0; u < updates; ++u)
              EXPECT_EQ(of.of_update[static_cast<size_t>(u)], std::max(0, u - 1));
          }
        }
}

// All lists of up to four stages with up to four ranks each.
std::vector<std::vector<int32_t>> lists_of_replicas() {
  std::vector<std::vector<int32_t>> out;
  for (int32_t stages = 1; stages <= 4; ++stages)
    for (int32_t i = 0; i < 1 << (2 * stages); ++i) {
      std::vector<int32_t> list;
      for (int32_t s = 0; s < stages; ++s) list.push_back(1 + (i >> (2 * s)) % 4);
      if (*std::max_element(list.begin(), list.end()) > 1) out.push_back(list);
    }
  return out;
}

TEST(Conformance, StagesWithReplicasCanRun) {
  for (const std::vector<int32_t>& replicas : lists_of_replicas()) {
    int32_t round = 1;
    for (const int32_t r : replicas) round = std::lcm(round, r);
    const int32_t ranks = std::accumulate(replicas.begin(), replicas.end(), 0),
                  stages = static_cast<int32_t>(replicas.size());
    const PipedreamNumbers paper = pipedream_numbers(replicas);
    for (const int32_t segment : {round, 2 * round, 5 * round}) {
      const Schedule schedule =
          made({.ranks = ranks, .micro_batches = 1, .segment = segment, .replicas = replicas});
      SCOPED_TRACE(schedule.text());
      ASSERT_EQ(schedule.ranks(), ranks);
      for (int32_t slack = 0; slack < 2; ++slack) {
        const auto checked = check_schedule(schedule, chain(stages), slack);
        ASSERT_TRUE(checked.ok()) << checked.status().text();
      }
      const auto of = weight_versions(schedule, false).take();
      for (size_t s = 0; s < replicas.size(); ++s) {
        const int32_t rounds = segment / replicas[s];
        ASSERT_EQ(of[s].of_update.size(), static_cast<size_t>(rounds));
        EXPECT_EQ(of[s].round, replicas[s]);
        EXPECT_EQ(of[s].count, std::min(paper.versions[s], rounds));
        for (int32_t u = 0; u < rounds; ++u)
          EXPECT_EQ(of[s].of_update[static_cast<size_t>(u)], std::max(0, u - paper.warm_up[s]));
      }
      const auto evaluation = make_forward(schedule, segment + 1);
      ASSERT_TRUE(evaluation.ok());
      EXPECT_TRUE(check_schedule(evaluation.value(), chain(stages)).ok());
    }
  }
}

TEST(Checker, RefusesReplicasOutOfStep) {
  const Schedule sound = made({.ranks = 3, .micro_batches = 1, .segment = 4, .replicas = {2, 1}});
  const auto fault = [&sound](size_t rank, const char* row) {
    Schedule schedule = sound;
    Schedule other = parse_schedule(row).take();
    schedule.rows[rank] = other.rows.front();
    return check_schedule(schedule, chain(2)).status().text();
  };
  EXPECT_EQ(fault(0, "0F0 0F2 0B0 0O0 0B2 0O1"), "");
  EXPECT_EQ(fault(0, "0F1 0F2 0B0 0O0 0B2 0O1"),
            "rank 0, action 0 (0F1): micro-batch 1 of stage 0 belongs to rank 1");
  EXPECT_EQ(fault(0, "0F0 0B0 0F2 0O0 0B2 0O1"), "");
  EXPECT_EQ(fault(1, "0F1 0F3 0B1 0O0 0B3"),
            "rank 1, action 5 (end of row): stage 0 has not run 0O1");
  EXPECT_EQ(fault(1, "0F1 0B1 0O0 0F3 0O0"),
            "rank 1, action 4 (0O0): stage 0 ran 0O0 before, at action 2");
  EXPECT_EQ(fault(1, "0F1 0F3 0B1 0O0 0O1"), "rank 1, action 4 (0O1): stage 0 has not run 0B3");
  // Stage 1 waits for 0F2, behind an update that waits for 0B1, which stage 1 has not answered.
  Schedule cycle = sound;
  cycle.rows = parse_schedule("0F0 0B0 0O0 0F2 0B2 0O1").take().rows;
  cycle.rows.push_back(sound.rows[1]);
  cycle.rows.push_back({{1, Kind::F, 0},
                        {1, Kind::B, 0},
                        {1, Kind::O, 0},
                        {1, Kind::F, 1},
                        {1, Kind::F, 2},
                        {1, Kind::B, 1},
                        {1, Kind::O, 1},
                        {1, Kind::B, 2},
                        {1, Kind::O, 2},
                        {1, Kind::F, 3},
                        {1, Kind::B, 3},
                        {1, Kind::O, 3}});
  EXPECT_EQ(
      check_schedule(cycle, chain(2)).status().text(),
      "rank 0, action 2 (0O0): waits in a cycle: for 0B1 (rank 1, action 2), which waits for "
      "1B1 (rank 2, action 5), behind 1F2 (action 4), which waits for 0F2 (rank 0, action 3), "
      "behind 0O0 (action 2)");
  Schedule wrong = sound;
  wrong.replicas = {1, 1};
  EXPECT_EQ(check_schedule(wrong, chain(2)).status().text(),
            "stage 1 has 1 replicas from rank 2 on, expected the ranks from 1 to 2");
  wrong = sound;
  wrong.updates = 2;
  EXPECT_EQ(check_schedule(wrong, chain(2)).status().text(),
            "stages with unlike numbers of replicas take updates of one micro-batch each");
}

}  // namespace
}  // namespace weft
