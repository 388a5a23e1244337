// User ops before they run: their registration, and the shapes that they may have.
#include "api/square_op.h"

namespace {

TEST(UserOpRegistration, SaysWhatIsMissing) {
  Square square;
  const ModelPtr model = new_model();
  auto refused = [&](auto change, std::initializer_list<const char*> parts) {
    weft_op op = square_op();
    change(op);
    Error err;
    expect_error(weft_model_add_op(model.get(), &op, &square, &err), err, WEFT_EINVAL, parts);
  };
  refused([](weft_op& op) { op.name = nullptr; }, {"op name is NULL"});
  refused([](weft_op& op) { op.name = ""; }, {"op name", "1 to 200 bytes, has 0"});
  refused([](weft_op& op) { op.name = "a b\n"; }, {"op name", "space or control character"});
  const std::string endless(100000, 'a');
  refused([&](weft_op& op) { op.name = endless.c_str(); }, {"op name", "has 100000"});
  refused([](weft_op& op) { op.shape = nullptr; }, {"'square'", "shape is NULL"});
  refused([](weft_op& op) { op.forward = nullptr; }, {"'square'", "forward is NULL"});
  refused([](weft_op& op) { op.name = "relu"; }, {"'relu'", "built in"});
  const weft_op op = square_op();
  EXPECT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  refused([](weft_op&) {}, {"'square'", "registered already"});
  EXPECT_EQ(square.destroyed, 0) << "after a failure the payload is the caller's";
}

TEST(UserOpRegistration, IsRefusedAfterAPlan) {
  Square square;
  const ModelPtr model = small_model();
  new_plan(model, plan_config());
  const weft_op op = square_op();
  Error err;
  expect_error(weft_model_add_op(model.get(), &op, &square, &err), err, WEFT_ESTATE,
               {"finished", "ops"});
  EXPECT_EQ(square.destroyed, 0) << "after a failure the payload is the caller's";
}

TEST(UserOpRegistration, TheNameIsCopied) {
  Square square;
  const ModelPtr model = new_model();
  std::string name = "mine";
  weft_op op = square_op();
  op.name = name.data();
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  name = "####";
  add_node(model, "mine", {add_input(model, "x", {1, 2})});
}

weft_status add_squares(const ModelPtr& model, std::vector<weft_value> inputs, Error& err) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = "square";
  config.name = "n";
  config.inputs = inputs.data();
  config.n_inputs = static_cast<uint32_t>(inputs.size());
  weft_value out = {};
  return weft_model_add_node(model.get(), &config, &out, &err);
}

TEST(UserOpRegistration, AFailingShapeIsAnErrorOfTheNode) {
  Square square;
  const ModelPtr model = new_model();
  const weft_op op = square_op();
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  const weft_value x = add_input(model, "x", {1, 2});
  Error err;
  expect_error(add_squares(model, {x, x}, err), err, WEFT_EUSER, {"node 'n'", "shape returned 5"});
}

TEST(UserOpRegistration, AShapeThatRefusesTheMicroBatchIsAnErrorOfThePlan) {
  Square square;
  weft_op op = square_op();
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    return call->inputs[0].desc.dims[0] > 2 ? 5 : 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_plan_config config = plan_config(1, 2, 3);
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EUSER,
               {"squares", "3 samples", "shape returned 5"});
  for (const char* schedule : {"auto", "gpipe"}) {
    config.schedule = schedule;
    expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EUSER,
                 {"squares", "3 samples", "shape returned 5"});
    weft_comparison* comparison = nullptr;
    expect_error(weft_plan_compare(model.get(), &config, &comparison, &err), err, WEFT_EUSER,
                 {"squares", "shape returned 5"});
  }
  config.micro_batch_size = 2;
  EXPECT_EQ(weft_plan_new(model.get(), &config, &plan, &err), WEFT_OK) << err.text;
  weft_plan_free(plan);
}

// A callback that refuses 0 samples, and after the plan is made any number, when no call could
// return the error.
TEST(UserOpRegistration, AShapeIsAskedForSamplesThatThereAreAndNeverAfterThePlan) {
  static bool planned;
  planned = false;
  Square square;
  weft_op op = square_op();
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    return planned || call->inputs[0].desc.dims[0] < 1 ? 5 : 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_profile_config profile_config = defaults(weft_profile_config_init);
  profile_config.repeats = 1;
  weft_profile* profile = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_new(model.get(), &profile_config, &profile, &err), WEFT_OK) << err.text;
  weft_profile_free(profile);
  for (const uint32_t short_size : {0u, 1u}) {
    planned = false;
    weft_plan_config config = plan_config(2, 3, 2);
    config.short_size = short_size;
    const PlanPtr plan = new_plan(model, config);
    planned = true;
    weft_prediction* prediction = nullptr;
    ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, &err), WEFT_OK) << err.text;
    weft_prediction_free(prediction);
    const RunPtr run = start(plan);
    const int64_t samples = short_size ? 5 : 6;
    EXPECT_EQ(step(run, {noise({samples, 6}).get(), noise({samples, 3}).get()}).status, WEFT_OK);
  }
  weft_plan* refused = nullptr;
  const weft_plan_config config = plan_config();
  expect_error(weft_plan_new(model.get(), &config, &refused, &err), err, WEFT_EUSER,
               {"'squares'", "shape returned 5"});
  profile = nullptr;
  expect_error(weft_profile_new(model.get(), &profile_config, &profile, &err), err, WEFT_EUSER,
               {"'squares'", "shape returned 5"});
}

