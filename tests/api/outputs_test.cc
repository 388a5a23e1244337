// What forward steps deliver, and to whom it belongs.
#include "api/api.h"

namespace {

// The parameter: compute threads per rank.
class Outputs : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(const ModelPtr& model, const weft_plan_config& config) {
    return ::start(model, config, GetParam());
  }

  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  const std::vector<weft_tensor*> batch = {x.get(), y.get()};
};

INSTANTIATE_TEST_SUITE_P(Threads, Outputs, testing::Values(0u, 1u, 2u));

TEST_P(Outputs, OutputsComeInTheOrderTheyWereAsked) {
  const ModelPtr model = new_model();
  const weft_value x0 = add_input(model, "x", {1, 2}), unused = add_input(model, "y", {1, 2});
  const weft_desc square = desc({2, 2}), vector = desc({2});
  weft_param params[2];
  ASSERT_EQ(
      weft_model_add_param(model.get(), "w", &square, WEFT_INIT_CONSTANT, 0.5, &params[0], nullptr),
      WEFT_OK);
  ASSERT_EQ(
      weft_model_add_param(model.get(), "b", &vector, WEFT_INIT_CONSTANT, -1, &params[1], nullptr),
      WEFT_OK);
  weft_node_config linear = defaults(weft_node_config_init);
  linear.op = "linear";
  linear.inputs = &x0;
  linear.n_inputs = 1;
  linear.params = params;
  linear.n_params = 2;
  weft_value sums = {};
  ASSERT_EQ(weft_model_add_node(model.get(), &linear, &sums, nullptr), WEFT_OK);
  const weft_value relu = add_node(model, "relu", {sums});
  add_node(model, "mse", {relu, unused});
  ASSERT_EQ(weft_model_add_output(model.get(), relu, nullptr), WEFT_OK);
  ASSERT_EQ(weft_model_add_output(model.get(), sums, nullptr), WEFT_OK);
  const TensorPtr in = zeros({4, 2});
  for (int i = 0; i < 8; ++i) floats(in)[i] = static_cast<float>(i - 4);
  const RunPtr run = start(model, plan_config(2, 2, 2));
  const Outcome outcome = step(run, {in.get(), nullptr}, WEFT_FORWARD);
  ASSERT_EQ(outcome.outputs.size(), 2u);
  const std::vector<float> whole[] = {{-4.5, -4.5, -2.5, -2.5}, {-0.5, -0.5, 1.5, 1.5}},
                           positive[] = {{0, 0, 0, 0}, {0, 0, 1.5, 1.5}};
  for (size_t mb = 0; mb < 2; ++mb) {
    ASSERT_EQ(outcome.outputs[mb].size(), 2u);
    EXPECT_EQ(outcome.outputs[mb][0], positive[mb]);
    EXPECT_EQ(outcome.outputs[mb][1], whole[mb]);
  }
  EXPECT_TRUE(step(run, {in.get(), in.get()}, WEFT_EVAL).outputs[0].empty());
}

// Replicas run at the same time, and may overtake one another.
TEST_P(Outputs, MicroBatchesOfReplicasComeInOrder) {
  const ModelPtr model = new_model();
  const weft_value same = add_node(model, "relu", {add_input(model, "x", {1, 1})});
  ASSERT_EQ(weft_model_add_output(model.get(), same, nullptr), WEFT_OK);
  const weft_axis axes[] = {{"data", 3, 0}};
  weft_plan_config config = plan_config(1, 6, 2);
  config.axes = axes;
  config.n_axes = 1;
  const RunPtr run = start(model, config);
  const TensorPtr in = zeros({12, 1}), out = zeros({12, 1});
  for (int i = 0; i < 12; ++i) floats(in)[i] = static_cast<float>(i + 1);
  weft_tensor *const inputs[] = {in.get()}, *const outputs[] = {out.get()};
  for (int round = 0; round < 30; ++round) {
    std::fill_n(floats(out), 12, 0.0f);
    ASSERT_EQ(weft_run_step(run.get(), inputs, 1, WEFT_FORWARD, outputs, 1, nullptr, nullptr),
              WEFT_OK);
    EXPECT_TRUE(std::equal(floats(in), floats(in) + 12, floats(out)));
    ASSERT_EQ(submit(run, {in.get()}, WEFT_FORWARD, 0), WEFT_OK);
    weft_event event = sized<weft_event>();
    for (uint32_t micro_batch = 0; micro_batch < 6; ++micro_batch) {
      ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
      EXPECT_EQ(event.kind, WEFT_EVENT_MICRO_BATCH);
      EXPECT_EQ(event.micro_batch, micro_batch);
    }
    ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
    EXPECT_EQ(event.kind, WEFT_EVENT_DONE);
  }
}

