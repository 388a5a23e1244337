// Asynchronous schedules: golden timetables, which version of its weights each action uses,
// PipeDream's closed forms, and what is refused.
//
// A timetable is drawn in lock step as in conformance_test.cc; "*" is an update of weights, which
// takes a slot here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "plan/asynchronous.h"
#include "plan/encode.h"
#include "schedule/check.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

Schedule made(std::string_view name, ScheduleSizes sizes) {
  const ScheduleKind* kind = find_schedule(name);
  EXPECT_NE(kind, nullptr) << name;
  if (!kind) return {};
  Result<Schedule> schedule = kind->make(sizes);
  EXPECT_TRUE(schedule.ok()) << name << ": " << schedule.status().text();
  return schedule.ok() ? schedule.take() : Schedule();
}

// Stages form a chain.
std::string play(const Schedule& schedule) {
  std::vector<std::string> rows(schedule.rows.size());
  std::vector<size_t> next(schedule.rows.size(), 0);
  std::map<std::string, size_t> done;  // slot after which the result is there
  const auto there = [&](int32_t stage, Kind kind, int32_t micro_batch, size_t now) {
    const auto found = done.find(Action{stage, kind, micro_batch}.text());
    return found != done.end() && found->second <= now;
  };
  for (bool moved = true; moved;) {
    moved = false;
    const size_t now = rows[0].size();
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r] += '.';
      if (next[r] == schedule.rows[r].size()) continue;
      const Action& a = schedule.rows[r][next[r]];
      if (a.kind == Kind::F && a.stage > 0 && !there(a.stage - 1, Kind::F, a.micro_batch, now))
        continue;
      if (a.kind == Kind::B && a.stage + 1 < schedule.stages &&
          !there(a.stage + 1, Kind::B, a.micro_batch, now))
        continue;
      rows[r].back() = a.kind == Kind::O
                           ? '*'
                           : static_cast<char>((a.kind == Kind::F ? '0' : 'a') + a.micro_batch);
      done[a.text()] = now + 1;
      ++next[r];
      moved = true;
    }
  }
  std::string out;
  for (auto& row : rows)
    out += row.substr(0, row.size() - 1) + "\n";  // without the slot in which no rank moved
  return out;
}

std::vector<StageEdge> chain(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  return edges;
}

std::vector<WeightVersions> versions(const Schedule& schedule, bool vertical_sync = false) {
  auto out = weight_versions(schedule, vertical_sync);
  EXPECT_TRUE(out.ok()) << out.status().text();
  return out.ok() ? out.take() : std::vector<WeightVersions>(static_cast<size_t>(schedule.stages));
}

TEST(Golden, Pipedream) {
  EXPECT_EQ(made("pipedream", {.ranks = 3, .micro_batches = 1, .segment = 4}).text(),
            "0F0 0F1 0F2 0B0 0O0 0F3 0B1 0O1 0B2 0O2 0B3 0O3\n"
            "1F0 1F1 1B0 1O0 1F2 1B1 1O1 1F3 1B2 1O2 1B3 1O3\n"
            "2F0 2B0 2O0 2F1 2B1 2O1 2F2 2B2 2O2 2F3 2B3 2O3\n");
  EXPECT_EQ(play(made("pipedream", {.ranks = 4, .micro_batches = 1, .segment = 8})),
            "0123...a*4b*5c*6d*7e*.f*.g*.h*\n"
            ".012..a*3b*4c*5d*6e*7f*.g*.h*.\n"
            "..01.a*2b*3c*4d*5e*6f*7g*.h*..\n"
            "...0a*1b*2c*3d*4e*5f*6g*7h*...\n");
  EXPECT_EQ(play(made("pipedream", {.ranks = 1, .micro_batches = 1, .segment = 3})), "0a*1b*2c*\n");
}

