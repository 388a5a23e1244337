// Gradients of tables of which a step uses some rows.
#include <algorithm>

#include "api/api.h"

namespace {

constexpr int64_t kRows = 150, kWidth = 24, kSamples = 128;

// Rows of a table, as outputs; or, if `tied`, their products with all rows of the same table.
ModelPtr table_model(bool tied) {
  ModelPtr model = new_model();
  Error err;
  const weft_desc index = desc({1}, WEFT_I32), table = desc({kRows, kWidth});
  weft_value x = {};
  weft_param w = {};
  EXPECT_EQ(weft_model_add_input(model.get(), "x", &index, 0, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_param(model.get(), "w", &table, WEFT_INIT_NORMAL, 1, &w, &err), WEFT_OK)
      << err.text;
  const auto node = [&](const char* op, weft_value in, uint32_t flags) {
    weft_node_config config = defaults(weft_node_config_init);
    config.op = op;
    config.name = op;
    config.inputs = &in;
    config.params = &w;
    config.n_inputs = config.n_params = 1;
    config.flags = flags;
    weft_value out = {};
    EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
    return out;
  };
  weft_value out = node("embedding", x, 0);
  if (tied) out = node("linear", out, WEFT_NODE_OUT_IN);
  const weft_value y = add_input(model, "y", {1, tied ? kRows : kWidth});
  add_node(model, "mse", {out, y});
  return model;
}

TensorPtr indices(int32_t first) {
  TensorPtr out = zeros({kSamples}, WEFT_I32);
  auto* const rows = static_cast<int32_t*>(weft_tensor_data(out.get()));
  for (int32_t i = 0; i < kSamples; ++i) rows[i] = (first + i * i * 7) % (kRows / 2);
  return out;
}

struct Case {
  bool tied;
  uint32_t ranks, data, groups;
};

RunPtr start(const Case& c, const char* precision) {
  weft_plan_config config = plan_config(c.ranks, 4, 32);
  config.precision = precision;
  config.gradient_groups = c.groups;
  const weft_axis axes[] = {{"data", c.data, 0}, {"stage", c.ranks / c.data, 0}};
  config.axes = axes;
  config.n_axes = 2;
  static const weft_optimizer fixed = [] {
    weft_optimizer out = unclipped();
    out.rate = 0;
    return out;
  }();
  config.optimizer = &fixed;
  return start(table_model(c.tied), config);
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> out(values.size());
  std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
  return out;
}

std::vector<uint32_t> gradient(const RunPtr& run) {
  return bits(read(run, "w", WEFT_GRAD, {kRows, kWidth}));
}

const Case kCases[] = {{false, 1, 1, 1}, {false, 1, 1, 4}, {false, 2, 2, 2},
                       {true, 1, 1, 1},  {true, 1, 1, 4},  {true, 2, 1, 1},
                       {true, 2, 1, 4},  {true, 2, 2, 2},  {true, 4, 2, 4}};

std::vector<std::pair<Case, const char*>> cases() {
  std::vector<std::pair<Case, const char*>> out;
  for (const Case& c : kCases)
    for (const char* precision : {"f32", "bf16"}) out.emplace_back(c, precision);
  return out;
}

TEST(EmbeddingGradient, ForgetsTheRowsOfTheStepBefore) {
  for (const auto& [c, precision] : cases()) {
    const TensorPtr before = indices(3), now = indices(50),
                    y = noise({kSamples, c.tied ? kRows : kWidth});
    const RunPtr first = start(c, precision), second = start(c, precision);
    step(first, {now.get(), y.get()});
    const auto expected = gradient(first);
    for (int i = 0; i < 2; ++i) step(second, {before.get(), y.get()});
    step(second, {now.get(), y.get()});
    EXPECT_EQ(gradient(second), expected) << c.tied << c.ranks << c.data << c.groups;
  }
}

// Sums in bf16 products that are too small for normal numbers become zeros of the same sign. A row
// that no index names must be +0 then, as after an addition of +0, wherever the sums are added.
TEST(EmbeddingGradient, HasNoNegativeZeros) {
  const TensorPtr x = indices(3), y = zeros({kSamples, kRows}), w = zeros({kRows, kWidth});
  for (int64_t row = 0; row < kRows / 2; ++row) floats(w)[row * kWidth] = 1;
  // The derivative is 2 (product - y) / (kSamples * kRows), and the products of these rows are 0.
  constexpr float kUnit = kSamples * kRows / 2;
  for (int64_t row = kRows / 2; row < kRows; ++row) {
    floats(y)[kSamples / 2 * kRows + row] = -1.5e-38f * kUnit;
    floats(y)[kSamples / 4 * 3 * kRows + row] = 1.6e-38f * kUnit;
  }
  for (const auto& [c, precision] : cases()) {
    if (!c.tied) continue;
    const RunPtr run = start(c, precision);
    Error err;
    EXPECT_EQ(weft_run_write(run.get(), "w", WEFT_VALUE, w.get(), &err), WEFT_OK) << err.text;
    for (int i = 0; i < 2; ++i) step(run, {x.get(), y.get()});
    const auto found = gradient(run);
    EXPECT_EQ(std::count(found.begin(), found.end(), 0x80000000u), 0)
        << c.ranks << c.data << c.groups;
  }
}

}  // namespace
