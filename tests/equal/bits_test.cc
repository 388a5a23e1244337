// Same bits on real kernels: one loss series and one digest over ranks, schedules, ties, drivers
// and threads.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "graph/presets.h"
#include "runtime/run.h"
#include "support/cases.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

using test::Outcome;
using test::schedules_for;
using test::small_gpt;
using test::train;

PlanConfig base_config() { return test::small_gpt_config(); }

// A preset, or "" for small_gpt().
struct Choice {
  const char* preset;
  bool packed = false;
};
class Models : public testing::TestWithParam<Choice> {};

void PrintTo(const Choice& choice, std::ostream* out) {
  *out << choice.preset << (choice.packed ? ", packed" : "");
}

constexpr Choice kPresets[] = {
    {""},
    {"llama:blocks=3,width=16,heads=4,key_heads=2,head_size=4,inner=24,context=12,vocabulary=37"},
    {"qwen3:blocks=3,width=16,heads=4,key_heads=1,head_size=6,inner=24,context=12,vocabulary=37"},
    {"phi3:blocks=3,width=16,heads=4,key_heads=2,head_size=4,inner=24,context=12,vocabulary=37"},
    {"gpt_neox:blocks=3,width=16,heads=2,inner=24,context=12,vocabulary=37"},
    {"gemma2:blocks=3,width=16,heads=4,key_heads=2,head_size=6,inner=24,context=12,window=4/0,"
     "vocabulary=37,score_size=9,score_cap=1.5,logit_cap=2"},
    {"gemma3:blocks=3,width=16,heads=4,key_heads=2,head_size=6,inner=24,context=12,window=4/0,"
     "vocabulary=37,theta=100,local_theta=20,rope_factor=2"},
    {"gpt-nano:blocks=3,width=16,heads=2,context=12,vocabulary=37,dropout=0.1", true},
    {"llama:blocks=3,width=16,heads=4,key_heads=2,head_size=4,inner=24,context=12,vocabulary=37",
     true}};
INSTANTIATE_TEST_SUITE_P(Bits, Models, testing::ValuesIn(kPresets));

TEST_P(Models, OneDigestOverRanksSchedulesSplitsAndRecompute) {
  const auto& [preset, packed] = GetParam();
  const auto model = *preset ? make_preset(preset, {.packed = packed}).take().model : small_gpt();
  const Outcome expected = train(model, base_config(), 11, 6);
  ASSERT_EQ(expected.losses.size(), 6u);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  int turn = 0;
  for (int32_t ranks : {1, 2, 3, 4, 7}) {
    PlanConfig config = base_config();
    config.ranks = ranks;
    for (const ScheduleKind* kind : schedules_for(config))
      for (SplitBy split : {SplitBy::cost, SplitBy::uniform}) {
        config.schedule = kind->name;
        config.split = split;
        const char* recomputes[] = {"none", "stage", "every:1", "every:4"};
        config.recompute = recomputes[turn % 4];
        if (turn++ % test::kEvery != 0) continue;
        EXPECT_EQ(train(model, config, 11, 6), expected)
            << ranks << " ranks, " << kind->name << ", recompute " << config.recompute;
      }
  }
}

TEST(Bits, ThreadsChangeNothing) {
  const auto model = small_gpt();
  const Outcome expected = train(model, base_config(), 11, 6);
  int turn = 0;
  for (int32_t ranks : {1, 2, 3, 4}) {
    PlanConfig config = base_config();
    config.ranks = ranks;
    for (const ScheduleKind* kind : schedules_for(config))
      for (int threads : {1, 2, 3}) {
        if (turn++ % test::kEvery != 0) continue;
        config.schedule = kind->name;
        EXPECT_EQ(train(model, config, 11, 6, threads), expected)
            << ranks << " ranks, " << threads << " threads, " << kind->name;
      }
  }
}

// Submits ahead, so that steps queue up; infer steps are read while others wait.
TEST(Bits, QueuedStepsComeInOrder) {
  const auto model = small_gpt();
  std::vector<std::vector<float>> logits[2];
  for (int driver = 0; driver < 2; ++driver) {
    PlanConfig config = base_config();
    config.ranks = 3;
    auto plan = make_plan(model, config).take();
    auto drop = [](void*) {};
    auto run = (driver ? start_threads(plan, 2, drop) : start_inline(plan, drop)).take();
    std::vector<int32_t> tokens(12 * 12, 3), targets(12 * 12, 5);
    for (uint64_t s = 0; s < Run::kQueue; ++s) {
      Step* step = run->acquire();
      ASSERT_NE(step, nullptr);
      step->mode = s % 2 ? Mode::infer : Mode::train;
      step->tag = s;
      step->batch.samples = 12;
      step->batch.inputs = {tokens.data(), targets.data()};
      ASSERT_TRUE(run->submit(step).ok());
    }
    EXPECT_EQ(run->acquire(), nullptr);
    RunEvent event;
    uint64_t over = 0;
    const int32_t edge = output_edges(run->plan(), Mode::infer)[0];
    while (run->poll(event, -1)) {
      ASSERT_TRUE(event.status.ok()) << event.status.text();
      EXPECT_EQ(event.tag, over);
      if (event.kind == RunEvent::Kind::done) {
        ++over;
      } else if (event.mode == Mode::infer) {
        const View view = run->delivered(event, edge);
        logits[driver].emplace_back(view.f32(), view.f32() + view.desc.elements());
      }
    }
    EXPECT_EQ(over, Run::kQueue);
  }
  EXPECT_EQ(logits[0].size(), Run::kQueue / 2 * 4);
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(Bits, WhatDecidesArithmeticChangesTheDigest) {
  const auto model = small_gpt();
  const Outcome base = train(model, base_config(), 11, 2);
  PlanConfig seed = base_config(), micro = base_config();
  seed.seed = 6;
  EXPECT_NE(train(model, seed, 11, 2).digest, base.digest);
  micro.micro_batches = 6;
  micro.micro_batch_size = 2;
  micro.short_size = 1;
  EXPECT_NE(train(model, micro, 11, 2).digest, base.digest);
}

}  // namespace
}  // namespace weft
