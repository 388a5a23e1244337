// What replicas keep in parts, and what each as a whole: the bytes differ, the bits do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "graph/presets.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

const char* const kChoices[] = {"none", "optimizer"};  // the more bytes, the earlier

PlanConfig config_of(int32_t data, int32_t stage, int32_t groups, int32_t micro_batches) {
  PlanConfig config = test::small_gpt_config();
  config.data = data;
  config.ranks = data * stage;
  config.gradient_groups = groups;
  config.micro_batches = micro_batches;
  return config;
}

test::Outcome alone(const std::shared_ptr<Model>& model, PlanConfig config, int64_t samples,
                    int steps) {
  config.data = config.ranks = 1;
  config.schedule = "1f1b";
  return test::train(model, config, samples, steps);
}

TEST(Sharding, HasOneDigestWhateverIsSharded) {
  const auto model = test::small_gpt();
  int turn = 0;
  for (PlanConfig config : {config_of(2, 1, 2, 5), config_of(2, 2, 4, 7), config_of(4, 1, 4, 6),
                            config_of(3, 2, 3, 5), config_of(2, 3, 6, 11)}) {
    const int64_t samples = config.micro_batches * config.micro_batch_size - 1;
    const test::Outcome expected = alone(model, config, samples, 4);
    for (const ScheduleKind* kind : test::schedules_for(replica_config(config)))
      for (const char* shard : kChoices) {
        const char* recomputes[] = {"none", "stage", "every:2"};
        config.schedule = kind->name;
        config.recompute = recomputes[turn++ % 3];
        config.shard = shard;
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
    const test::Outcome expected = alone(model, config, samples, 3);
    for (const char* shard : kChoices) {
      config.shard = shard;
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

TEST(Sharding, RefusesAnotherChoiceByName) {
  PlanConfig config = config_of(2, 1, 2, 4);
  config.shard = "weights";
  const auto plan = make_plan(test::small_gpt(), config);
  ASSERT_FALSE(plan.ok());
  for (const char* part : {"shard is 'weights'", "optimizer"})
    EXPECT_NE(plan.status().text().find(part), std::string::npos) << plan.status().text();
}

}  // namespace
}  // namespace weft