// Polls the first micro-batch of a forward step.
weft_tensor* first_output(const RunPtr& run, const std::vector<weft_tensor*>& batch) {
  EXPECT_EQ(submit(run, batch, WEFT_FORWARD, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  EXPECT_EQ(event.n_outputs, 1u);
  return event.outputs[0];
}

TEST_P(Outputs, AnOutputWithAnOwnerOutlivesItsRunEmpty) {
  RunPtr run = start(small_model(), plan_config(2));
  const TensorPtr kept(weft_tensor_ref(first_output(run, batch)));
  EXPECT_NE(weft_tensor_data(kept.get()), nullptr);
  run.reset();
  EXPECT_EQ(weft_tensor_data(kept.get()), nullptr);
  EXPECT_EQ(elements(weft_tensor_desc(kept.get())), 0);
}

TEST_P(Outputs, AnOutputIsNotSubmitted) {
  const ModelPtr model = new_model();
  const weft_value same = add_node(model, "relu", {add_input(model, "x", {1, 6})});
  ASSERT_EQ(weft_model_add_output(model.get(), same, nullptr), WEFT_OK);
  const RunPtr run = start(model, plan_config(1, 3, 2)), other = start(model, plan_config(1, 3, 2));
  weft_tensor* output = first_output(run, {x.get()});
  Error err;
  for (const RunPtr* to : {&run, &other})
    expect_error(submit(*to, {output}, WEFT_FORWARD, 1, &err), err, WEFT_EINVAL,
                 {"'x'", "output of a run", "copy"});
}

TEST_P(Outputs, WithoutALossThereIsOnlyForward) {
  const ModelPtr model = new_model();
  const weft_value out = add_linear(model, "a", add_input(model, "x", {1, 6}), 2);
  ASSERT_EQ(weft_model_add_output(model.get(), out, nullptr), WEFT_OK);
  const RunPtr run = start(model, plan_config());
  Error err;
  expect_error(submit(run, {x.get()}, WEFT_TRAIN, 0, &err), err, WEFT_ESTATE, {"no loss"});
  expect_error(submit(run, {x.get()}, WEFT_EVAL, 0, &err), err, WEFT_ESTATE, {"no loss"});
  EXPECT_EQ(step(run, {x.get()}, WEFT_FORWARD).outputs.size(), 3u);
}

TEST_P(Outputs, WithoutAnOutputThereIsNoForward) {
  const ModelPtr model = new_model();
  const weft_value in = add_input(model, "x", {1, 6}), target = add_input(model, "y", {1, 3});
  add_node(model, "mse", {add_linear(model, "a", in, 3), target});
  const RunPtr run = start(model, plan_config());
  Error err;
  expect_error(submit(run, batch, WEFT_FORWARD, 0, &err), err, WEFT_ESTATE, {"no output"});
}

TEST_P(Outputs, WithoutTrainingThereIsNoRoomForGradients) {
  weft_plan_config config = plan_config(2);
  const ModelPtr model = small_model();
  const PlanPtr all = new_plan(model, config);
  config.step_kinds = WEFT_STEPS_FORWARD | WEFT_STEPS_EVAL;
  config.schedule = "forward";
  const PlanPtr plan = new_plan(model, config);
  EXPECT_LT(weft_plan_bytes(plan.get(), 0), weft_plan_bytes(all.get(), 0) / 2);
  const RunPtr run = ::start(plan, GetParam()), other = ::start(all, GetParam());
  Error err;
  expect_error(submit(run, batch, WEFT_TRAIN, 0, &err), err, WEFT_ESTATE,
               {"made without WEFT_STEPS_TRAIN"});
  EXPECT_EQ(step(run, batch, WEFT_EVAL).loss, step(other, batch, WEFT_EVAL).loss);
  EXPECT_EQ(step(run, batch, WEFT_FORWARD).outputs, step(other, batch, WEFT_FORWARD).outputs);
  for (const weft_part part : {WEFT_GRAD, WEFT_EXP_AVG})
    expect_error(weft_run_read(run.get(), "a.bias", part, zeros({8}).get(), &err), err, WEFT_ENOENT,
                 {"made without WEFT_STEPS_TRAIN", "neither gradients nor optimizer state"});
  expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, zeros({4, 6}).get(), &err), err,
               WEFT_ENOENT, {"made without WEFT_STEPS_TRAIN"});
  weft_plan* none = nullptr;
  config.step_kinds = WEFT_STEPS_ALL + 1;
  expect_error(weft_plan_new(model.get(), &config, &none, &err), err, WEFT_EINVAL,
               {"step_kinds is 3841", "weft_step_kinds"});
  const ModelPtr mute = new_model();
  const weft_value x1 = add_input(mute, "x", {1, 6});
  add_node(mute, "mse", {add_linear(mute, "a", x1, 6), x1});
  config.step_kinds = WEFT_STEPS_FORWARD;
  expect_error(weft_plan_new(mute.get(), &config, &none, &err), err, WEFT_EINVAL,
               {"step_kinds", "no output"});
}

// What is not asked for takes no memory: here each sample has an output of 1000 numbers.
TEST_P(Outputs, WithoutForwardStepsThereIsNoRoomForThem) {
  const ModelPtr model = new_model();
  const weft_value in = add_input(model, "x", {1, 6}), target = add_input(model, "y", {1, 3}),
                   wide = add_linear(model, "a", in, 1000);
  ASSERT_EQ(weft_model_add_output(model.get(), wide, nullptr), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "b", wide, 3), target});
  weft_plan_config config = plan_config(2), many = plan_config(2, 64);
  const PlanPtr with = new_plan(model, config), with_many = new_plan(model, many);
  config.step_kinds = many.step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_EVAL;
  const PlanPtr without = new_plan(model, config), without_many = new_plan(model, many);
  EXPECT_LT(weft_plan_bytes(without_many.get(), 0),
            weft_plan_bytes(with_many.get(), 0) - 60 * 2 * 1000 * 4);
  const RunPtr run = ::start(without, GetParam()), other = ::start(with, GetParam());
  Error err;
  expect_error(submit(run, batch, WEFT_FORWARD, 0, &err), err, WEFT_ESTATE,
               {"made without WEFT_STEPS_FORWARD"});
  EXPECT_EQ(step(run, batch).loss, step(other, batch).loss);
  EXPECT_EQ(step(run, batch, WEFT_EVAL).loss, step(other, batch, WEFT_EVAL).loss);
  EXPECT_EQ(digest(run), digest(other));
}

}  // namespace