TEST(Golden, Pipedream2bw) {
  EXPECT_EQ(made("pipedream-2bw", {.ranks = 2, .micro_batches = 2, .segment = 3}).text(),
            "0F0 0F1 0B0 0F2 0B1 0O0 0F3 0B2 0F4 0B3 0O1 0F5 0B4 0B5 0O2\n"
            "1F0 1B0 1F1 1B1 1F2 1O0 1B2 1F3 1B3 1F4 1O1 1B4 1F5 1B5 1O2\n");
  EXPECT_EQ(play(made("pipedream-2bw", {.ranks = 3, .micro_batches = 3, .segment = 3})),
            "012..a3b4c*5d6e7f*8g.h.i*\n"
            ".01.a2b3c*4d5e6f*7g8h.i*.\n"
            "..0a1b2c3*d4e5f6*g7h8i*..\n");
}

TEST(Versions, OfPipedreamAreAsManyAsThePaperSays) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t k = 1; k <= 20; ++k)
      for (bool vertical : {false, true}) {
        SCOPED_TRACE(cat("p ", p, " K ", k, vertical ? " vertical sync" : ""));
        const Schedule schedule = made("pipedream", {.ranks = p, .micro_batches = 1, .segment = k});
        const PipedreamNumbers paper =
            pipedream_numbers(std::vector<int32_t>(static_cast<size_t>(p), 1));
        EXPECT_EQ(paper.noam, p);
        const auto of = versions(schedule, vertical);
        for (int32_t s = 0; s < p; ++s) {
          const auto i = static_cast<size_t>(s);
          EXPECT_EQ(paper.warm_up[i], p - 1 - s);
          const int32_t delay = paper.warm_up[vertical ? 0 : i];
          for (int32_t u = 0; u < k; ++u)
            EXPECT_EQ(of[i].of_update[static_cast<size_t>(u)], std::max(0, u - delay));
          EXPECT_EQ(of[i].count, std::min(delay, k - 1) + 1);
          if (k >= p) {
            EXPECT_EQ(of[i].count, paper.versions[vertical ? 0 : i]);
          }
        }
      }
}

TEST(Versions, OfDoubleBufferingAreTwoEverywhere) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = p; m <= p + 5; ++m)
      for (int32_t k = 1; k <= 6; ++k)
        for (bool vertical : {false, true}) {
          SCOPED_TRACE(cat("p ", p, " m ", m, " K ", k));
          for (const WeightVersions& of :
               versions(made("pipedream-2bw", {.ranks = p, .micro_batches = m, .segment = k}),
                        vertical)) {
            for (int32_t u = 0; u < k; ++u)
              EXPECT_EQ(of.of_update[static_cast<size_t>(u)], std::max(0, u - 1));
            EXPECT_EQ(of.count, std::min(k, 2));
          }
        }
}

TEST(Numbers, OfReplicatedStages) {
  const auto check = [](const std::vector<int32_t>& replicas, const std::vector<int32_t>& warm_up,
                        int32_t noam) {
    const PipedreamNumbers n = pipedream_numbers(replicas);
    EXPECT_EQ(n.warm_up, warm_up);
    EXPECT_EQ(n.noam, noam);
    EXPECT_EQ(n.versions.front(), noam);
    int32_t left = std::accumulate(replicas.begin(), replicas.end(), 0);
    for (size_t s = 0; s < replicas.size(); ++s) {
      EXPECT_EQ(n.versions[s], (left + replicas[s] - 1) / replicas[s]);
      left -= replicas[s];
    }
  };
  check({1, 1, 1, 1}, {3, 2, 1, 0}, 4);
  check({3, 1}, {1, 0}, 2);
  check({15, 1}, {1, 0}, 2);
  check({2, 1, 1}, {1, 1, 0}, 2);
  check({7, 6, 3}, {2, 1, 0}, 3);
  check({1, 3}, {3, 0}, 4);
  check({4}, {0}, 1);
}

