// The outputs of training and evaluation steps: those of the weights that the step uses, on every
// driver and split, without a change of its result.
#include <cstring>

#include "api/drivers.h"

namespace {

struct Split {
  const char* name;
  const char* schedule = "1f1b";
  const char* recompute = "none";
  uint32_t replicas = 1;
};
constexpr Split kSplits[] = {
    {"Pipeline"},
    {"SplitBackward", "zb-h1"},
    {"Recompute", "1f1b", "stage"},
    {"Replicas", "1f1b", "none", 2},
};

weft_plan_config config_of(const Split& split) {
  static const weft_axis axes[] = {{"data", 2, 0}};
  weft_plan_config config = plan_config(split.replicas > 1 ? 1 : 2);
  config.schedule = split.schedule;
  config.recompute = split.recompute;
  config.short_size = 1;
  config.gradient_groups = 2;
  if (split.replicas > 1) {
    config.axes = axes;
    config.n_axes = 1;
  }
  return config;
}

PlanPtr plan_with_outputs(const Split& split) {
  weft_plan_config config = config_of(split);
  config.step_kinds = WEFT_STEPS_ALL | WEFT_STEPS_TRAIN_OUTPUTS | WEFT_STEPS_EVAL_OUTPUTS;
  return new_plan(small_model(), config);
}

using Case = std::tuple<Driver, Split>;
class StepOutputs : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Drivers, StepOutputs,
                         testing::Combine(testing::ValuesIn(kDrivers), testing::ValuesIn(kSplits)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  std::get<1>(test.param).name;
                         });

// Twin: the same run without outputs of its steps. Forward steps of it give what is expected.
TEST_P(StepOutputs, AreThoseOfItsWeights) {
  const Split& split = std::get<1>(GetParam());
  const TwoRanks ranks(plan_with_outputs(split), std::get<0>(GetParam()));
  const RunPtr twin = start(small_model(), config_of(split));
  for (const int64_t samples : {6, 5, 4}) {
    const uint32_t seed = static_cast<uint32_t>(samples);
    const TensorPtr x = noise({samples, 6}, seed), y = noise({samples, 3}, seed + 1);
    const std::vector<weft_tensor*> batch = {x.get(), y.get()};
    const auto expected = step(twin, batch, WEFT_FORWARD).outputs;
    ASSERT_EQ(expected.size(), static_cast<size_t>((samples + 1) / 2));
    for (const weft_step_mode mode : {WEFT_EVAL, WEFT_NO_UPDATE, WEFT_FORWARD, WEFT_TRAIN}) {
      const Outcome with = step(ranks.run, batch, mode), without = step(twin, batch, mode);
      EXPECT_EQ(with.outputs, expected) << mode;
      EXPECT_EQ(with.losses, without.losses) << mode;
      EXPECT_EQ(with.loss, without.loss) << mode;
      EXPECT_EQ(with.grad_norm, without.grad_norm) << mode;
    }
    EXPECT_EQ(digest(ranks.run), digest(twin));
  }
}

// No later step overwrites outputs that the program has not read yet.
TEST_P(StepOutputs, OfQueuedStepsAreKeptUntilTheyArePolled) {
  const Split& split = std::get<1>(GetParam());
  const TwoRanks ranks(plan_with_outputs(split), std::get<0>(GetParam()));
  const RunPtr twin = start(small_model(), config_of(split));
  const TensorPtr x[] = {noise({6, 6}, 1), noise({6, 6}, 2)}, y = noise({6, 3}, 3);
  for (uint64_t tag = 0; tag < 16; ++tag)
    ASSERT_EQ(submit(ranks.run, {x[tag % 2].get(), y.get()}, tag % 3 ? WEFT_TRAIN : WEFT_EVAL, tag),
              WEFT_OK);
  for (uint64_t tag = 0; tag < 16; ++tag) {
    const std::vector<weft_tensor*> batch = {x[tag % 2].get(), y.get()};
    const Outcome found = finish(ranks.run);
    EXPECT_EQ(found.tag, tag);
    EXPECT_EQ(found.outputs, step(twin, batch, WEFT_FORWARD).outputs) << tag;
    if (tag % 3) step(twin, batch);
  }
}

