// A cross entropy with weights, made of nodes as weft_model_new(3) describes.
#include <cmath>

#include "api/api.h"

namespace {

struct Found {
  double loss;
  std::vector<float> grad;
};

// One step on two samples of 5 logits, whose classes are 1 and 3. `weights`: of the targets; empty:
// the loss of the library.
Found step_with(const std::vector<float>& weights, float scale) {
  const ModelPtr model = new_model();
  const weft_value logits = add_input(model, "logits", {1, 5}, WEFT_INPUT_WANT_GRAD);
  const weft_desc rows = weights.empty() ? desc({1}, WEFT_I32) : desc({1, 1}, WEFT_I32);
  weft_value classes = {};
  Error err;
  EXPECT_EQ(weft_model_add_input(model.get(), "classes", &rows, 0, &classes, &err), WEFT_OK);
  const weft_value x = add_linear(model, "head", logits, 5);
  const TensorPtr data = noise({2, 5}, 3);
  for (int i = 0; i < 10; ++i) floats(data)[i] *= scale;
  const TensorPtr targets = weights.empty() ? zeros({2}, WEFT_I32) : zeros({2, 1}, WEFT_I32);
  static_cast<int32_t*>(weft_tensor_data(targets.get()))[0] = 1;
  static_cast<int32_t*>(weft_tensor_data(targets.get()))[1] = 3;
  std::vector<weft_tensor*> batch = {data.get(), targets.get()};
  const TensorPtr factors = zeros({2, 1});
  if (weights.empty()) {
    add_node(model, "softmax_cross_entropy", {x, classes});
  } else {
    const weft_value w = add_input(model, "weights", {1, 1});
    std::copy(weights.begin(), weights.end(), floats(factors));
    batch.push_back(factors.get());
    weft_node_config pick = defaults(weft_node_config_init);
    const weft_value both[] = {add_node(model, "log_softmax", {x}), classes};
    pick.op = "gather";
    pick.inputs = both;
    pick.n_inputs = 2;
    pick.axis = 1;
    weft_value picked = {};
    EXPECT_EQ(weft_model_add_node(model.get(), &pick, &picked, &err), WEFT_OK) << err.text;
    add_node(model, "sum_loss", {add_node(model, "neg", {add_node(model, "mul", {picked, w})}), w});
  }
  const RunPtr run = start(model, plan_config(1, 1, 2));
  const Outcome outcome = step(run, batch, WEFT_NO_UPDATE);
  EXPECT_EQ(outcome.status, WEFT_OK) << outcome.text;
  return {outcome.loss, read(run, "logits", WEFT_GRAD, {2, 5})};
}

TEST(WeightedLoss, WithWeightsOfOneItIsThatOfTheLibrary) {
  for (const float scale : {1.0f, 1e4f}) {
    const Found own = step_with({1, 1}, scale), plain = step_with({}, scale);
    EXPECT_NEAR(own.loss, plain.loss, 1e-6 * std::abs(plain.loss));
    for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(own.grad[i], plain.grad[i], 1e-6);
  }
}

TEST(WeightedLoss, IsTheSumOfItsTerms) {
  const Found first = step_with({1, 0}, 1), second = step_with({0, 1}, 1),
              both = step_with({3, 5}, 1);
  EXPECT_NEAR(both.loss, 3 * first.loss + 5 * second.loss, 1e-6 * both.loss);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(both.grad[i], 3 * first.grad[i] + 5 * second.grad[i], 1e-6);
}

}  // namespace