// Gradients are summed as F32 where a value has several uses, so there are no others.
TEST(UserOpRegistration, OnlyF32HasAGradient) {
  Square square;
  weft_op op = square_op();
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    out->dtype = WEFT_F64;
    return 0;
  };
  const ModelPtr wide = new_model();
  ASSERT_EQ(weft_model_add_op(wide.get(), &op, &square, nullptr), WEFT_OK);
  Error err;
  expect_error(add_squares(wide, {add_input(wide, "x", {1, 2})}, err), err, WEFT_EINVAL,
               {"node 'n'", "f64[1,2]", "f32 or i32"});

  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    out->dtype = call->inputs[0].desc.dtype == WEFT_F32 ? WEFT_I32 : WEFT_F32;
    return 0;
  };
  for (const bool trained : {false, true}) {
    const ModelPtr model = new_model();
    ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
    weft_value x = add_input(model, "x", {1, 3});
    if (trained) x = add_linear(model, "below", x, 3);
    const weft_value whole = add_node(model, "square", {x}, "whole");
    const weft_value both = add_node(
        model, "add", {add_node(model, "square", {whole}), add_node(model, "square", {whole})});
    add_node(model, "mse", {add_linear(model, "above", both, 3), add_input(model, "y", {1, 3})});
    const weft_plan_config config = plan_config();
    weft_plan* out = nullptr;
    if (trained) {
      expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
                   {"node 'whole'", "i32[1,3]", "expected f32"});
    } else {
      EXPECT_EQ(weft_plan_new(model.get(), &config, &out, &err), WEFT_OK) << err.text;
    }
    weft_plan_free(out);
  }
}

TEST(UserOpRegistration, AShapeThatIsNotInProportionIsAnErrorOfThePlan) {
  Square square;
  weft_op op = square_op();
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    if (call->inputs[0].desc.dims[0] > 2) out->dims[1] = 1;
    return 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_plan_config config = plan_config(1, 2, 3);
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"squares", "f32[3,1]", "f32[1,8]"});
}

TEST(UserOpRegistration, AShapeMustKeepTheBatch) {
  Square square;
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 2});
  weft_op op = square_op();
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    *out = call->inputs[0].desc;
    std::swap(out->dims[0], out->dims[1]);
    return 0;
  };
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  Error err;
  expect_error(add_squares(model, {x}, err), err, WEFT_EINVAL, {"node 'n'", "samples"});

  const ModelPtr other = new_model();
  const weft_value z = add_input(other, "x", {1, 2});
  op.shape = [](weft_op_call* call) -> int32_t {
    weft_desc* out = &call->output.desc;
    out->n_dims = 99;
    return 0;
  };
  ASSERT_EQ(weft_model_add_op(other.get(), &op, &square, nullptr), WEFT_OK);
  expect_error(add_squares(other, {z}, err), err, WEFT_EINVAL, {"node 'n'", "shape's output"});
}

TEST(UserOpRegistration, WithoutBackwardItCanStillRunForward) {
  Square square;
  weft_op op = square_op();
  op.backward = nullptr;
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6});
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  ASSERT_EQ(weft_model_add_output(model.get(), add_node(model, "square", {x}), nullptr), WEFT_OK);
  const RunPtr run = start(model, plan_config());
  const TensorPtr in = noise({2, 6}, 5);
  const auto outputs = step(run, {in.get()}, WEFT_FORWARD).outputs;
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(outputs[0][0][i], floats(in)[i] * floats(in)[i]);
}

// Weights under an op without a gradient cannot be trained; that is an error, and they do not
// remain zero.
TEST(UserOpRegistration, WithoutBackwardItCannotBeTrainedThrough) {
  Square square;
  weft_op op = square_op();
  op.backward = nullptr;
  const ModelPtr model = squaring_model(&square, 0, op);
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"'squares'", "gradient"});
  weft_plan_free(out);
}

}  // namespace
