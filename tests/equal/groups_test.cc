// Gradient groups: the tree of their sums, against sums that the test adds itself; and one digest
// for one number of groups, however the step is split.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "runtime/run.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 16;

// Layers of equal width without biases, so that a sample of zeros adds +0 or -0 to every gradient.
std::shared_ptr<Model> layers(int count) {
  auto model = std::make_shared<Model>();
  const Desc row{DType::f32, {1, kWidth}};
  NodeId x = model->add_input("x", row, false).take();
  const NodeId target = model->add_input("target", row, false).take();
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    const ParamId w =
        model->add_param("w" + n, Shape{kWidth, kWidth}, {InitKind::normal, 0.3}).take();
    const NodeId in[] = {x};
    const ParamId weights[] = {w};
    x = model->add_node("linear" + n, find_op("linear"), {}, in, weights).take();
    if (i + 1 == count) break;
    const NodeId sum[] = {x};
    x = model->add_node("relu" + n, find_op("relu"), {}, sum, {}).take();
  }
  const NodeId loss[] = {x, target};
  EXPECT_TRUE(model->add_node("loss", find_op("mse"), {}, loss, {}).ok());
  EXPECT_TRUE(model->finish().ok());
  return model;
}

struct Case {
  int32_t micro_batches, groups;  // of the plan
  int32_t in_step;                // micro-batches of the step
  bool short_last;
};

using Gradients = std::vector<std::vector<float>>;  // per parameter

// The gradients of one step, of which only the micro-batches in [first, end) have inputs that are
// not zero.
Gradients gradients(const std::shared_ptr<Model>& model, PlanConfig config, const Case& c,
                    int32_t first, int32_t end) {
  Gradients out;
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  auto run = start_inline(plan.take(), [](void*) {}).take();
  const int64_t size = config.micro_batch_size,
                samples = size * c.in_step - (c.short_last ? size - config.short_size : 0);
  std::vector<float> x(static_cast<size_t>(samples * kWidth)), target(x.size());
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = normal(rng);
    const auto mb = static_cast<int32_t>(i / static_cast<size_t>(size * kWidth));
    x[i] = first <= mb && mb < end ? value : 0;
    target[i] = normal(rng);
  }
  Step* step = run->acquire();
  step->update = false;
  step->batch.samples = samples;
  step->batch.inputs = {x.data(), target.data()};
  EXPECT_TRUE(run->submit(step).ok());
  RunEvent event;
  while (run->poll(event, -1)) EXPECT_TRUE(event.status.ok()) << event.status.text();
  for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()); ++p) {
    auto& values = out.emplace_back(static_cast<size_t>(kWidth * kWidth));
    EXPECT_TRUE(run->read(p, Part::grad, values).ok());
  }
  return out;
}

PlanConfig config_of(const Case& c) {
  PlanConfig config;
  config.micro_batches = c.micro_batches;
  config.micro_batch_size = 3;
  config.short_size = 2;
  config.gradient_groups = c.groups;
  config.seed = 3;
  return config;
}

// What the documentation says, for one element: halves from the top, the left one larger.
float tree_sum(const std::function<float(int32_t)>& group, int32_t begin, int32_t end) {
  if (end - begin == 1) return group(begin);
  const int32_t left = (end - begin + 1) / 2;
  return tree_sum(group, begin, begin + left) + tree_sum(group, begin + left, end);
}

