// Steps and their events; reading and writing what a run holds.
#include <cmath>
#include <cstddef>
#include <map>

#include "api/api.h"

namespace {

// The parameter: compute threads per rank.
class RunTest : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(const ModelPtr& model, const weft_plan_config& config) {
    return ::start(model, config, GetParam());
  }

  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  const std::vector<weft_tensor*> batch = {x.get(), y.get()};
};

INSTANTIATE_TEST_SUITE_P(Threads, RunTest, testing::Values(0u, 1u, 2u));

TEST_P(RunTest, NullIsAnError) {
  const ModelPtr model = small_model();
  const PlanPtr plan = new_plan(model, plan_config());
  const RunPtr run = ::start(plan, GetParam());
  const TensorPtr bias = zeros({8});
  weft_run* out = nullptr;
  weft_event event = sized<weft_event>();
  char text[33];
  Error err;
  expect_error(weft_run_start(nullptr, nullptr, nullptr, &out, &err), err, WEFT_EINVAL,
               {"plan is NULL"});
  expect_error(weft_run_start(plan.get(), nullptr, nullptr, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  expect_error(weft_run_submit(nullptr, batch.data(), 2, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"run is NULL"});
  expect_error(weft_run_submit(run.get(), nullptr, 2, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"inputs is NULL"});
  EXPECT_EQ(weft_run_poll(nullptr, &event, 0, nullptr), WEFT_EINVAL);
  EXPECT_EQ(weft_run_poll(run.get(), nullptr, 0, nullptr), WEFT_EINVAL);
  expect_error(weft_run_read(nullptr, "a.bias", WEFT_VALUE, bias.get(), &err), err, WEFT_EINVAL,
               {"run is NULL"});
  expect_error(weft_run_read(run.get(), nullptr, WEFT_VALUE, bias.get(), &err), err, WEFT_EINVAL,
               {"name is NULL"});
  expect_error(weft_run_read(run.get(), "a.bias", WEFT_VALUE, nullptr, &err), err, WEFT_EINVAL,
               {"tensor is NULL"});
  expect_error(weft_run_write(nullptr, "a.bias", WEFT_VALUE, bias.get(), &err), err, WEFT_EINVAL,
               {"run is NULL"});
  expect_error(weft_run_write(run.get(), nullptr, WEFT_VALUE, bias.get(), &err), err, WEFT_EINVAL,
               {"name is NULL"});
  expect_error(weft_run_write(run.get(), "a.bias", WEFT_VALUE, nullptr, &err), err, WEFT_EINVAL,
               {"tensor is NULL"});
  expect_error(weft_run_digest(nullptr, text, &err), err, WEFT_EINVAL, {"run is NULL"});
  expect_error(weft_run_digest(run.get(), nullptr, &err), err, WEFT_EINVAL, {"digest is NULL"});
  weft_run_free(nullptr);
}

TEST_P(RunTest, NothingIsPolledBeforeAStep) {
  const RunPtr run = start(small_model(), plan_config());
  weft_event event = sized<weft_event>();
  for (const int64_t timeout : {-1, 0}) {
    event.kind = WEFT_EVENT_DONE;
    event.loss = 1;
    EXPECT_EQ(weft_run_poll(run.get(), &event, timeout, nullptr), 0);
    EXPECT_EQ(event.kind, 0u) << "an event of the past is not taken for a new one";
    EXPECT_EQ(event.loss, 0);
    EXPECT_EQ(event.size, sizeof event);
  }
}

TEST_P(RunTest, AnEventNeedsItsSize) {
  const RunPtr run = start(small_model(), plan_config());
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 5), WEFT_OK);
  weft_event event = sized<weft_event>();
  event.size = 8;
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), WEFT_EINVAL);
  EXPECT_EQ(finish(run).losses.size(), 3u) << "no event was lost";
}

TEST_P(RunTest, AShorterEventIsFilledAsFarAsItReaches) {
  const RunPtr run = start(small_model(), plan_config());
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 5), WEFT_OK);
  weft_event event = sized<weft_event>();
  event.size = offsetof(weft_event, idle);  // what the first version had
  event.n_ranks = 77;
  do ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  while (event.kind == WEFT_EVENT_MICRO_BATCH);
  EXPECT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  EXPECT_EQ(event.tag, 5u);
  EXPECT_EQ(event.size, offsetof(weft_event, idle));
  EXPECT_EQ(event.n_ranks, 77u);
}

