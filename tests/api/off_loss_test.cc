// Parameters that the loss does not depend on, such as those of a head that is only an output: no
// plan trains them.
#include "api/drivers.h"
#include "api/spmd.h"

namespace {

enum class Side { none, output, loss };

// x [6] -> 8, a hidden layer that a side head reads, -> 3. The side head is an output, or adds to
// the prediction.
ModelPtr model_with(Side side) {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
  const weft_value hidden = add_node(model, "gelu", {add_linear(model, "a", x, 8)});
  weft_value out = add_linear(model, "b", hidden, 3);
  if (side != Side::none) {
    const weft_value head = add_linear(model, "side", hidden, 3);
    EXPECT_EQ(weft_model_add_output(model.get(), head, nullptr), WEFT_OK);
    if (side == Side::loss) out = add_node(model, "add", {out, head});
  }
  add_node(model, "mse", {out, y});
  return model;
}

weft_value add_node(const ModelPtr& model, const char* op, weft_value input, weft_param param) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.inputs = &input;
  config.params = &param;
  config.n_inputs = config.n_params = 1;
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return out;
}

constexpr int64_t kSide = 8 * 3 + 3, kOthers = 6 * 8 + 8 + 8 * 3 + 3;

weft_plan_config decaying(uint32_t ranks = 1) {
  weft_plan_config config = plan_config(ranks);
  static const weft_optimizer optimizer = [] {
    weft_optimizer out = defaults(weft_optimizer_init);
    out.rate = 0.1;
    out.weight_decay = 0.5;
    out.decay_all = 1;
    return out;
  }();
  config.optimizer = &optimizer;
  return config;
}

int64_t trained(const PlanPtr& plan) {
  weft_plan_info info = sized<weft_plan_info>();
  EXPECT_EQ(weft_plan_describe(plan.get(), &info), WEFT_OK);
  return info.trained;
}

void train(const RunPtr& run, int steps, int64_t width = 6) {
  for (int i = 0; i < steps; ++i) {
    const TensorPtr x = noise({6, width}, static_cast<uint32_t>(i + 1)), y = noise({6, 3}, 9);
    const Outcome out = step(run, {x.get(), y.get()});
    EXPECT_EQ(out.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << out.text;
  }
}

class OffLoss : public testing::TestWithParam<Driver> {};
INSTANTIATE_TEST_SUITE_P(Drivers, OffLoss, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(OffLoss, AParameterStaysAsItIs) {
  const RunPtr alone = start(model_with(Side::none), decaying());
  train(alone, 4);
  for (const uint32_t more : {0u, uint32_t{WEFT_STEPS_TRAIN_OUTPUTS}}) {
    weft_plan_config config = decaying(2);
    config.step_kinds |= more;
    const TwoRanks ranks(new_plan(model_with(Side::output), config), GetParam());
    EXPECT_EQ(trained(ranks.plan), kOthers);
    const auto before = read(ranks.run, "side.weight", WEFT_VALUE, {8, 3});
    train(ranks.run, 4);
    EXPECT_EQ(read(ranks.run, "side.weight", WEFT_VALUE, {8, 3}), before);
    EXPECT_EQ(read(ranks.run, "b.weight", WEFT_VALUE, {8, 3}),
              read(alone, "b.weight", WEFT_VALUE, {8, 3}));
    EXPECT_EQ(read(ranks.run, "a.bias", WEFT_VALUE, {8}), read(alone, "a.bias", WEFT_VALUE, {8}));

    const TensorPtr weight = zeros({8, 3});
    for (const weft_part part : {WEFT_GRAD, WEFT_EXP_AVG}) {
      Error err;
      expect_error(weft_run_read(ranks.run.get(), "side.weight", part, weight.get(), &err), err,
                   WEFT_ENOENT, {"'side.weight'", "the loss does not depend on", "neither"});
    }
  }
}

// Another plan may train it later.
TEST(OffLossPlan, KeepsAllBitsOfItWithBf16) {
  weft_plan_config config = decaying();
  config.precision = "bf16";
  for (const bool freezes : {false, true}) {
    weft_parameter_group group = defaults(weft_parameter_group_init);
    group.pattern = "side.*";
    group.frozen = 1;
    config.groups = &group;
    config.n_groups = freezes ? 1 : 0;
    const RunPtr run = start(new_plan(model_with(Side::output), config));
    const TensorPtr weight = noise({8, 3}, 5);
    Error err;
    ASSERT_EQ(weft_run_write(run.get(), "side.weight", WEFT_VALUE, weight.get(), &err), WEFT_OK)
        << err.text;
    const auto written = read(run, "side.weight", WEFT_VALUE, {8, 3});
    const auto* const values = static_cast<const float*>(weft_tensor_data(weight.get()));
    EXPECT_EQ(written == std::vector<float>(values, values + 24), !freezes);
  }
}

TEST(OffLossPlan, HasNoGradientsAndStateOfIt) {
  const PlanPtr without = new_plan(model_with(Side::none), decaying()),
                with = new_plan(model_with(Side::output), decaying());
  for (const weft_memory_kind kind : {WEFT_MEMORY_GRADIENTS, WEFT_MEMORY_OPTIMIZER})
    EXPECT_EQ(weft_plan_memory(with.get(), 0, kind), weft_plan_memory(without.get(), 0, kind));
  EXPECT_EQ(trained(new_plan(model_with(Side::loss), decaying())), kOthers + kSide);
}

TEST(OffLossPlan, IsRefusedIfGroupsFreezeAllOthers) {
  const ModelPtr model = model_with(Side::output);
  weft_parameter_group groups[] = {defaults(weft_parameter_group_init),
                                   defaults(weft_parameter_group_init)};
  groups[0].pattern = "*";
  groups[0].frozen = 1;
  groups[1].pattern = "side.*";
  weft_plan_config config = decaying();
  config.groups = groups;
  config.n_groups = 2;
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"freeze all parameters that the loss depends on", "nothing to train"});
}

