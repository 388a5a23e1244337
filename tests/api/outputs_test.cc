// What forward steps deliver, and to whom it belongs.
#include "api/api.h"

namespace {

// The parameter: compute threads per rank.
class Outputs : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(const ModelPtr& model, const weft_plan_config& config) { return ::start(model, config, GetParam()); }

  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  const std::vector<weft_tensor*> batch = {x.get(), y.get()};
};

INSTANTIATE_TEST_SUITE_P(Threads, Outputs, testing::Values(0u, 1u, 2u));

TEST_P(Outputs, OutputsComeInTheOrderTheyWereAsked) {
  const ModelPtr model = new_model();
  const weft_value x0 = add_input(model, "x", {1, 2}), unused = add_input(model, "y", {1, 2});
  const weft_desc square = desc({2, 2}), vector = desc({2});
  weft_param params[2];
  ASSERT_EQ(weft_model_add_param(model.get(), "w", &square, WEFT_INIT_CONSTANT, 0.5, &params[0], nullptr), WEFT_OK);
  ASSERT_EQ(weft_model_add_param(model.get(), "b", &vector, WEFT_INIT_CONSTANT, -1, &params[1], nullptr), WEFT_OK);
  weft_node_config linear = WEFT_NODE_INIT;
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
  const std::vector<float> whole[] = {{-4.5, -4.5, -2.5, -2.5}, {-0.5, -0.5, 1.5, 1.5}}, positive[] = {{0, 0, 0, 0}, {0, 0, 1.5, 1.5}};
  for (size_t mb = 0; mb < 2; ++mb) {
    ASSERT_EQ(outcome.outputs[mb].size(), 2u);
    EXPECT_EQ(outcome.outputs[mb][0], positive[mb]);
    EXPECT_EQ(outcome.outputs[mb][1], whole[mb]);
  }
  EXPECT_TRUE(step(run, {in.get(), in.get()}, WEFT_EVAL).outputs[0].empty());
}

// Polls the first micro-batch of a forward step.
weft_tensor* first_output(const RunPtr& run, const std::vector<weft_tensor*>& batch) {
  EXPECT_EQ(submit(run, batch, WEFT_FORWARD, 0), WEFT_OK);
  weft_event event = WEFT_EVENT_INIT;
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1), 1);
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
    expect_error(submit(*to, {output}, WEFT_FORWARD, 1, &err), err, WEFT_EINVAL, {"'x'", "output of a run", "copy"});
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

}  // namespace