TEST_P(RunTest, ALongerEventIsFilledAsFarAsItIsKnown) {
  struct {
    weft_event event;
    uint64_t tail;
  } newer = {sized<weft_event>(), 77};
  newer.event.size = sizeof newer;
  const RunPtr run = start(small_model(), plan_config());
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 5), WEFT_OK);
  ASSERT_EQ(weft_run_poll(run.get(), &newer.event, -1, nullptr), 1);
  EXPECT_EQ(newer.event.tag, 5u);
  EXPECT_EQ(newer.event.size, sizeof newer);
  EXPECT_EQ(newer.tail, 77u);
}

TEST_P(RunTest, AReplicaWithoutAMicroBatchIsIdleAndTheOtherIsNot) {
  const weft_axis axis = {"data", 2, 0};
  weft_plan_config config = plan_config(2, 2);
  config.axes = &axis;
  config.n_axes = 1;
  const RunPtr run = start(small_model(), config);
  const TensorPtr some = noise({2, 6}, 1), expected = noise({2, 3}, 2);
  ASSERT_EQ(submit(run, {some.get(), expected.get()}, WEFT_EVAL, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  do ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  while (event.kind == WEFT_EVENT_MICRO_BATCH);
  ASSERT_EQ(event.n_ranks, 2u);
  EXPECT_LT(event.idle_by_rank[0], 0.999);  // nearly 1 if the time were that since the system began
  EXPECT_EQ(event.idle_by_rank[1], 1);
}

TEST_P(RunTest, EachStepHasItsMicroBatchesAndOneFinalEvent) {
  const RunPtr run = start(small_model(), plan_config(2));
  for (uint64_t tag : {30, 20, 10}) ASSERT_EQ(submit(run, batch, WEFT_TRAIN, tag), WEFT_OK);
  uint64_t number = 0;
  for (uint64_t tag : {30, 20, 10}) {
    const Outcome outcome = finish(run);
    EXPECT_EQ(outcome.kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
    EXPECT_EQ(outcome.status, WEFT_OK);
    EXPECT_EQ(outcome.tag, tag);
    EXPECT_EQ(outcome.step, number++);
    ASSERT_EQ(outcome.losses.size(), 3u);
    EXPECT_NEAR(outcome.loss, (outcome.losses[0] + outcome.losses[1] + outcome.losses[2]) / 3,
                1e-12);
    EXPECT_GT(outcome.grad_norm, 0);
  }
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 0);
}

TEST_P(RunTest, TheSeventeenthStepIsTriedAgain) {
  const RunPtr run = start(small_model(), plan_config());
  for (uint64_t tag = 0; tag < 16; ++tag) ASSERT_EQ(submit(run, batch, WEFT_TRAIN, tag), WEFT_OK);
  Error err;
  expect_error(submit(run, batch, WEFT_TRAIN, 16, &err), err, WEFT_EAGAIN, {"16 steps"});
  EXPECT_EQ(finish(run).tag, 0u);
  EXPECT_EQ(submit(run, batch, WEFT_TRAIN, 16), WEFT_OK);
  std::map<uint64_t, int> finals;
  for (int i = 0; i < 16; ++i) ++finals[finish(run).tag];
  for (uint64_t tag = 1; tag <= 16; ++tag) EXPECT_EQ(finals[tag], 1) << tag;
}

TEST_P(RunTest, AWrongBatchIsRefusedAndChangesNothing) {
  const RunPtr run = start(small_model(), plan_config());
  const std::string before = digest(run);
  const TensorPtr wide = zeros({6, 7}), few = zeros({4, 3}), odd_x = zeros({5, 6}),
                  odd_y = zeros({5, 3}), many_x = zeros({8, 6}), many_y = zeros({8, 3}),
                  none_x = zeros({0, 6}), none_y = zeros({0, 3}),
                  integers = zeros({6, 6}, WEFT_I32);
  Error err;
  expect_error(submit(run, {x.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL, {"1 inputs", "2"});
  expect_error(submit(run, {wide.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"'x'", "[1,6]", "[6,7]"});
  expect_error(submit(run, {integers.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"'x'", "f32", "i32"});
  expect_error(submit(run, {x.get(), few.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"'y'", "4 samples", "6"});
  expect_error(submit(run, {x.get(), nullptr}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL, {"'y'"});
  expect_error(submit(run, {odd_x.get(), odd_y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"5 samples", "multiple of 2"});
  expect_error(submit(run, {many_x.get(), many_y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"8 samples", "from 2 to 6"});
  expect_error(submit(run, {none_x.get(), none_y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"0 samples"});
  expect_error(submit(run, {none_x.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"'y'", "6 samples", "before it 0"});
  for (const uint32_t mode : {0u, 6u, uint32_t{WEFT_STEPS_TRAIN}, uint32_t{WEFT_STEPS_EVAL}})
    expect_error(submit(run, batch, static_cast<weft_step_mode>(mode), 0, &err), err, WEFT_EINVAL,
                 {"mode is", "WEFT_TRAIN"});
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 0) << "a refused step has no event";
  EXPECT_EQ(digest(run), before);
  EXPECT_EQ(step(run, batch).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
}

TEST_P(RunTest, TheReferencesOfARunEndWithTheStep) {
  int released = 0;
  auto release = [](void*, void* payload) { ++*static_cast<int*>(payload); };
  std::vector<float> data(6 * 6);
  const weft_desc d = desc({6, 6});
  weft_tensor* mine = nullptr;
  ASSERT_EQ(weft_tensor_wrap(&d, data.data(), release, &released, &mine, nullptr), WEFT_OK);
  const RunPtr run = start(small_model(), plan_config(2));
  ASSERT_EQ(submit(run, {mine, y.get()}, WEFT_TRAIN, 1), WEFT_OK);
  ASSERT_EQ(submit(run, {mine, y.get()}, WEFT_EVAL, 2), WEFT_OK);
  weft_tensor_unref(mine);
  EXPECT_EQ(released, 0);
  finish(run);
  EXPECT_EQ(released, 0);
  finish(run);
  EXPECT_EQ(released, 1);
}

TEST_P(RunTest, ARefusedStepKeepsNoReference) {
  int released = 0;
  auto release = [](void*, void* payload) { ++*static_cast<int*>(payload); };
  std::vector<float> data(5 * 6);
  const weft_desc d = desc({5, 6});
  weft_tensor* mine = nullptr;
  ASSERT_EQ(weft_tensor_wrap(&d, data.data(), release, &released, &mine, nullptr), WEFT_OK);
  const RunPtr run = start(small_model(), plan_config());
  const TensorPtr odd = zeros({5, 3});
  EXPECT_EQ(submit(run, {mine, odd.get()}, WEFT_TRAIN, 1), WEFT_EINVAL);
  weft_tensor_unref(mine);
  EXPECT_EQ(released, 1);
}

TEST_P(RunTest, FreeingARunDropsItsSteps) {
  int released = 0;
  auto release = [](void*, void* payload) { ++*static_cast<int*>(payload); };
  std::vector<float> data(6 * 6);
  const weft_desc d = desc({6, 6});
  weft_tensor* mine = nullptr;
  ASSERT_EQ(weft_tensor_wrap(&d, data.data(), release, &released, &mine, nullptr), WEFT_OK);
  {
    const RunPtr run = start(small_model(), plan_config(2));
    for (uint64_t tag = 0; tag < 3; ++tag)
      ASSERT_EQ(submit(run, {mine, y.get()}, WEFT_TRAIN, tag), WEFT_OK);
    weft_event event = sized<weft_event>();
    EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
    weft_tensor_unref(mine);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST_P(RunTest, ModelAndPlanMayBeFreedFirst) {
  ModelPtr model = small_model();
  PlanPtr plan = new_plan(model, plan_config(2));
  const RunPtr run = ::start(plan, GetParam());
  plan.reset();
  model.reset();
  EXPECT_EQ(step(run, batch).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
}

TEST_P(RunTest, OnlyTrainChangesWeights) {
  const RunPtr run = start(small_model(), plan_config(2));
  const std::string before = digest(run);
  const double loss = step(run, batch, WEFT_NO_UPDATE).loss;
  const Outcome eval = step(run, batch, WEFT_EVAL);
  EXPECT_EQ(eval.loss, loss) << "dropout aside, evaluation computes what training does";
  EXPECT_EQ(eval.grad_norm, 0);
  EXPECT_EQ(step(run, batch, WEFT_FORWARD).loss, 0);
  EXPECT_EQ(digest(run), before);
  EXPECT_EQ(step(run, batch, WEFT_TRAIN).loss, loss);
  EXPECT_NE(digest(run), before);
  EXPECT_LT(step(run, batch, WEFT_EVAL).loss, loss);
}

TEST_P(RunTest, StepsCountUpdatesAlone) {
  const RunPtr run = start(small_model(), plan_config());
  for (weft_step_mode mode : {WEFT_NO_UPDATE, WEFT_EVAL, WEFT_FORWARD})
    EXPECT_EQ(step(run, batch, mode).step, 0u);
  EXPECT_EQ(step(run, batch, WEFT_TRAIN).step, 0u);
  EXPECT_EQ(step(run, batch, WEFT_EVAL).step, 1u);
}

// A short last micro-batch weighs as its samples do: the same step in micro-batches that divide
// evenly differs by rounding only.
TEST_P(RunTest, TheLastMicroBatchMayBeShort) {
  const TensorPtr x10 = noise({10, 6}, 3), y10 = noise({10, 3}, 4);
  weft_plan_config uneven = plan_config(2, 3, 4);
  uneven.short_size = 2;
  const RunPtr a = start(small_model(WEFT_INPUT_WANT_GRAD), uneven),
               b = start(small_model(WEFT_INPUT_WANT_GRAD), plan_config(2, 5, 2));
  const Outcome in_3 = step(a, {x10.get(), y10.get()}, WEFT_NO_UPDATE),
                in_5 = step(b, {x10.get(), y10.get()}, WEFT_NO_UPDATE);
  ASSERT_EQ(in_3.losses.size(), 3u);
  ASSERT_EQ(in_5.losses.size(), 5u);
  EXPECT_NEAR(in_3.loss, in_5.loss, 1e-6);
  EXPECT_NEAR(in_3.losses[0], (in_5.losses[0] + in_5.losses[1]) / 2, 1e-6);
  EXPECT_NEAR(in_3.losses[2], in_5.losses[4], 1e-6);
  const auto gradients_a = read(a, "a.weight", WEFT_GRAD, {6, 8}),
             gradients_b = read(b, "a.weight", WEFT_GRAD, {6, 8});
  for (size_t i = 0; i < gradients_a.size(); ++i) EXPECT_NEAR(gradients_a[i], gradients_b[i], 1e-7);
  const auto input_a = read(a, "x", WEFT_GRAD, {10, 6}), input_b = read(b, "x", WEFT_GRAD, {10, 6});
  for (size_t i = 0; i < input_a.size(); ++i) EXPECT_NEAR(input_a[i], input_b[i], 1e-7);
  EXPECT_EQ(step(a, {x10.get(), y10.get()}, WEFT_FORWARD).outputs[2][0].size(), 2u * 8);
  const TensorPtr x9 = zeros({9, 6}), y9 = zeros({9, 3});
  Error err;
  expect_error(submit(a, {x9.get(), y9.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"9 samples", "multiple of 4", "2 more than 0 or a multiple"});
  EXPECT_EQ(step(a, {batch[0], batch[1]}).losses.size(), 2u)
      << "6 samples are a full and a short one";
}

TEST_P(RunTest, WhatIsWrittenIsRead) {
  weft_plan_config config = plan_config(3);
  const RunPtr run = start(small_model(), config);
  const TensorPtr weight = noise({8, 3}, 9);
  for (weft_part part : {WEFT_VALUE, WEFT_EXP_AVG, WEFT_EXP_AVG_SQ}) {
    ASSERT_EQ(weft_run_write(run.get(), "c.weight", part, weight.get(), nullptr), WEFT_OK);
    EXPECT_EQ(read(run, "c.weight", part, {8, 3}), values(weight));
  }
  Error err;
  expect_error(weft_run_write(run.get(), "c.weight", WEFT_GRAD, weight.get(), &err), err,
               WEFT_EINVAL, {"WEFT_GRAD", "only be read"});
}

TEST_P(RunTest, ReadingSaysWhatIsWrong) {
  const RunPtr run = start(small_model(), plan_config());
  const TensorPtr bias = zeros({8}), integers = zeros({8}, WEFT_I32), x_grad = zeros({6, 6});
  Error err;
  expect_error(weft_run_read(run.get(), "d.bias", WEFT_VALUE, bias.get(), &err), err, WEFT_ENOENT,
               {"'d.bias'"});
  expect_error(weft_run_read(run.get(), "a.weight", WEFT_VALUE, bias.get(), &err), err, WEFT_EINVAL,
               {"'a.weight'", "[6,8]", "[8]"});
  expect_error(weft_run_read(run.get(), "a.bias", WEFT_VALUE, integers.get(), &err), err,
               WEFT_EINVAL, {"'a.bias'", "f32", "i32"});
  expect_error(weft_run_read(run.get(), "a.bias", WEFT_MOMENTUM, bias.get(), &err), err,
               WEFT_EINVAL, {"no momentum", "adamw"});
  expect_error(weft_run_read(run.get(), "a.bias", weft_part{0}, bias.get(), &err), err, WEFT_EINVAL,
               {"part is 0", "WEFT_VALUE"});
  expect_error(weft_run_write(run.get(), "a.weight", WEFT_VALUE, bias.get(), &err), err,
               WEFT_EINVAL, {"'a.weight'"});
  expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, x_grad.get(), &err), err, WEFT_ENOENT,
               {"'x'", "WEFT_INPUT_WANT_GRAD"});
}

TEST_P(RunTest, TargetsHaveNoGradientAndThatIsSaid) {
  const ModelPtr model = new_model();
  const weft_value in = add_linear(model, "a", add_input(model, "x", {1, 6}), 3);
  add_node(model, "mse", {in, add_input(model, "y", {1, 3}, WEFT_INPUT_WANT_GRAD)});
  const RunPtr run = start(model, plan_config());
  step(run, batch);
  const TensorPtr grad = zeros({6, 3});
  Error err;
  expect_error(weft_run_read(run.get(), "y", WEFT_GRAD, grad.get(), &err), err, WEFT_ENOENT,
               {"'y'", "for its targets"});
}

TEST_P(RunTest, TheGradientOfAnInputIsThatOfTheLastStep) {
  const RunPtr run = start(small_model(WEFT_INPUT_WANT_GRAD), plan_config(2));
  const TensorPtr all = zeros({6, 6}), few = zeros({4, 6});
  Error err;
  expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, all.get(), &err), err, WEFT_ESTATE,
               {"training step"});
  const double loss = step(run, batch, WEFT_NO_UPDATE).loss;
  expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, few.get(), &err), err, WEFT_EINVAL,
               {"'x'"});
  const std::vector<float> grad = read(run, "x", WEFT_GRAD, {6, 6});
  // One element moved: the loss follows the gradient.
  const float delta = 0.01f;
  floats(x)[33] += delta;
  const double above = step(run, batch, WEFT_EVAL).loss;
  floats(x)[33] -= 2 * delta;
  const double below = step(run, batch, WEFT_EVAL).loss;
  EXPECT_NE(grad[33], 0);
  EXPECT_NEAR((above - below) / (2 * delta), grad[33], 1e-5 * loss + 0.01 * std::abs(grad[33]));
}

TEST_P(RunTest, OptimizerStateIsThatOfAdam) {
  const RunPtr run = start(small_model(), plan_config(2));
  EXPECT_EQ(read(run, "b.bias", WEFT_EXP_AVG, {8}), std::vector<float>(8, 0));
  step(run, batch);
  const auto grad = read(run, "b.bias", WEFT_GRAD, {8}),
             mean = read(run, "b.bias", WEFT_EXP_AVG, {8}),
             square = read(run, "b.bias", WEFT_EXP_AVG_SQ, {8});
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NE(grad[i], 0);
    EXPECT_NEAR(mean[i], 0.1 * grad[i], 1e-6 * std::abs(grad[i]));
    EXPECT_NEAR(square[i], 0.001 * grad[i] * grad[i], 1e-6 * grad[i] * grad[i]);
  }
}

TEST_P(RunTest, PlainSgdHasNoState) {
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.rate = 0.5;
  weft_plan_config config = plan_config();
  config.optimizer = &sgd;
  const RunPtr run = start(small_model(), config);
  const auto before = read(run, "c.bias", WEFT_VALUE, {3});
  step(run, batch);
  const auto after = read(run, "c.bias", WEFT_VALUE, {3}),
             grad = read(run, "c.bias", WEFT_GRAD, {3});
  for (size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(after[i], before[i] - 0.5f * grad[i]);
  const TensorPtr bias = zeros({3});
  Error err;
  expect_error(weft_run_read(run.get(), "c.bias", WEFT_EXP_AVG, bias.get(), &err), err, WEFT_EINVAL,
               {"no exp_avg", "sgd"});
}

// With SGD a run's weights and momenta are all of it: copied to another run, both go on alike,
// however that one is cut.
TEST_P(RunTest, ARunCanBeCopied) {
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.rate = 0.1;
  sgd.momentum = 0.9;
  weft_plan_config config = plan_config(2);
  config.optimizer = &sgd;
  const RunPtr from = start(small_model(), config);
  for (int i = 0; i < 3; ++i) step(from, batch);
  config.ranks = 3;
  config.schedule = "gpipe";
  config.seed = 99;
  const RunPtr to = start(small_model(), config);
  EXPECT_NE(digest(to), digest(from));
  const std::pair<const char*, weft_desc> params[] = {
      {"a.weight", desc({6, 8})}, {"a.bias", desc({8})},      {"b.weight", desc({8, 8})},
      {"b.bias", desc({8})},      {"c.weight", desc({8, 3})}, {"c.bias", desc({3})}};
  for (const auto& [name, d] : params)
    for (weft_part part : {WEFT_VALUE, WEFT_MOMENTUM}) {
      weft_tensor* tensor = nullptr;
      ASSERT_EQ(weft_tensor_new(&d, &tensor, nullptr), WEFT_OK);
      ASSERT_EQ(weft_run_read(from.get(), name, part, tensor, nullptr), WEFT_OK);
      ASSERT_EQ(weft_run_write(to.get(), name, part, tensor, nullptr), WEFT_OK);
      weft_tensor_unref(tensor);
    }
  EXPECT_EQ(digest(to), digest(from));
  EXPECT_EQ(step(from, batch).loss, step(to, batch).loss);
  EXPECT_EQ(digest(to), digest(from));
}

TEST_P(RunTest, NothingIsReadWhileStepsAreUnderWay) {
  const RunPtr run = start(small_model(WEFT_INPUT_WANT_GRAD), plan_config(2));
  const TensorPtr bias = zeros({8}), grad = zeros({6, 6});
  char text[33] = "untouched";
  auto refused = [&] {
    Error err;
    expect_error(weft_run_read(run.get(), "a.bias", WEFT_VALUE, bias.get(), &err), err, WEFT_ESTATE,
                 {"in progress"});
    expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, grad.get(), &err), err, WEFT_ESTATE,
                 {"in progress"});
    expect_error(weft_run_write(run.get(), "a.bias", WEFT_VALUE, bias.get(), &err), err,
                 WEFT_ESTATE, {"in progress"});
    expect_error(weft_run_digest(run.get(), text, &err), err, WEFT_ESTATE, {"in progress"});
    EXPECT_STREQ(text, "untouched");
  };
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 0), WEFT_OK);
  refused();
  weft_event event = sized<weft_event>();
  for (int mb = 0; mb < 3; ++mb) {
    ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
    ASSERT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_MICRO_BATCH));
    refused();
  }
  ASSERT_EQ(submit(run, batch, WEFT_EVAL, 1), WEFT_OK);
  ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  ASSERT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  refused();
  finish(run);
  EXPECT_EQ(weft_run_read(run.get(), "a.bias", WEFT_VALUE, bias.get(), nullptr), WEFT_OK);
}

}  // namespace