// Its loss depends on the input only. The state of the optimizer is empty.
TEST(OffLossPlan, MayTrainNothingWithoutGroups) {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 3}), y = add_input(model, "y", {1, 3});
  EXPECT_EQ(weft_model_add_output(model.get(), add_linear(model, "side", x, 2), nullptr), WEFT_OK);
  add_node(model, "mse", {x, y});
  const PlanPtr plan = new_plan(model, decaying());
  EXPECT_EQ(trained(plan), 0);
  const RunPtr run = start(plan);
  const std::string before = digest(run);
  train(run, 2, 3);
  EXPECT_EQ(digest(run), before);
}

// As one of a version that trained it has.
TEST(OffLossCheckpoint, MayHaveItsState) {
  const Directory directory;
  const RunPtr all = start(model_with(Side::loss), decaying());
  train(all, 2);
  const CheckpointPtr saved = open_checkpoint(save(all, directory));
  EXPECT_EQ(states(saved), 12u);
  const RunPtr run = start(model_with(Side::output), decaying());
  Error err;
  ASSERT_EQ(weft_run_load(run.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(run), digest(saved));
}

TEST(OffLossCheckpoint, HasNoStateOfIt) {
  const Directory directory;
  const RunPtr run = start(model_with(Side::output), decaying());
  train(run, 2);
  const CheckpointPtr saved = open_checkpoint(save(run, directory));
  EXPECT_EQ(states(saved), 8u);
  train(run, 2);

  Error err;
  const RunPtr resumed = start(model_with(Side::output), decaying(2));
  ASSERT_EQ(weft_run_load(resumed.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  train(resumed, 2);
  EXPECT_EQ(digest(resumed), digest(run));

  const RunPtr all = start(model_with(Side::loss), decaying());
  expect_error(weft_run_load(all.get(), saved.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"'side.weight' has no optimizer state", "the loss did not depend on it"});
  EXPECT_EQ(weft_run_load(all.get(), saved.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK) << err.text;
}

struct Shift {
  static int32_t shape(weft_op_call* call) {
    call->output.desc = call->inputs[0].desc;
    return 0;
  }
  static int32_t forward(const weft_op_call* call) {
    const auto *x = static_cast<const float*>(call->inputs[0].data),
               *by = static_cast<const float*>(call->params[0].data);
    auto* y = static_cast<float*>(call->output.data);
    const int64_t width = call->params[0].desc.dims[0];
    for (int64_t i = 0; i < elements(call->output.desc); ++i) y[i] = x[i] + by[i % width];
    return 0;
  }
};

// Its op has no gradients, which it needs only if the loss depends on it.
TEST(OffLossOp, NeedsNoGradientOfItsParameters) {
  ModelPtr model = new_model();
  weft_op op = defaults(weft_op_init);
  op.name = "shift";
  op.shape = Shift::shape;
  op.forward = Shift::forward;
  Error err;
  ASSERT_EQ(weft_model_add_op(model.get(), &op, nullptr, &err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
  const weft_value hidden = add_linear(model, "a", x, 8);
  const weft_desc d = desc({8});
  weft_param by = {};
  ASSERT_EQ(weft_model_add_param(model.get(), "by", &d, WEFT_INIT_CONSTANT, 2, &by, &err), WEFT_OK);
  const weft_value out = add_node(model, "shift", hidden, by);
  ASSERT_EQ(weft_model_add_output(model.get(), out, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {add_linear(model, "b", hidden, 3), y});

  weft_plan_config config = decaying();
  config.step_kinds |= WEFT_STEPS_TRAIN_OUTPUTS;
  const PlanPtr plan = new_plan(model, config);
  EXPECT_EQ(trained(plan), kOthers);
  const RunPtr run = start(plan);
  train(run, 3);
  EXPECT_EQ(read(run, "by", WEFT_VALUE, {8}), std::vector<float>(8, 2));
}

// Each coordinate has a piece of the weight of the side head.
TEST(OffLossProgram, LeavesThePiecesAsTheyAre) {
  for (const uint32_t ranks : {1u, 2u}) {
    ModelPtr model = new_model();
    Error err;
    ASSERT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
    const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
    const weft_value hidden = add_linear(model, "a", x, 8);
    const weft_desc d = desc({8, 4});
    weft_param weight = {};
    ASSERT_EQ(weft_model_add_param(model.get(), "side", &d, WEFT_INIT_NORMAL, 0.5, &weight, &err),
              WEFT_OK);
    ASSERT_EQ(weft_model_cut_param(model.get(), weight, 1, "wide", 0, &err), WEFT_OK) << err.text;
    weft_value out = add_node(model, "linear", hidden, weight);
    ASSERT_EQ(add(model, {"all_gather", "wide", {}, 1}, out, &out, err), WEFT_OK) << err.text;
    ASSERT_EQ(weft_model_add_output(model.get(), out, &err), WEFT_OK) << err.text;
    add_node(model, "mse", {add_linear(model, "b", hidden, 3), y});

    weft_plan_config config = decaying(ranks);
    const weft_axis axis = {"wide", ranks, 0};
    config.axes = &axis;
    config.n_axes = 1;
    const PlanPtr plan = new_plan(model, config);
    EXPECT_EQ(trained(plan), kOthers);
    const RunPtr run = start(plan);
    const auto before = read(run, "side", WEFT_VALUE, {8, 4});
    train(run, 3);
    EXPECT_EQ(read(run, "side", WEFT_VALUE, {8, 4}), before);
  }
}

}  // namespace
