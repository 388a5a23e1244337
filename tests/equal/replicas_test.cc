// Data replicas: the bits of one rank with as many gradient groups, whatever the mesh and schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "graph/presets.h"
#include "runtime/batch.h"
#include "runtime/run.h"
#include "support/cases.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

struct Case {
  int32_t data, stage, groups, micro_batches;
};

PlanConfig config_of(const Case& c) {
  PlanConfig config = test::small_gpt_config();
  config.data = c.data;
  config.ranks = c.data * c.stage;
  config.gradient_groups = c.groups;
  config.micro_batches = c.micro_batches;
  return config;
}

TEST(Replicas, HaveTheDigestOfAsManyGradientGroups) {
  const auto model = test::small_gpt();
  int turn = 0;
  for (const Case& c : {Case{2, 1, 2, 5}, Case{2, 2, 4, 7}, Case{4, 1, 4, 6}, Case{4, 2, 8, 8},
                        Case{3, 1, 3, 7}, Case{3, 2, 3, 5}, Case{2, 3, 6, 11}}) {
    PlanConfig config = config_of(c);
    const int64_t samples = c.micro_batches * config.micro_batch_size - 1;  // the last one is short
    const test::Outcome expected = test::train_on_one_rank(model, config, samples, 4);
    for (const ScheduleKind* kind : test::schedules_for(replica_config(config))) {
      if (turn++ % test::kEvery != 0) continue;
      const char* recomputes[] = {"none", "stage", "every:2"};
      config.schedule = kind->name;
      config.recompute = recomputes[turn % 3];
      EXPECT_EQ(test::train(model, config, samples, 4, turn % 3), expected)
          << c.data << " x " << c.stage << " ranks, " << c.groups << " groups, " << kind->name;
    }
  }
}

// Replicas without a micro-batch add +0 and take the new values.
TEST(Replicas, HaveTheDigestOfAsManyGradientGroupsInShorterSteps) {
  const auto model = test::small_gpt();
  const PlanConfig config = config_of({4, 2, 4, 8});
  for (const int64_t samples : {3, 3 + 2, 2 * 3, 5 * 3 + 2, 7 * 3}) {
    const test::Outcome expected = test::train_on_one_rank(model, config, samples, 3);
    EXPECT_EQ(test::train(model, config, samples, 3), expected) << samples << " samples";
    EXPECT_EQ(test::train(model, config, samples, 3, 1), expected) << samples << " samples";
  }
}

// With one micro-batch for each replica, gradients leave as soon as they are complete. The slots
// of two runs of them are all that a rank keeps beside the gradients that it owns.
TEST(Replicas, KeepTwoRunsOfGradientsIfEachHasOneMicroBatch) {
  const auto model = test::small_gpt();
  int turn = 0;
  for (const Case& c : {Case{2, 1, 2, 2}, Case{3, 1, 3, 3}, Case{4, 1, 4, 4}, Case{2, 2, 2, 2},
                        Case{4, 2, 4, 4}, Case{2, 3, 2, 2}})
    for (const ScheduleKind* kind : test::schedules_for(replica_config(config_of(c)))) {
      if (++turn % test::kEvery != 0) continue;
      PlanConfig config = config_of(c);
      // Replicas without a micro-batch have sums that are zero.
      const int64_t samples = (c.micro_batches - turn % 2) * config.micro_batch_size;
      const test::Outcome expected = test::train_on_one_rank(model, config, samples, 3);
      const int64_t sizes[] = {1, 3000, 20000};
      config.schedule = kind->name;
      config.bucket_bytes = sizes[turn % 3];
      config.shard = turn / 2 % 2 ? "optimizer" : "parameters";
      EXPECT_EQ(test::train(model, config, samples, 3, turn % 3), expected)
          << c.data << " x " << c.stage << " ranks, " << kind->name << ", " << config.shard;
      const auto plan = make_plan(model, config).take();
      for (size_t r = 0; r < plan->resident.size(); ++r) {
        int64_t others = 0, most = 0;
        std::map<int32_t, int64_t> of_run;
        for (const ResidentParam& p : plan->resident[r])
          for (const ResidentTensor& t : p.tensors)
            (t.run < 0 ? others : of_run[t.run]) += t.bytes();
        for (const auto& [run, bytes] : of_run) most = std::max(most, bytes);
        EXPECT_GE(of_run.size(), config.bucket_bytes < 20000 ? 2u : 1u);
        EXPECT_LE(plan->permanent_bytes[r], others + 2 * most);
      }
    }
  EXPECT_GT(turn, 30);
}

TEST(Replicas, NeedLessMemoryIfGradientsLeave) {
  const auto model = make_preset("mlp:layers=32,width=16", {}).take().model;
  const auto most = [&](const char* shard, int32_t micro_batches) {
    PlanConfig config = config_of({4, 1, 4, micro_batches});
    config.shard = shard;
    config.bucket_bytes = 1;
    const auto plan = make_plan(model, config).take();
    return *std::max_element(plan->permanent_bytes.begin(), plan->permanent_bytes.end());
  };
  for (const char* shard : {"optimizer", "parameters"})
    EXPECT_LT(most(shard, 4), most(shard, 5) * 2 / 3) << shard;
  EXPECT_EQ(most("none", 4), most("none", 5));
}

