// The order in which a step adds gradients, shown by numbers whose sum differs in every other
// order: the uses of a parameter or a value from the last to the first, the micro-batches of each
// use ascending. Expected values are computed by hand: above 2^24 a float has no odd numbers.
#include <algorithm>

#include "api/api.h"

namespace {

constexpr float kLarge = 16777216;  // 2^24

weft_value node(const ModelPtr& model, const char* op, std::vector<weft_value> in,
                std::vector<weft_param> params, const std::string& name, double factor = 0) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.name = name.c_str();
  config.inputs = in.data();
  config.n_inputs = static_cast<uint32_t>(in.size());
  config.params = params.data();
  config.n_params = static_cast<uint32_t>(params.size());
  config.factor = factor;
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return out;
}

// Plans that cut at all of `cuts`, at all but the first, and so on down to none.
std::vector<weft_plan_config> plans(uint32_t micro_batches, const std::vector<const char*>& cuts) {
  std::vector<weft_plan_config> out;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (const char* recompute : {"none", "stage"})
      for (uint32_t first = 0; first <= cuts.size(); ++first) {
        weft_plan_config config =
            plan_config(static_cast<uint32_t>(cuts.size()) - first + 1, micro_batches, 1);
        config.schedule = schedule;
        config.recompute = recompute;
        config.cuts = cuts.data() + first;
        config.n_cuts = static_cast<uint32_t>(cuts.size()) - first;
        out.push_back(config);
      }
  return out;
}

// Gradient of w in the loss mean((w x_0 + w x_1 + .. - y)^2) at w = 0 and y = -samples / 2: the sum
// of all x, in the step's order. One sample per micro-batch; x[use][micro-batch].
float gradient_of_uses(const std::vector<std::vector<float>>& x, bool each_in_its_stage) {
  const int64_t samples = static_cast<int64_t>(x[0].size());
  const ModelPtr model = new_model();
  weft_param w = {};
  Error err;
  const weft_desc one = desc({1, 1});
  EXPECT_EQ(weft_model_add_param(model.get(), "w", &one, WEFT_INIT_ZEROS, 0, &w, &err), WEFT_OK)
      << err.text;
  std::vector<weft_value> in;
  std::vector<TensorPtr> tensors;
  std::vector<weft_tensor*> batch;
  for (size_t use = 0; use < x.size(); ++use) {
    in.push_back(add_input(model, ("x" + std::to_string(use)).c_str(), {1, 1}));
    tensors.push_back(zeros({samples, 1}));
    std::copy(x[use].begin(), x[use].end(), floats(tensors.back()));
    batch.push_back(tensors.back().get());
  }
  const weft_value y = add_input(model, "y", {1, 1});
  tensors.push_back(zeros({samples, 1}));
  std::fill_n(floats(tensors.back()), samples, -static_cast<float>(samples) / 2);
  batch.push_back(tensors.back().get());
  weft_value sum = {};
  std::vector<std::string> names;
  for (size_t use = 0; use < x.size(); ++use) names.push_back("use" + std::to_string(use));
  for (size_t use = 0; use < x.size(); ++use) {
    const weft_value product = node(model, "linear", {in[use]}, {w}, names[use]);
    sum = use == 0 ? product : add_node(model, "add", {sum, product});
  }
  add_node(model, "mse", {sum, y});
  std::vector<const char*> cuts;
  for (size_t use = 1; use < x.size() && each_in_its_stage; ++use)
    cuts.push_back(names[use].c_str());
  std::vector<float> found;
  for (const weft_plan_config& config : plans(static_cast<uint32_t>(samples), cuts)) {
    const RunPtr run = start(model, config);
    step(run, batch, WEFT_NO_UPDATE);
    found.push_back(read(run, "w", WEFT_GRAD, {1, 1})[0]);
    EXPECT_EQ(found.back(), found[0])
        << config.schedule << ", " << config.recompute << ", " << config.ranks << " ranks";
  }
  return found[0];
}

TEST(Order, UsesOfAParameterAreAddedFromTheLastToTheFirst) {
  for (const bool apart : {false, true}) {
    EXPECT_EQ(gradient_of_uses({{-kLarge}, {1}, {kLarge}}, apart),
              0);  // (L + 1) - L; any other order is 1
    EXPECT_EQ(gradient_of_uses({{-kLarge}, {1}, {1}, {kLarge}}, apart),
              0);  // ((L + 1) + 1) - L; ascending is 2, in pairs 1
    EXPECT_EQ(gradient_of_uses({{kLarge}, {1}, {1}, {-kLarge}}, apart), 2);
    EXPECT_EQ(gradient_of_uses({{1}, {2}, {4}, {8}, {16}}, apart), 31);  // each counts
  }
}

