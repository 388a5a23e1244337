// Weight gradients of several micro-batches at once: which jobs run together, and their bits.
#include <gtest/gtest.h>

#include <vector>

#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

PlanConfig config_of(const char* schedule, int32_t group, const char* precision) {
  PlanConfig config = test::small_gpt_config();
  config.schedule = schedule;
  config.group = group;
  config.micro_batches = 13;
  config.precision = precision;
  return config;
}

// Job::together of each W of a rank.
std::vector<int32_t> joined(const PlanConfig& config) {
  auto made = make_plan(test::small_gpt(), config);
  EXPECT_TRUE(made.ok()) << made.status().text();
  if (!made.ok()) return {};
  const auto plan = made.take();
  const RankProgram& program = plan->mode(Mode::train).ranks.front();
  std::vector<int32_t> out;
  for (const Job& job : program.jobs)
    if (job.kind == JobKind::action &&
        program.programs[static_cast<size_t>(job.program)].kind == Kind::W)
      out.push_back(job.together);
  return out;
}

TEST(Together, JobsOfAGroupThatFollowOneAnother) {
  EXPECT_EQ(joined(config_of("1f1b-delayed-w", 5, "f32")),
            (std::vector<int32_t>{5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(joined(config_of("1f1b-delayed-w", 12, "f32")),
            (std::vector<int32_t>{8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1}));
  EXPECT_EQ(joined(config_of("zb-h1", 0, "f32")), std::vector<int32_t>(13, 1));
}

// Groups of gradients have sums of their own.
TEST(Together, NotIfARankHasSeveralGradientGroups) {
  PlanConfig config = config_of("1f1b-delayed-w", 5, "f32");
  config.gradient_groups = 4;
  EXPECT_EQ(joined(config), std::vector<int32_t>(13, 1));
}

// Without the actions of micro-batch 7, which it does not have, replica 0 has seven W in a row, and
// scratch memory for them.
TEST(Together, OfAReplicaWithFewerMicroBatches) {
  PlanConfig config = config_of("1f1b", 0, "bf16");
  config.micro_batches = 15;
  config.micro_batch_size = 1;
  config.short_size = 0;
  config.ranks = config.data = config.gradient_groups = 2;
  const auto model = test::small_gpt();
  const test::Outcome expected = test::train_on_one_rank(model, config, 15, 4);
  config.schedule_text =
      "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0I0 0I1 0I2 0I3 0I4 0I5 0I6 "
      "0W0 0W1 0F7 0W2 0W3 0W4 0I7 0W5 0W6 0W7\n";
  EXPECT_EQ(joined(config), (std::vector<int32_t>{7, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(test::train(model, config, 15, 4, 2), expected);
  const auto plan = make_plan(model, config).take();
  const RankProgram& program = plan->mode(Mode::train).ranks.front();
  for (const ActionProgram& action : program.programs)
    for (const ProgramCall& call : action.calls) {
      const Node& node = plan->model->node(call.node);
      if (action.kind != Kind::W || !node.op->multiplies_weight() || !call.scratch) continue;
      const int64_t needed = node.op->bf16_scratch(
          call.in.front().desc[0], plan->model->param(node.weights.front()).desc(), 7);
      EXPECT_LE(call.scratch.offset + needed,
                program.rings[static_cast<size_t>(call.scratch.ring)].stride)
          << node.name;
    }
}

// Full steps, with a short micro-batch at the end, and with fewer micro-batches than the plan has.
TEST(Together, ChangesNoBit) {
  for (const char* precision : {"f32", "bf16"})
    for (const int64_t samples : {39, 38, 20}) {
      const auto model = test::small_gpt();
      const test::Outcome expected =
          test::train(model, config_of("1f1b", 0, precision), samples, 4);
      for (const int32_t group : {1, 5, 12})
        for (const int32_t ranks : {1, 3}) {
          PlanConfig config = config_of("1f1b-delayed-w", group, precision);
          config.ranks = ranks;
          EXPECT_EQ(test::train(model, config, samples, 4, ranks), expected)
              << precision << ", " << samples << " samples, group " << group << ", " << ranks
              << " ranks";
        }
    }
}

}  // namespace
}  // namespace weft
