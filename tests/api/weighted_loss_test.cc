// A cross entropy with weights, made of nodes as weft_model_new(3) describes, against its
// definition.
#include <algorithm>
#include <cmath>

#include "api/api.h"

namespace {

constexpr int64_t kSamples = 2, kClasses = 5;
constexpr int32_t kTargets[kSamples] = {1, 3};

// logits [5], a class and its weight -> the loss.
ModelPtr weighted_model() {
  ModelPtr model = new_model();
  const weft_value logits = add_input(model, "logits", {1, kClasses}, WEFT_INPUT_WANT_GRAD);
  const weft_desc one = desc({1, 1}, WEFT_I32);
  weft_value target = {}, picked = {};
  Error err;
  EXPECT_EQ(weft_model_add_input(model.get(), "target", &one, 0, &target, &err), WEFT_OK);
  const weft_value weight = add_input(model, "weight", {1, 1});
  const weft_value both[] = {add_node(model, "log_softmax", {logits}), target};
  weft_node_config pick = defaults(weft_node_config_init);
  pick.op = "gather";
  pick.inputs = both;
  pick.n_inputs = 2;
  pick.axis = 1;
  EXPECT_EQ(weft_model_add_node(model.get(), &pick, &picked, &err), WEFT_OK) << err.text;
  const weft_value term = add_node(model, "mul", {picked, weight});
  add_node(model, "sum_loss", {add_node(model, "neg", {term}), weight});
  return model;
}

TEST(WeightedLoss, IsAsDefined) {
  const TensorPtr logits = noise({kSamples, kClasses}, 3), targets = zeros({kSamples, 1}, WEFT_I32),
                  weights = zeros({kSamples, 1});
  std::copy_n(kTargets, kSamples, static_cast<int32_t*>(weft_tensor_data(targets.get())));
  for (const float scale : {1.0f, 1e4f}) {
    for (int i = 0; i < kSamples * kClasses; ++i) floats(logits)[i] *= scale;
    floats(weights)[0] = 3;
    floats(weights)[1] = 0.5f;
    const RunPtr run = start(weighted_model(), plan_config(1, 1, kSamples));
    const Outcome outcome = step(run, {logits.get(), targets.get(), weights.get()}, WEFT_NO_UPDATE);
    const std::vector<float> grad = read(run, "logits", WEFT_GRAD, {kSamples, kClasses});
    double loss = 0;
    for (int s = 0; s < kSamples; ++s) {
      const float* row = floats(logits) + s * kClasses;
      const double share = floats(weights)[s] / double{kSamples};
      const double top = *std::max_element(row, row + kClasses);
      double sum = 0;
      for (int i = 0; i < kClasses; ++i) sum += std::exp(row[i] - top);
      loss += share * (std::log(sum) + top - row[kTargets[s]]);
      for (int i = 0; i < kClasses; ++i) {
        const double expected = share * (std::exp(row[i] - top) / sum - (i == kTargets[s]));
        EXPECT_NEAR(grad[static_cast<size_t>(s * kClasses + i)], expected, 1e-6);
      }
    }
    EXPECT_NEAR(outcome.loss, loss, 1e-6 * std::max(1.0, loss));
  }
}

}  // namespace