TEST(Order, MicroBatchesOfAUseAreAddedAscending) {
  for (const bool apart : {false, true}) {
    EXPECT_EQ(gradient_of_uses({{kLarge, 1, -kLarge, 0}}, apart), 0);
    EXPECT_EQ(gradient_of_uses({{-kLarge, kLarge, 1, 0}}, apart), 1);
    // One sum per use first: the second's is 2^24, the first's 1 + 1.
    EXPECT_EQ(gradient_of_uses({{1, 0, 1, 0}, {0, kLarge, 0, 0}}, apart), kLarge + 2);
    // By micro-batches it would be ((L + 1) + 1) + .. = L.
    EXPECT_EQ(gradient_of_uses({{1, 1, 1, 1}, {kLarge, 0, 0, 0}, {0, 0, 0, 0}}, apart), kLarge + 4);
  }
}

// x is used by nodes that scale it; its gradient is the sum of the factors.
float gradient_of_value(const std::vector<float>& factors, bool each_in_its_stage) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 1}, WEFT_INPUT_WANT_GRAD),
                   y = add_input(model, "y", {1, 1});
  std::vector<std::string> names;
  for (size_t use = 0; use < factors.size(); ++use) names.push_back("use" + std::to_string(use));
  weft_value sum = {};
  for (size_t use = 0; use < factors.size(); ++use) {
    const weft_value product = node(model, "scale", {x}, {}, names[use], factors[use]);
    sum = use == 0 ? product : add_node(model, "add", {sum, product});
  }
  add_node(model, "mse", {sum, y});
  const TensorPtr zero = zeros({1, 1}), target = zeros({1, 1});
  floats(target)[0] = -0.5f;
  std::vector<const char*> cuts;
  for (size_t use = 1; use < factors.size() && each_in_its_stage; ++use)
    cuts.push_back(names[use].c_str());
  std::vector<float> found;
  for (const weft_plan_config& config : plans(1, cuts)) {
    const RunPtr run = start(model, config);
    step(run, {zero.get(), target.get()}, WEFT_NO_UPDATE);
    found.push_back(read(run, "x", WEFT_GRAD, {1, 1})[0]);
    EXPECT_EQ(found.back(), found[0])
        << config.schedule << ", " << config.recompute << ", " << config.ranks << " ranks";
  }
  return found[0];
}

TEST(Order, UsesOfAValueAreAddedFromTheLastToTheFirst) {
  for (const bool apart : {false, true}) {
    EXPECT_EQ(gradient_of_value({-kLarge, 1, kLarge}, apart), 0);
    EXPECT_EQ(gradient_of_value({-kLarge, 1, 1, kLarge}, apart), 0);
    EXPECT_EQ(gradient_of_value({kLarge, 1, 1, -kLarge}, apart), 2);
    EXPECT_EQ(gradient_of_value({1, 2, 4, 8, 16}, apart), 31);
  }
}

// One node that reads x through three ports: its last port is the last use.
TEST(Order, PortsOfANodeAreAddedFromTheLastToTheFirst) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 1}, WEFT_INPUT_WANT_GRAD),
                   y = add_input(model, "y", {1, 1});
  const std::vector<weft_value> thrice(3, x);
  weft_node_config concat = defaults(weft_node_config_init);
  concat.op = "concat";
  concat.inputs = thrice.data();
  concat.n_inputs = 3;
  concat.axis = 1;
  weft_value joined = {};
  weft_param w = {};
  Error err;
  ASSERT_EQ(weft_model_add_node(model.get(), &concat, &joined, &err), WEFT_OK) << err.text;
  const weft_desc column = desc({3, 1});
  ASSERT_EQ(weft_model_add_param(model.get(), "w", &column, WEFT_INIT_ZEROS, 0, &w, &err), WEFT_OK)
      << err.text;
  add_node(model, "mse", {node(model, "linear", {joined}, {w}, "product"), y});
  const TensorPtr zero = zeros({1, 1}), target = zeros({1, 1}), factors = zeros({3, 1});
  floats(target)[0] = -0.5f;
  const RunPtr run = start(model, plan_config(1, 1, 1));
  floats(factors)[0] = -kLarge;
  floats(factors)[1] = 1;
  floats(factors)[2] = kLarge;
  ASSERT_EQ(weft_run_write(run.get(), "w", WEFT_VALUE, factors.get(), &err), WEFT_OK) << err.text;
  step(run, {zero.get(), target.get()}, WEFT_NO_UPDATE);
  EXPECT_EQ(read(run, "x", WEFT_GRAD, {1, 1})[0], 0);  // (L + 1) - L
}

}  // namespace
