// Parameters whose uses share one sum of gradients.
#include "api/spmd.h"

namespace {

constexpr int kTurns = 5;

// A loop that is unrolled: in each turn, both coordinates apply their layer and pass the result on.
// The last use of the layer reads the input, and waits for no other coordinate.
ModelPtr loop(bool shares) {
  ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "pipe", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 4}), y = add_input(model, "y", {1, 4});
  const weft_desc d = desc({2, 4, 4});
  weft_param weight = {};
  EXPECT_EQ(weft_model_add_param(model.get(), "w", &d, WEFT_INIT_ZEROS, 0, &weight, &err), WEFT_OK);
  EXPECT_EQ(weft_model_cut_param(model.get(), weight, 0, "pipe", WEFT_CUT_DROP, &err), WEFT_OK);
  if (shares) {
    EXPECT_EQ(weft_model_share_gradient(model.get(), weight, &err), WEFT_OK) << err.text;
  }
  const auto layer = [&](const std::string& name, weft_value in) {
    weft_node_config linear = defaults(weft_node_config_init);
    linear.op = "linear";
    linear.name = name.c_str();
    linear.inputs = &in;
    linear.params = &weight;
    linear.n_inputs = linear.n_params = 1;
    weft_value made = {};
    EXPECT_EQ(weft_model_add_node(model.get(), &linear, &made, &err), WEFT_OK) << err.text;
    return made;
  };
  weft_value state = x;
  for (int turn = 1; turn < kTurns; ++turn) {
    const std::string name = "turn" + std::to_string(turn), moved = name + ".moved";
    state = layer(name, state);
    EXPECT_EQ(add(model, {"ppermute", "pipe", {1, 0}, 0, {}, moved.c_str()}, state, &state, err),
              WEFT_OK);
  }
  state = add_node(model, "add", {state, layer("last", x)});
  EXPECT_EQ(add(model, {"all_reduce", "pipe"}, state, &state, err), WEFT_OK) << err.text;
  add_node(model, "mse", {state, y}, "loss");
  return model;
}

struct LoopOutcome {
  std::vector<float> gradient;
  std::string digest;
  int64_t bytes;
};

LoopOutcome train_loop(bool shares, uint32_t ranks, const TensorPtr& weight, const TensorPtr& x) {
  weft_plan_config config = plan_config(1, 2, 2);
  const weft_axis axis = {"pipe", ranks, 0};
  config.axes = &axis;
  config.n_axes = 1;
  config.gradient_groups = 2;
  const PlanPtr plan = new_plan(loop(shares), config);
  const RunPtr run = start(plan, ranks - 1);
  Error err;
  EXPECT_EQ(weft_run_write(run.get(), "w", WEFT_VALUE, weight.get(), &err), WEFT_OK) << err.text;
  const TensorPtr y = zeros({4, 4});
  LoopOutcome out;
  loss_of_step(run, x, y);
  out.gradient = read(run, "w", WEFT_GRAD, {2, 4, 4});
  out.digest = digest(run);
  out.bytes = weft_plan_bytes(plan.get(), 0);
  return out;
}

TEST(Axes, ALoopCanHaveOneSumOfGradients) {
  // Of whole numbers, every order of additions is exact.
  const TensorPtr x = zeros({4, 4}), weight = zeros({2, 4, 4});
  for (int i = 0; i < 32; ++i) floats(weight)[i] = static_cast<float>(i * i % 3 - 1);
  for (int i = 0; i < 16; ++i) floats(x)[i] = static_cast<float>(i % 5 - 2);
  const LoopOutcome apart = train_loop(false, 1, weight, x),
                    shared = train_loop(true, 1, weight, x);
  EXPECT_NE(apart.gradient, std::vector<float>(32, 0.0f));
  EXPECT_EQ(shared.gradient, apart.gradient);
  // A sum of a coordinate has 64 bytes, and there is one for each of two gradient groups.
  EXPECT_EQ(shared.bytes, apart.bytes - 2 * 2 * 64 * (kTurns - 1));
  // Otherwise the order counts, and is the same wherever the coordinates run.
  const TensorPtr fractions = noise({2, 4, 4}, 3), inputs = noise({4, 4}, 4);
  EXPECT_EQ(train_loop(true, 2, fractions, inputs).digest,
            train_loop(true, 1, fractions, inputs).digest);
}

}  // namespace