std::vector<float> outputs(const std::shared_ptr<Model>& model, const PlanConfig& config) {
  std::vector<float> out;
  const auto plan = make_plan(model, config).take();
  const auto run = start_threads(plan, 1, [](void*) {}).take();
  const int64_t samples = config.micro_batch_size * (config.micro_batches - 1) + config.short_size;
  std::vector<int32_t> tokens(static_cast<size_t>(12 * samples)), targets(tokens.size(), 5);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 37);
  Step* step = run->acquire();
  step->mode = Mode::infer;
  step->batch.samples = samples;
  step->batch.inputs = {tokens.data(), targets.data()};
  EXPECT_TRUE(run->submit(step).ok());
  RunEvent event;
  std::vector<std::vector<float>> by_micro_batch(static_cast<size_t>(config.micro_batches));
  const int32_t edge = output_edges(run->plan(), Mode::infer)[0];
  while (run->poll(event, -1)) {
    EXPECT_TRUE(event.status.ok()) << event.status.text();
    if (event.kind != RunEvent::Kind::micro_batch) continue;
    const View view = run->delivered(event, edge);
    by_micro_batch[static_cast<size_t>(event.micro_batch)].assign(
        view.f32(), view.f32() + view.desc.elements());
  }
  for (const auto& values : by_micro_batch) out.insert(out.end(), values.begin(), values.end());
  return out;
}

TEST(Replicas, DeliverOutputsInTheOrderOfTheSamples) {
  const auto model = test::small_gpt();
  const std::vector<float> expected = outputs(model, config_of({1, 1, 1, 7}));
  EXPECT_EQ(expected.size(), static_cast<size_t>((6 * 3 + 2) * 12 * 37));
  EXPECT_EQ(outputs(model, config_of({2, 2, 2, 7})), expected);
  EXPECT_EQ(outputs(model, config_of({3, 1, 3, 7})), expected);
  PlanConfig gathering = config_of({2, 2, 2, 7});
  gathering.shard = "parameters";
  EXPECT_EQ(outputs(model, gathering), expected);
}

// Each optimizer state is on one rank, and the ranks of a position own about as much.
TEST(Replicas, OwnParametersInEqualParts) {
  const auto model = test::small_gpt();
  const auto plan = make_plan(model, config_of({4, 2, 4, 8})).take();
  std::vector<int> owners(model->params().size(), 0);
  for (const auto& held : plan->resident)
    for (const ResidentParam& p : held) owners[static_cast<size_t>(p.param)] += p.owned;
  EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
  for (int32_t position = 0; position < 2; ++position) {
    int64_t all = 0, most = 0, largest = 0;
    for (int32_t replica = 0; replica < 4; ++replica) {
      int64_t owned = 0;
      for (const ResidentParam& p : plan->resident[static_cast<size_t>(replica * 2 + position)]) {
        const int64_t elements = model->param(p.param).shape.elements();
        EXPECT_EQ(p.owned, !p.of(ResidentTensor::Role::state).empty());
        owned += p.owned ? elements : 0;
        largest = std::max(largest, elements);
      }
      all += owned;
      most = std::max(most, owned);
    }
    EXPECT_LE(most, all / 4 + largest);
    EXPECT_GT(all, 0);
  }
}

// A large parameter at the end of the model would otherwise come on top of an equal part.
TEST(Replicas, OwnLargeParametersFirst) {
  const auto model = std::make_shared<Model>();
  NodeId x = test::must(model->add_input("x", {DType::f32, {1, 16}}, false));
  const auto add_layer = [&](int64_t width) {
    const ParamId weight =
        test::must(model->add_param("w" + std::to_string(model->params().size()), {16, width}, {}));
    x = test::must(model->add_node("", find_op("linear"), {}, {&x, 1}, {&weight, 1}));
  };
  for (int i = 0; i < 10; ++i) add_layer(16);
  add_layer(160);
  const NodeId loss[] = {x, test::must(model->add_input("y", {DType::f32, {1, 160}}, false))};
  test::must(model->add_node("loss", find_op("mse"), {}, loss, {}));
  ASSERT_TRUE(model->finish().ok());
  PlanConfig config;
  config.ranks = config.data = config.gradient_groups = config.micro_batches = 2;
  const auto plan = make_plan(model, config).take();
  std::vector<int64_t> owned(2, 0);
  for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()); ++p)
    owned[static_cast<size_t>(plan->owner_of_param[static_cast<size_t>(p)])] +=
        model->param(p).shape.elements();
  EXPECT_EQ(owned, (std::vector<int64_t>{2560, 2560}));
}

TEST(Replicas, AreRefusedByBothNumbers) {
  const auto model = test::small_gpt();
  const struct {
    Case c;
    const char *first, *second;
  } rows[] = {{{3, 1, 6, 8}, "data is 3", "gradient_groups is 6"},
              {{4, 1, 2, 8}, "data is 4", "gradient_groups is 2"},
              {{4, 1, 6, 8}, "data is 4", "gradient_groups is 6"},
              {{8, 1, 8, 4}, "data is 8", "micro-batches, 4"}};
  for (const auto& row : rows) {
    const auto plan = make_plan(model, config_of(row.c));
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().text().find(row.first), std::string::npos) << plan.status().text();
    EXPECT_NE(plan.status().text().find(row.second), std::string::npos) << plan.status().text();
  }
  PlanConfig config = config_of({2, 2, 2, 4});
  config.schedule = "pipedream-2bw";
  config.optim.clip = 0;
  const auto plan = make_plan(model, config);
  ASSERT_FALSE(plan.ok());
  for (const char* part : {"'pipedream-2bw' is asynchronous", "data is 2"})
    EXPECT_NE(plan.status().text().find(part), std::string::npos) << plan.status().text();
}

}  // namespace
}  // namespace weft