TEST(Conformance, AsynchronousSchedulesCanRun) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m : {1, p, p + 3})
      for (int32_t k : {1, 2, 5, 12})
        for (const ScheduleKind& kind : all_schedules()) {
          if (!kind.asynchronous) continue;
          SCOPED_TRACE(cat(kind.name, " p ", p, " m ", m, " K ", k));
          const Result<Schedule> schedule =
              kind.make({.ranks = p, .micro_batches = m, .segment = k});
          if (!schedule.ok()) {
            EXPECT_NE(schedule.status().text().find(cat("micro_batches is ", m)), std::string::npos)
                << schedule.status().text();
            continue;
          }
          EXPECT_EQ(schedule.value().micro_batches, m * k);
          EXPECT_EQ(schedule.value().updates, k);
          const Result<Schedule> read = parse_schedule(schedule.value().text());
          ASSERT_TRUE(read.ok()) << read.status().text();
          EXPECT_EQ(read.value(), schedule.value());
          for (int32_t slack = 0; slack < 3; ++slack) {
            const Result<Checked> checked = check_schedule(schedule.value(), chain(p), slack);
            ASSERT_TRUE(checked.ok()) << checked.status().text();
            for (int32_t s = 0; s < p; ++s)
              EXPECT_EQ(checked.value().peaks[static_cast<size_t>(s)].f_to_w,
                        std::min(p - s, m * k));
          }
        }
}

TEST(Sizes, AreRefusedByName) {
  const auto fault = [](std::string_view name, ScheduleSizes sizes) {
    return find_schedule(name)->make(sizes).status().text();
  };
  EXPECT_EQ(fault("pipedream", {.ranks = 2, .micro_batches = 8}),
            "schedule 'pipedream' makes an update of every micro-batch: micro_batches is 8, "
            "expected 1; 'pipedream-2bw' gathers several");
  EXPECT_EQ(
      fault("pipedream-2bw", {.ranks = 4, .micro_batches = 3}),
      "schedule 'pipedream-2bw' needs as many micro-batches per update as stages, 4, or more: "
      "micro_batches is 3");
  EXPECT_EQ(fault("pipedream", {.ranks = 2, .micro_batches = 1, .segment = 5000}),
            "segment is 5000 updates, expected 1 to 4096");
  EXPECT_EQ(
      fault("pipedream-2bw", {.ranks = 2, .micro_batches = 1 << 23}),
      "2 ranks and 134217728 micro-batches with 1 stage per rank make more than 67108864 actions");
  EXPECT_EQ(fault("pipedream-2bw", {.ranks = 2, .micro_batches = 1 << 23, .segment = 4096}),
            "4096 updates of 8388608 micro-batches are too many");
  EXPECT_EQ(fault("pipedream", {.ranks = 4, .micro_batches = 1, .segment = 16, .replicas = {3, 1}}),
            "segment is 16, expected a multiple of the 3 replicas of stage 0");
  EXPECT_EQ(made("pipedream", {.ranks = 4, .micro_batches = 1, .replicas = {3, 1}}).updates, 18);
  EXPECT_EQ(fault("pipedream-2bw", {.ranks = 4, .micro_batches = 2, .replicas = {3, 1}}),
            "schedule 'pipedream-2bw' makes the same updates at every stage: stage_replicas has 3 "
            "and 1, expected equal numbers");
  EXPECT_EQ(fault("pipedream-2bw", {.ranks = 6, .micro_batches = 1, .replicas = {3, 3}}),
            "schedule 'pipedream-2bw' needs as many micro-batches per update as stages, 2, or "
            "more: micro_batches is 1");
  EXPECT_EQ(fault("pipedream", {.ranks = 2, .micro_batches = 1, .warm_up = 2}),
            "warm_up is 2, but schedule 'pipedream' has a fixed warm-up, expected 1; "
            "use 1f1b");
}

