// What replicas keep in parts, and what each as a whole: the bytes differ, the bits do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/presets.h"
#include "sim/predict.h"
#include "support/cases.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

const char* const kChoices[] = {"none", "optimizer", "parameters"};  // the more bytes, the earlier

PlanConfig config_of(int32_t data, int32_t stage, int32_t groups, int32_t micro_batches) {
  PlanConfig config = test::small_gpt_config();
  config.data = data;
  config.ranks = data * stage;
  config.gradient_groups = groups;
  config.micro_batches = micro_batches;
  return config;
}

TEST(Sharding, HasOneDigestWhateverIsSharded) {
  const auto model = test::small_gpt();
  int turn = 0;
  for (PlanConfig config : {config_of(2, 1, 2, 5), config_of(2, 2, 4, 7), config_of(4, 1, 4, 6),
                            config_of(3, 2, 3, 5), config_of(2, 3, 6, 11)}) {
    const int64_t samples = config.micro_batches * config.micro_batch_size - 1;
    const test::Outcome expected = test::train_on_one_rank(model, config, samples, 4);
    for (const ScheduleKind* kind : test::schedules_for(replica_config(config)))
      for (const char* shard : kChoices) {
        if (turn++ % test::kEvery != 0) continue;
        const char* recomputes[] = {"none", "stage", "every:2"};
        config.schedule = kind->name;
        config.recompute = recomputes[turn % 3];
        config.shard = shard;
        config.bucket_bytes = turn % 4 ? 4096 : 1 << 20;
        EXPECT_EQ(test::train(model, config, samples, 4, turn % 3), expected)
            << config.data << " of " << config.ranks << " ranks, " << kind->name << ", shard "
            << shard;
      }
  }
}

// Also where some replicas have no micro-batch.
TEST(Sharding, HasOneDigestInShorterSteps) {
  const auto model = test::small_gpt();
  PlanConfig config = config_of(4, 2, 4, 8);
  for (const int64_t samples : {3, 3 + 2, 2 * 3, 5 * 3 + 2, 7 * 3}) {
    const test::Outcome expected = test::train_on_one_rank(model, config, samples, 3);
    for (const char* shard : kChoices) {
      config.shard = shard;
      config.bucket_bytes = 1024;
      EXPECT_EQ(test::train(model, config, samples, 3), expected) << samples << ", " << shard;
      EXPECT_EQ(test::train(model, config, samples, 3, 1), expected) << samples << ", " << shard;
    }
  }
}

int64_t largest_rank(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  const auto plan = make_plan(model, config).take();
  return *std::max_element(plan->arena_bytes.begin(), plan->arena_bytes.end());
}

TEST(Sharding, TakesFewerBytesTheMoreIsSharded) {
  for (const char* text : {"mlp:layers=8,width=64", "gpt-nano"}) {
    const std::shared_ptr<const Model> model = make_preset(text, {.seq_len = 0}).take().model;
    for (const int32_t data : {2, 4}) {
      PlanConfig config = config_of(data, 1, data, 8);
      config.micro_batch_size = 1;
      config.short_size = 0;
      int64_t before = INT64_MAX;
      for (const char* shard : kChoices) {
        config.shard = shard;
        const int64_t bytes = largest_rank(model, config);
        EXPECT_LT(bytes, before) << text << ", " << data << " replicas, " << shard;
        before = bytes;
      }
    }
  }
}

PlanConfig config_of_mlp() {
  PlanConfig config = config_of(2, 1, 2, 4);
  config.micro_batch_size = 256;
  config.short_size = 0;
  config.machines.bandwidth = 1e9;
  config.bucket_bytes = 1 << 20;  // a layer
  return config;
}

// A block is a layer: no unit reads the values of two, and a rank has room for those of two.
TEST(Sharding, GathersTheValuesOfTwoBlocksAtOnce) {
  const std::shared_ptr<const Model> model =
      make_preset("mlp:layers=8,width=64", {.seq_len = 0}).take().model;
  PlanConfig config = config_of_mlp();
  config.shard = "parameters";
  const auto plan = make_plan(model, config).take();
  const int64_t layer = padded_bytes(model->param(0).desc()) + padded_bytes(model->param(1).desc());
  for (const ModePlan& mode : plan->modes)
    for (const RankProgram& rank : mode.ranks) {
      std::set<int32_t> slots;
      for (const ActionProgram& action : rank.programs) {
        std::set<std::string> blocks;
        for (const ProgramCall& call : action.calls)
          if (call.kind == CallKind::forward || call.kind == CallKind::input_grad)
            if (!call.weights.empty()) blocks.insert(model->node(call.node).name);
        EXPECT_LE(blocks.size(), 1u);
        for (const int32_t e : action.gathers)
          slots.insert(mode.edges[static_cast<size_t>(e)].landing.ring);
      }
      EXPECT_EQ(slots.size(), 2u);
      for (const int32_t slot : slots) {
        const Ring& ring = rank.rings[static_cast<size_t>(slot)];
        EXPECT_LE(ring.count * ring.stride, layer);
      }
    }
}

// Under a virtual clock, where a message takes about as long as the backward of a layer.
TEST(Sharding, AddsGradientsWhileTheBackwardRuns) {
  const std::shared_ptr<const Model> model =
      make_preset("mlp:layers=8,width=512", {.seq_len = 0}).take().model;
  PlanConfig config = config_of_mlp();
  const auto plan = make_plan(model, config).take();
  const Prediction overlapped = predict(plan, nullptr, true).take();
  for (size_t r = 0; r < 2; ++r) {
    const std::vector<Job>& jobs = plan->mode(Mode::train).ranks[r].jobs;
    int64_t first_reduction = INT64_MAX, last_action = 0;
    for (const TraceSpan& span : overlapped.spans[r]) {
      const JobKind kind = jobs[static_cast<size_t>(span.job)].kind;
      if (kind == JobKind::reduce) first_reduction = std::min(first_reduction, span.time.begin);
      if (kind == JobKind::action) last_action = std::max(last_action, span.time.begin);
    }
    EXPECT_LT(first_reduction, last_action);
  }
  config.bucket_bytes = int64_t{1} << 40;
  const Prediction at_the_end = predict(make_plan(model, config).take(), nullptr, false).take();
  EXPECT_LT(overlapped.commit, at_the_end.commit);
}

TEST(Sharding, RefusesAnotherChoiceByName) {
  PlanConfig config = config_of(2, 1, 2, 4);
  config.shard = "weights";
  const auto plan = make_plan(test::small_gpt(), config);
  ASSERT_FALSE(plan.ok());
  for (const char* part : {"shard is 'weights'", "optimizer or parameters"})
    EXPECT_NE(plan.status().text().find(part), std::string::npos) << plan.status().text();
}

}  // namespace
}  // namespace weft