TEST(GradientGroups, AreSerialSumsAddedAsABinaryTree) {
  const auto model = layers(3);
  int differs = 0;
  for (const Case& c :
       {Case{8, 4, 8, false}, Case{7, 3, 7, true}, Case{5, 5, 5, true}, Case{9, 6, 9, false},
        Case{8, 4, 5, true}, Case{6, 5, 2, false}, Case{11, 7, 10, true}, Case{4, 2, 1, true}}) {
    SCOPED_TRACE(cat(c.groups, " groups of ", c.micro_batches, " micro-batches, ", c.in_step));
    std::vector<Gradients> alone;
    PlanConfig one = config_of(c);
    one.gradient_groups = 1;
    for (int32_t g = 0; g < c.groups; ++g)
      alone.push_back(gradients(model, one, c, g * c.micro_batches / c.groups,
                                (g + 1) * c.micro_batches / c.groups));
    const Gradients serial = gradients(model, one, c, 0, c.micro_batches),
                    found = gradients(model, config_of(c), c, 0, c.micro_batches);
    for (size_t p = 0; p < found.size(); ++p)
      for (size_t i = 0; i < found[p].size(); ++i) {
        const auto group = [&](int32_t g) { return alone[static_cast<size_t>(g)][p][i]; };
        const float expected = tree_sum(group, 0, c.groups);
        ASSERT_EQ(std::bit_cast<uint32_t>(found[p][i]), std::bit_cast<uint32_t>(expected))
            << "parameter " << p << ", element " << i;
        differs += found[p][i] != serial[p][i];
      }
  }
  EXPECT_GT(differs, 100);  // else any order of additions would do
}

TEST(GradientGroups, HaveOneDigestOverRanksSchedulesAndThreads) {
  const auto model = test::small_gpt();
  PlanConfig base = test::small_gpt_config();
  base.micro_batches = 7;
  base.gradient_groups = 3;
  constexpr int64_t kSamples = 7 * 3 - 1;  // the last micro-batch is short
  const test::Outcome expected = test::train(model, base, kSamples, 4);
  int turn = 0;
  for (int32_t ranks : {1, 2, 3, 5}) {
    PlanConfig config = base;
    config.ranks = ranks;
    for (const ScheduleKind* kind : test::schedules_for(config)) {
      const char* recomputes[] = {"none", "stage", "every:2"};
      config.schedule = kind->name;
      config.recompute = recomputes[turn++ % 3];
      EXPECT_EQ(test::train(model, config, kSamples, 4, turn % 3), expected)
          << ranks << " ranks, " << kind->name << ", recompute " << config.recompute;
    }
  }
}

// A step with fewer micro-batches than planned has the groups of the plan.
TEST(GradientGroups, HaveOneDigestInShorterSteps) {
  const auto model = test::small_gpt();
  for (int64_t samples : {1 * 3, 2 * 3 + 2, 4 * 3, 4 * 3 + 2}) {
    PlanConfig config = test::small_gpt_config();
    config.micro_batches = 6;
    config.gradient_groups = 4;
    const test::Outcome expected = test::train(model, config, samples, 3);
    config.ranks = 3;
    config.schedule = "zb-h1";
    EXPECT_EQ(test::train(model, config, samples, 3), expected) << samples;
    EXPECT_EQ(test::train(model, config, samples, 3, 2), expected) << samples;
  }
}

TEST(GradientGroups, DecideRounding) {
  const auto model = test::small_gpt();
  PlanConfig config = test::small_gpt_config();
  const test::Outcome serial = test::train(model, config, 11, 2);
  for (int32_t groups : {2, 3, 4}) {
    config.gradient_groups = groups;
    const test::Outcome found = test::train(model, config, 11, 2);
    EXPECT_NE(found.digest, serial.digest) << groups;
    EXPECT_NEAR(found.losses.back(), serial.losses.back(), 1e-4) << groups;
  }
}

TEST(GradientGroups, AreOneToTheNumberOfMicroBatches) {
  const auto model = test::small_gpt();
  PlanConfig config = test::small_gpt_config();
  for (int32_t groups : {-1, 5}) {
    config.gradient_groups = groups;
    const auto plan = make_plan(model, config);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), Code::invalid);
    for (const std::string& part : {cat("gradient_groups is ", groups), std::string("4")})
      EXPECT_NE(plan.status().text().find(part), std::string::npos) << plan.status().text();
  }
}

}  // namespace
}  // namespace weft