TEST(StepOutput, OfAStepThatThePlanDoesNotMakeIsRefusedAsTheStepIs) {
  weft_plan_config config = plan_config();
  config.step_kinds = WEFT_STEPS_TRAIN;
  const RunPtr run = start(small_model(), config);
  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2), out = zeros({6, 8});
  weft_tensor *const batch[] = {x.get(), y.get()}, *const outputs[] = {out.get()};
  Error err;
  expect_error(weft_run_step(run.get(), batch, 2, WEFT_FORWARD, outputs, 1, nullptr, &err), err,
               WEFT_ESTATE, {"made without WEFT_STEPS_FORWARD"});
}

TEST(StepOutput, IsCopiedByAStepInOneCall) {
  const RunPtr run = start(plan_with_outputs({"Pipeline"}), 1),
               twin = start(small_model(), config_of({"Pipeline"}));
  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2), out = zeros({6, 8}),
                  expected = zeros({6, 8});
  weft_tensor *const batch[] = {x.get(), y.get()}, *const outputs[] = {out.get()},
                     *const wanted[] = {expected.get()};
  Error err;
  ASSERT_EQ(weft_run_step(twin.get(), batch, 2, WEFT_FORWARD, wanted, 1, nullptr, &err), WEFT_OK)
      << err.text;
  double loss = 0;
  ASSERT_EQ(weft_run_step(run.get(), batch, 2, WEFT_TRAIN, outputs, 1, &loss, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(values(out), values(expected));
  EXPECT_GT(loss, 0);
  expect_error(weft_run_step(twin.get(), batch, 2, WEFT_TRAIN, outputs, 1, nullptr, &err), err,
               WEFT_EINVAL, {"n_outputs is 1, expected 0", "no outputs of such a step"});
}

// An asynchronous step delivers all micro-batches of its segment; those of the first update use the
// weights before the step.
TEST(StepOutput, OfASegmentComesPerMicroBatch) {
  weft_plan_config config = plan_config(2, 1);
  config.schedule = "pipedream";
  config.segment = 3;
  const RunPtr twin = start(small_model(), config);
  config.step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_TRAIN_OUTPUTS;
  const RunPtr run = start(small_model(), config, 1);
  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2), part = zeros({2, 6});
  std::memcpy(floats(part), floats(x), 2 * 6 * sizeof(float));
  const auto expected = step(twin, {part.get(), nullptr}, WEFT_FORWARD).outputs;
  const auto found = step(run, {x.get(), y.get()}).outputs;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], expected[0]);
  for (const auto& outputs : found) EXPECT_EQ(outputs.size(), 1u);
}

TEST(StepOutput, NeedsAStepAndAnOutput) {
  const ModelPtr model = small_model();
  weft_plan* none = nullptr;
  Error err;
  weft_plan_config config = plan_config();
  config.step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_EVAL_OUTPUTS;
  expect_error(weft_plan_new(model.get(), &config, &none, &err), err, WEFT_EINVAL,
               {"step_kinds", "outputs of a kind of steps that is not included"});
  const ModelPtr mute = new_model();
  const weft_value x = add_input(mute, "x", {1, 6});
  add_node(mute, "mse", {add_linear(mute, "a", x, 6), x});
  config.step_kinds = WEFT_STEPS_ALL | WEFT_STEPS_EVAL_OUTPUTS;
  expect_error(weft_plan_new(mute.get(), &config, &none, &err), err, WEFT_EINVAL,
               {"step_kinds", "the model has no output"});
}

// A saved plan, and its settings, have the flags.
TEST(StepOutput, IsPartOfAPlan) {
  const PlanPtr plan = plan_with_outputs({"Pipeline"});
  weft_plan_config settings = sized<weft_plan_config>();
  ASSERT_EQ(weft_plan_settings(plan.get(), &settings), WEFT_OK);
  EXPECT_EQ(settings.step_kinds,
            uint32_t{WEFT_STEPS_ALL | WEFT_STEPS_TRAIN_OUTPUTS | WEFT_STEPS_EVAL_OUTPUTS});
}

}  // namespace
