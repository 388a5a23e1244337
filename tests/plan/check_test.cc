// The checker against hand-made faults, against a slow simulator that knows nothing of its method,
// and against the clock.
#include "schedule/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/text.h"
#include "random_schedules.h"
#include "schedule/deadlock.h"
#include "simulator.h"
#include "support/cases.h"

namespace weft {
namespace {

std::vector<StageEdge> chain(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  return edges;
}

std::string fault_of(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  const Result<Checked> checked = check_schedule(schedule, edges);
  EXPECT_FALSE(checked.ok()) << schedule.text();
  if (checked.ok()) return "";
  EXPECT_EQ(checked.status().code(), Code::invalid);
  return checked.status().text();
}

std::string fault_of(std::string_view text) {
  const Result<Schedule> schedule = parse_schedule(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().text();
  return schedule.ok() ? fault_of(schedule.value(), chain(schedule.value().stages)) : "";
}

TEST(CheckStructure, NamesRankPositionAndReason) {
  EXPECT_EQ(fault_of("0F0 0B0\n1B0 1F0\n"), "rank 1, action 0 (1B0): stage 1 has not run 1F0");
  EXPECT_EQ(fault_of("0F0 0W0 0I0\n"), "rank 0, action 1 (0W0): stage 0 has not run 0I0");
  EXPECT_EQ(fault_of("0F0 0B0 0F0\n"),
            "rank 0, action 2 (0F0): stage 0 ran 0F0 before, at action 0");
  EXPECT_EQ(fault_of("0F0 0B0 0I0 0W0\n"),
            "rank 0, action 2 (0I0): stage 0 ran 0B0 before, at action 1");
  EXPECT_EQ(fault_of("0F0 0I0 0B0\n"),
            "rank 0, action 2 (0B0): stage 0 ran 0I0 before, at action 1");
  EXPECT_EQ(fault_of("0F0 0B0 0W0\n"),
            "rank 0, action 2 (0W0): stage 0 ran 0B0 before, at action 1");
  EXPECT_EQ(fault_of("0F0 0B0\n1F0 1B0 0F0\n"),
            "rank 1, action 2 (0F0): stage 0 belongs to rank 0");
  EXPECT_EQ(fault_of("0F0 0I0 0F1 0B1\n"),
            "rank 0, action 3 (0B1): stage 0 has not run 0W0, and micro-batches ascend");
  EXPECT_EQ(fault_of("0F0 0F1 0B1 0B0\n"),
            "rank 0, action 2 (0B1): stage 0 has not run 0B0, and micro-batches ascend");
  EXPECT_EQ(fault_of("0F0 0F1 0I1 0W1 0I0 0W0\n"),
            "rank 0, action 2 (0I1): stage 0 has not run 0I0, and micro-batches ascend");
  EXPECT_EQ(fault_of("0F0 0F1 0I0 0W0\n"),
            "rank 0, action 4 (end of row): stage 0 has not run 0I1");
  EXPECT_EQ(fault_of("0F0 0F1 0B0\n"), "rank 0, action 3 (end of row): stage 0 has not run 0B1");
  EXPECT_EQ(fault_of("0F1 0F0 0B0 0B1\n"),
            "rank 0, action 0 (0F1): stage 0 has not run 0F0, and micro-batches ascend");
  EXPECT_EQ(fault_of("0F0 0F1 0I0 0I1 0W1 0W0\n"),
            "rank 0, action 4 (0W1): stage 0 has not run 0W0, and micro-batches ascend");
  EXPECT_EQ(fault_of("0F0 0F1 0B0 0B1\n1F0 1B0\n"),
            "rank 1, action 2 (end of row): stage 1 has not run 1F1");
  EXPECT_EQ(fault_of("0F0 0B0\n1F0\n"), "rank 1, action 1 (end of row): stage 1 has not run 1I0");
  EXPECT_EQ(fault_of("0F0 0I0\n"), "rank 0, action 2 (end of row): stage 0 has not run 0W0");
}

TEST(CheckStructure, RefusesWhatNoTextCanSay) {
  const Schedule good = make_1f1b({2, 2}).take();
  const auto with = [&](auto&& change) {
    Schedule schedule = good;
    change(schedule);
    return fault_of(schedule, {});
  };
  EXPECT_EQ(with([](Schedule& s) { s.stages = 0; }), "stages is 0, expected 1 or more");
  EXPECT_EQ(with([](Schedule& s) { s.micro_batches = -1; }),
            "micro_batches is -1, expected 1 or more");
  EXPECT_EQ(with([](Schedule& s) { s.stages = 3; }),
            "rank_of_stage has 2 entries, expected one for each of 3 stages");
  EXPECT_EQ(with([](Schedule& s) { s.rank_of_stage[1] = 2; }),
            "stage 1 is on rank 2, expected one of 2 ranks");
  EXPECT_EQ(with([](Schedule& s) { s.rows.clear(); }),
            "stage 0 is on rank 0, expected one of 0 ranks");
  EXPECT_EQ(with([](Schedule& s) { s.rows.emplace_back(); }),
            "rank 2 has no action, expected at least one");
  EXPECT_EQ(with([](Schedule& s) { s.rows[0][1].stage = 2; }),
            "rank 0, action 1 (2F1): the stages are 0 to 1");
  EXPECT_EQ(with([](Schedule& s) { s.rows[0][1].stage = -1; }),
            "rank 0, action 1 (-1F1): the stages are 0 to 1");
  EXPECT_EQ(with([](Schedule& s) { s.rows[0][1].micro_batch = 2; }),
            "rank 0, action 1 (0F2): the micro-batches are 0 to 1");
  EXPECT_EQ(with([](Schedule& s) { s.rows[0][1].micro_batch = -7; }),
            "rank 0, action 1 (0F-7): the micro-batches are 0 to 1");
  EXPECT_EQ(with([](Schedule& s) { s.rows[0][1].kind = Kind{9}; }),
            "rank 0, action 1 (0?1): unknown kind of action");
  EXPECT_EQ(with([](Schedule& s) { s.forward_only = true; }),
            "rank 0, action 2 (0B0): the schedule is forward only");
  // Far more micro-batches than actions: refused before memory is taken for them.
  EXPECT_EQ(with([](Schedule& s) { s.micro_batches = 2147483647; }),
            "rank 0, action 4 (end of row): stage 0 has not run 0F2");
}

TEST(CheckEdges, NamesTheEdge) {
  const Schedule schedule = make_1f1b({3, 2}).take();
  EXPECT_EQ(fault_of(schedule, {{.from = 0, .to = 1}, {.from = 1, .to = 1}}),
            "edge 1 (stage 1 to 1): expected a tensor to travel to a later stage");
  EXPECT_EQ(fault_of(schedule, {{.from = 2, .to = 1}}),
            "edge 0 (stage 2 to 1): expected a tensor to travel to a later stage");
  EXPECT_EQ(fault_of(schedule, {{.from = 0, .to = 3}}),
            "edge 0 (stage 0 to 3): the stages are 0 to 2");
  EXPECT_EQ(fault_of(schedule, {{.from = -1, .to = 2}}),
            "edge 0 (stage -1 to 2): the stages are 0 to 2");
  EXPECT_EQ(fault_of(schedule, {{.from = 0, .to = 1, .forward_until = Kind::B}}),
            "edge 0 (stage 0 to 1): forward_until is B, expected F, R, I or W");
  EXPECT_EQ(fault_of(schedule, {{.from = 0, .to = 1, .gradient_until = Kind::F}}),
            "edge 0 (stage 0 to 1): gradient_until is F, expected I or W");
  EXPECT_TRUE(
      check_schedule(schedule, {{.from = 0, .to = 1, .gradient = false, .gradient_until = Kind::F}})
          .ok());
  EXPECT_EQ(check_schedule(schedule, {}, -1).status().text(), "slack is -1, expected 0 or more");
}

TEST(CheckDeadlock, NamesTheCycle) {
  // Rank 0 waits for the gradient of micro-batch 0 before it sends micro-batch 1; rank 1 waits for
  // both forwards first.
  EXPECT_EQ(fault_of("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n"),
            "rank 0, action 1 (0B0): waits in a cycle: for 1B0 (rank 1, action 2), behind 1F1 "
            "(action 1), which waits for 0F1 "
            "(rank 0, action 2), behind 0B0 (action 1)");
  // Chunks: rank 0 runs the last stage before the first.
  EXPECT_EQ(fault_of("2F0 0F0 2B0 0B0\n1F0 1B0\n"),
            "rank 0, action 0 (2F0): waits in a cycle: for 1F0 (rank 1, action 0), which waits for "
            "0F0 (rank 0, action 1), "
            "behind 2F0 (action 0)");
  // One rank waits for itself.
  EXPECT_EQ(fault_of("1F0 0F0 1B0 0B0\n"),
            "rank 0, action 0 (1F0): waits in a cycle: for 0F0 (rank 0, action 1), behind 1F0 "
            "(action 0)");
}

TEST(CheckDeadlock, LongCyclesAreCutShort) {
  // Every rank hosts stages r and r + p and runs the later one first; edges lead round.
  const int32_t p = 40;
  Schedule schedule{
      .stages = 2 * p, .micro_batches = 1, .forward_only = true, .rank_of_stage = {}, .rows = {}};
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s < 2 * p; ++s) schedule.rank_of_stage.push_back(s % p);
  for (int32_t r = 0; r < p; ++r) {
    schedule.rows.push_back({{p + r, Kind::F, 0}, {r, Kind::F, 0}});
    edges.push_back({.from = (r + 1) % p, .to = p + r});
  }
  const std::string fault = fault_of(schedule, edges);
  EXPECT_NE(fault.find("rank 0, action 0 (40F0): waits in a cycle: for 1F0 (rank 1, action 1), "
                       "behind 41F0 (action 0), which "
                       "waits for 2F0"),
            std::string::npos)
      << fault;
  EXPECT_NE(fault.find(", and on over 32 more ranks"), std::string::npos) << fault;
  EXPECT_LT(fault.size(), 800u);
}

TEST(CheckSlots, AreThoseOfTheReceiver) {
  // 1f1b, p 4, m 8: stage s keeps 4 - s micro-batches; one more slot as slack.
  const Schedule schedule = make_1f1b({4, 8}).take();
  const std::vector<StageEdge> edges = {
      {.from = 0, .to = 1},
      {.from = 0, .to = 1, .forward_until = Kind::I},
      {.from = 0, .to = 1, .forward_until = Kind::F, .gradient_until = Kind::I},
      {.from = 0, .to = 3, .gradient = false},
  };
  Result<Checked> checked = check_schedule(schedule, edges);
  ASSERT_TRUE(checked.ok()) << checked.status().text();
  const std::vector<EdgeSlots>& slots = checked.value().slots;
  EXPECT_EQ(slots[0].forward, 4);
  EXPECT_EQ(slots[0].gradient, 2);
  EXPECT_EQ(slots[1].forward, 4);
  EXPECT_EQ(slots[2].forward, 2);
  EXPECT_EQ(slots[2].gradient, 2);
  EXPECT_EQ(slots[3].forward, 2);
  EXPECT_EQ(slots[3].gradient, 0);

  // W put off: I and W part ways, and so do the slots. At most micro_batches of them, however
  // large the slack.
  const Result<Schedule> split =
      parse_schedule("0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2\n1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2\n");
  ASSERT_TRUE(split.ok());
  for (const int32_t slack : {0, 1, 2147483647}) {
    SCOPED_TRACE(slack);
    const auto at_most_3 = [&](int64_t held) {
      return static_cast<int32_t>(std::min<int64_t>(held + slack, 3));
    };
    checked =
        check_schedule(split.value(),
                       {{.from = 0, .to = 1, .forward_until = Kind::I, .gradient_until = Kind::W},
                        {.from = 0, .to = 1, .forward_until = Kind::W, .gradient_until = Kind::I}},
                       slack);
    ASSERT_TRUE(checked.ok()) << checked.status().text();
    EXPECT_EQ(checked.value().slots[0].forward, at_most_3(1));
    EXPECT_EQ(checked.value().slots[0].gradient, at_most_3(2));
    EXPECT_EQ(checked.value().slots[1].forward, at_most_3(3));
    EXPECT_EQ(checked.value().slots[1].gradient, at_most_3(1));
    EXPECT_EQ(checked.value().peaks[0].f_to_i, 3);
    EXPECT_EQ(checked.value().peaks[0].f_to_w, 3);
    EXPECT_EQ(checked.value().peaks[0].i_to_w, 2);
    EXPECT_EQ(checked.value().peaks[1].f_to_i, 1);
    EXPECT_EQ(checked.value().peaks[1].f_to_w, 3);
    EXPECT_EQ(checked.value().peaks[1].i_to_w, 3);
  }
}

TEST(CheckSlots, ForwardOnlyKeepsNothing) {
  const Result<Checked> checked =
      check_schedule(make_forward({3, 5}).take(), {{.from = 0, .to = 1}, {.from = 0, .to = 2}});
  ASSERT_TRUE(checked.ok()) << checked.status().text();
  for (const EdgeSlots& slots : checked.value().slots) {
    EXPECT_EQ(slots.forward, 2);
    EXPECT_EQ(slots.gradient, 0);
  }
  for (const StagePeaks& peaks : checked.value().peaks)
    EXPECT_EQ(peaks.f_to_i + peaks.f_to_w + peaks.i_to_w, 0);
}

void expect_equal(const Checked& checked, const Simulated& simulated) {
  ASSERT_EQ(checked.slots.size(), simulated.held.size());
  ASSERT_EQ(checked.peaks.size(), simulated.peaks.size());
  for (size_t e = 0; e < checked.slots.size(); ++e) {
    EXPECT_EQ(checked.slots[e].forward, simulated.held[e].forward) << "edge " << e;
    EXPECT_EQ(checked.slots[e].gradient, simulated.held[e].gradient) << "edge " << e;
  }
  for (size_t s = 0; s < checked.peaks.size(); ++s) {
    EXPECT_EQ(checked.peaks[s].f_to_i, simulated.peaks[s].f_to_i) << "stage " << s;
    EXPECT_EQ(checked.peaks[s].f_to_w, simulated.peaks[s].f_to_w) << "stage " << s;
    EXPECT_EQ(checked.peaks[s].i_to_w, simulated.peaks[s].i_to_w) << "stage " << s;
  }
}

std::string shown(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  std::string out = schedule.text();
  for (const StageEdge& edge : edges)
    out += cat(edge.from, " -> ", edge.to, edge.gradient ? " gradient " : " ",
               kind_letter(edge.forward_until), kind_letter(edge.gradient_until), "\n");
  return out;
}

TEST(CheckProperty, AcceptsWhatRanOnce) {
  for (uint64_t seed = 0; seed < 3000; seed += test::kEvery) {
    Dice dice(seed);
    const Case one = random_valid_case(dice);
    SCOPED_TRACE(cat("seed ", seed, "\n", shown(one.schedule, one.edges)));
    const Result<Checked> checked = check_schedule(one.schedule, one.edges, 0);
    ASSERT_TRUE(checked.ok()) << checked.status().text();
    const Simulated simulated = simulate(one.schedule, one.edges, checked.value().slots);
    ASSERT_TRUE(simulated.ran) << simulated.why;
    expect_equal(checked.value(), simulated);
    if (HasFailure()) return;
  }
}

// "rank 1, action 4 (1B0): ...", or a rank without any action.
bool names_rank_and_position(const std::string& text) {
  int rank = -1, action = -1, length = 0;
  if (std::sscanf(text.c_str(), "rank %d, action %d (%*[^)]): %n", &rank, &action, &length) == 2 &&
      length > 0)
    return text.size() > static_cast<size_t>(length);
  length = 0;
  std::sscanf(text.c_str(), "rank %d has no action, expected at least one%n", &rank, &length);
  return length > 0;
}

TEST(CheckProperty, CorruptedSchedulesAreJudgedAsTheSimulatorDoes) {
  int accepted = 0, malformed = 0, deadlocked = 0;
  for (uint64_t seed = 0; seed < 15000; seed += test::kEvery) {
    Dice dice(seed);
    Case one = random_valid_case(dice);
    for (uint32_t changes = 1 + dice.below(2); changes > 0; --changes) corrupt(one.schedule, dice);
    SCOPED_TRACE(cat("seed ", seed, "\n", shown(one.schedule, one.edges)));
    const int32_t slack = static_cast<int32_t>(dice.below(3));
    const Result<Checked> checked = check_schedule(one.schedule, one.edges, slack);
    std::vector<EdgeSlots> ample(one.edges.size(),
                                 {one.schedule.micro_batches, one.schedule.micro_batches});
    const Simulated simulated =
        simulate(one.schedule, one.edges, checked.ok() ? checked.value().slots : ample);
    ASSERT_EQ(checked.ok(), simulated.ran)
        << (checked.ok() ? simulated.why : checked.status().text());
    if (checked.ok()) {
      ++accepted;
    } else {
      ASSERT_TRUE(names_rank_and_position(checked.status().text())) << checked.status().text();
      const bool cycle = checked.status().text().find("waits in a cycle") != std::string::npos;
      ASSERT_EQ(cycle, simulated.well_formed) << checked.status().text();
      ++(cycle ? deadlocked : malformed);
    }
  }
  // All three fates are met often, or the test says nothing.
  EXPECT_GT(accepted, 1000 / test::kEvery);
  EXPECT_GT(deadlocked, 1000 / test::kEvery);
  EXPECT_GT(malformed, 5000 / test::kEvery);
}

// check_schedule always hands out enough slots; here they are any number, so grants decide too.
TEST(CheckProperty, TooFewSlotsStopTheProofAndTheSimulatorAlike) {
  int ran = 0, stood = 0;
  for (uint64_t seed = 0; seed < 10000; seed += test::kEvery) {
    Dice dice(seed);
    const Case one = random_valid_case(dice);
    SCOPED_TRACE(cat("seed ", seed, "\n", shown(one.schedule, one.edges)));
    const Result<Checked> least = check_schedule(one.schedule, one.edges, 0);
    ASSERT_TRUE(least.ok()) << least.status().text();
    std::vector<EdgeSlots> slots = least.value().slots;
    for (EdgeSlots& edge : slots) {
      if (edge.forward > 1 && dice.below(4) == 0) --edge.forward;
      if (edge.gradient > 1 && dice.below(4) == 0) --edge.gradient;
    }
    const Status proof = check_deadlock(one.schedule, one.edges, slots);
    const Simulated simulated = simulate(one.schedule, one.edges, slots);
    ASSERT_EQ(proof.ok(), simulated.ran) << proof.text() << simulated.why;
    // The slots without slack are the least that serve: one fewer anywhere and the schedule stands
    // still.
    bool fewer = false;
    for (size_t e = 0; e < slots.size(); ++e)
      if (const EdgeSlots& all = least.value().slots[e];
          slots[e].forward < all.forward || slots[e].gradient < all.gradient)
        fewer = true;
    ASSERT_EQ(proof.ok(), !fewer) << proof.text();
    ++(proof.ok() ? ran : stood);
  }
  EXPECT_GT(ran, 1000 / test::kEvery);
  EXPECT_GT(stood, 1000 / test::kEvery);
}

// Quadratic time would take minutes; the bound leaves room for a loaded machine and for sanitizers.
TEST(CheckSpeed, AThousandStagesAndThousandsOfMicroBatches) {
  const Schedule schedule = make_1f1b({1024, 4096}).take();
  std::vector<StageEdge> edges = chain(1024);
  edges.push_back({.from = 0, .to = 1023});
  const auto start = std::chrono::steady_clock::now();
  const Result<Checked> checked = check_schedule(schedule, edges);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(checked.ok()) << checked.status().text();
  EXPECT_EQ(checked.value().peaks[0].f_to_w, 1024);
  EXPECT_EQ(checked.value().peaks[1023].f_to_w, 1);
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1000));
  EXPECT_LT(seconds.count(), 30);
}

}  // namespace
}  // namespace weft