std::string checker_fault(std::string_view text) {
  auto schedule = parse_schedule(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().text();
  if (!schedule.ok()) return {};
  return check_schedule(schedule.value(), chain(schedule.value().stages)).status().text();
}

TEST(Checker, RefusesUpdatesOutOfPlace) {
  EXPECT_EQ(checker_fault("0F0 0B0 0O0 0F1 0B1 0O1\n"), "");
  EXPECT_EQ(checker_fault("0F0 0F1 0B0 0B1 0O0\n"), "");  // one update of two micro-batches
  EXPECT_EQ(checker_fault("0F0 0B0 0F1 0B1 0O0 0O1\n"),
            "rank 0, action 4 (0O0): stage 0 ran 0B1 of the next update before, at action 3");
  EXPECT_EQ(checker_fault("0F0 0O0 0B0 0F1 0B1 0O1\n"),
            "rank 0, action 1 (0O0): stage 0 has not run 0B0");
  EXPECT_EQ(checker_fault("0F0 0I0 0O0 0W0\n"), "rank 0, action 2 (0O0): stage 0 has not run 0W0");
  EXPECT_EQ(checker_fault("0F0 0B0 0O0 0O0 0F1 0B1 0O1\n"),
            "rank 0, action 3 (0O0): stage 0 ran 0O0 before, at action 2");
  EXPECT_EQ(checker_fault("0F0 0B0 0O1 0F1 0B1 0O0\n"),
            "rank 0, action 2 (0O1): stage 0 has not run 0O0, and updates ascend");
  EXPECT_EQ(checker_fault("0F0 0B0 0O0 0F1 0B1 0O1\n1F0 1B0 1O0 1F1 1B1\n"),
            "rank 1, action 5 (end of row): stage 1 has not run 1O1");
  EXPECT_EQ(checker_fault("0F0 0F1 0B0 0B1 0F2 0B2 0O0 0O1\n"),
            "3 micro-batches cannot be divided into 2 equal updates");
  Schedule none = made("gpipe", {2, 2});
  none.rows[1].push_back({1, Kind::O, 0});
  EXPECT_EQ(check_schedule(none, chain(2)).status().text(),
            "rank 1, action 4 (1O0): the schedule is synchronous");
  Schedule beyond = made("pipedream", {.ranks = 2, .micro_batches = 1, .segment = 2});
  beyond.rows[0].push_back({0, Kind::O, 2});
  EXPECT_EQ(check_schedule(beyond, chain(2)).status().text(),
            "rank 0, action 6 (0O2): the updates are 0 to 1");
}

TEST(Checker, VerticalSyncNeedsTheVersionOfTheFirstStage) {
  // Stage 0 waits for each update, stage 1 runs ahead of its own.
  const Schedule ahead =
      parse_schedule("0F0 0B0 0O0 0F1 0B1 0O1\n1F0 1B0 1F1 1O0 1B1 1O1\n").take();
  ASSERT_TRUE(check_schedule(ahead, chain(2)).ok());
  EXPECT_EQ(versions(ahead)[1].of_update, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(weight_versions(ahead, true).status().text(),
            "vertical sync: stage 1 has 0 updates behind it when update 1 begins, stage 0 had 1");
}

std::shared_ptr<Model> chain_model(int layers, bool tied) {
  auto model = std::make_shared<Model>();
  NodeId x = model->add_input("x", {DType::f32, {1, 4}}, false).take();
  const NodeId y = model->add_input("y", {DType::f32, {1, 4}}, false).take();
  ParamId w = -1;
  for (int i = 0; i < layers; ++i) {
    if (w < 0 || !tied) w = model->add_param(cat("w", i), {4, 4}, {InitKind::normal, 0.5}).take();
    x = model->add_node(cat("l", i), find_op("linear"), {}, {{x}}, {{w}}).take();
  }
  (void)model->add_node("loss", find_op("mse"), {}, {{x, y}}, {}).take();
  EXPECT_TRUE(model->finish().ok());
  return model;
}

PlanConfig pipedream_config(int32_t ranks) {
  PlanConfig config;
  config.ranks = ranks;
  config.schedule = "pipedream";
  return config;
}

TEST(Refused, WhatNeedsAFlush) {
  const auto fault = [](const PlanConfig& config, bool tied = false) {
    return make_plan(chain_model(4, tied), config).status().text();
  };
  EXPECT_EQ(fault(pipedream_config(4)), "");
  PlanConfig config = pipedream_config(2);
  config.optim.clip = 1;
  EXPECT_EQ(fault(config),
            "plan: schedule 'pipedream' makes updates without a flush, so no global norm is known "
            "to clip to: clip is 1, expected 0");
  // The error about an invalid row names its place, whatever else is wrong.
  PlanConfig rows = config;
  rows.schedule_text = "0F0 0O0 0B0\n1F0 1B0 1O0\n";
  rows.micro_batches = 1;
  EXPECT_EQ(fault(rows),
            "plan: schedule of mode train: rank 0, action 1 (0O0): stage 0 has not run 0B0");
  EXPECT_EQ(fault(pipedream_config(2), true),
            "plan: schedule 'pipedream' updates without a flush, and stages 0 and 1 use different "
            "versions of the tied parameter 'w0': vertical_sync is 0, expected 1");
  EXPECT_EQ(fault(pipedream_config(1), true), "");  // within a stage nothing stands in the way
  config = pipedream_config(2);
  config.schedule = "1f1b";
  config.segment = 4;
  EXPECT_EQ(fault(config), "plan: schedule '1f1b' is synchronous: segment is 4, expected 0");
  config.segment = 0;
  config.vertical_sync = true;
  EXPECT_EQ(fault(config),
            "plan: schedule '1f1b' is synchronous: vertical sync is for asynchronous schedules");
  config = pipedream_config(1);
  config.schedule_text = "0F0 1F0 1B0 0B0 0O0 1O0\n";
  EXPECT_EQ(
      fault(config),
      "plan: the schedule in schedule_text is asynchronous, which needs one stage per rank: there "
      "are 2 stages on 1 ranks");
}

TEST(Plan, SaysWhatTheSegmentIsAndCountsVersionsAsBytes) {
  const auto model = chain_model(4, false);
  const auto plan = make_plan(model, pipedream_config(4)).take();
  EXPECT_EQ(plan->config.segment, kDefaultSegment);
  EXPECT_EQ(plan->mode(Mode::train).schedule.micro_batches, kDefaultSegment);
  PlanConfig synchronous = pipedream_config(4);
  synchronous.schedule = "1f1b";
  const auto other = make_plan(model, synchronous).take();
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(plan->versions[r].count, 4 - static_cast<int32_t>(r));
    EXPECT_EQ(plan->versions[r].stride, 64);
    EXPECT_EQ(plan->permanent_bytes[r] - other->permanent_bytes[r],
              (plan->versions[r].count - 1) * 64);
  }
}

TEST(Plan, OfAWrittenScheduleIsThatOfItsName) {
  const auto model = chain_model(4, false);
  PlanConfig config = pipedream_config(3);
  config.segment = 5;
  const auto named = make_plan(model, config).take();
  config.schedule_text = named->mode(Mode::train).schedule.text();
  config.segment = 0;
  const auto written = make_plan(model, config).take();
  EXPECT_EQ(written->hash, named->hash);
  EXPECT_EQ(written->config.segment, 5);
  const auto sent = decode_config(encode_config(named->config));
  ASSERT_TRUE(sent.ok()) << sent.status().text();
  EXPECT_EQ(make_plan(model, sent.value()).take()->hash, named->hash);
  config.vertical_sync = true;
  EXPECT_NE(make_plan(model, config).take()->hash.settings, named->hash.settings);
  config.segment = 4;
  EXPECT_EQ(make_plan(model, config).status().text(),
            "plan: the schedule is written for 5 updates, the plan has 4");
}

}  // namespace
}  // namespace weft
