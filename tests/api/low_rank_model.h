// A model with a user op that has parameters and a stash, for the tests of such ops.
#pragma once

#include "api/api.h"
#include "support/low_rank_op.h"

inline void add_low_rank_op(const ModelPtr& model, const weft_op& op = low_rank_op()) {
  Error err;
  EXPECT_EQ(weft_model_add_op(model.get(), &op, nullptr, &err), WEFT_OK) << err.text;
}

inline weft_param add_param(const ModelPtr& model, const char* name,
                            std::initializer_list<int64_t> dims) {
  const weft_desc d = desc(dims);
  weft_param out = {};
  Error err;
  EXPECT_EQ(weft_model_add_param(model.get(), name, &d, WEFT_INIT_NORMAL, 0.4, &out, &err), WEFT_OK)
      << err.text;
  return out;
}

inline weft_status add_node(const ModelPtr& model, const char* op, const char* name, weft_value x,
                            std::vector<weft_param> params, weft_value* out, Error& err) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.name = name;
  config.inputs = &x;
  config.n_inputs = 1;
  config.params = params.data();
  config.n_params = static_cast<uint32_t>(params.size());
  return weft_model_add_node(model.get(), &config, out, &err);
}

inline weft_value add_node(const ModelPtr& model, const char* op, const char* name, weft_value x,
                           std::vector<weft_param> params) {
  weft_value out = {};
  Error err;
  EXPECT_EQ(add_node(model, op, name, x, std::move(params), &out, err), WEFT_OK) << err.text;
  return out;
}

using AddLowRank = weft_value (*)(const ModelPtr&, const char*, weft_value, weft_param, weft_param);

inline weft_value add_own(const ModelPtr& model, const char* name, weft_value x, weft_param a,
                          weft_param b) {
  return add_node(model, "low_rank", name, x, {a, b});
}

// The same from built-in ops.
inline weft_value add_built_in(const ModelPtr& model, const char*, weft_value x, weft_param a,
                               weft_param b) {
  const weft_value low = add_node(model, "linear", nullptr, x, {a});
  return add_node(model, "add", {x, add_node(model, "linear", nullptr, low, {b})});
}

// x [6] -> 8, then two nodes with the same A and B and one with its own, -> 3; all of it is below
// a loss. The values after the last of them are an output.
inline ModelPtr low_rank_model(const weft_op& op = low_rank_op(), AddLowRank add = add_own,
                               bool tied = true) {
  ModelPtr model = new_model();
  add_low_rank_op(model, op);
  const weft_value x = add_input(model, "x", {1, 6}, WEFT_INPUT_WANT_GRAD),
                   y = add_input(model, "y", {1, 3});
  const weft_param a = add_param(model, "own.a", {8, 2}), b = add_param(model, "own.b", {2, 8}),
                   c = add_param(model, "own.c", {8, 4}), d = add_param(model, "own.d", {4, 8}),
                   e = tied ? a : add_param(model, "own.e", {8, 2}),
                   f = tied ? b : add_param(model, "own.f", {2, 8});
  weft_value h = add_node(model, "linear", "in", x, {add_param(model, "in.weight", {6, 8})});
  h = add(model, "first", h, a, b);
  h = add(model, "second", add_node(model, "tanh", {h}, "middle"), c, d);
  h = add(model, "third", add_node(model, "tanh", {h}), e, f);
  Error err;
  EXPECT_EQ(weft_model_add_output(model.get(), h, &err), WEFT_OK) << err.text;
  h = add_node(model, "linear", "out", h, {add_param(model, "out.weight", {8, 3})});
  add_node(model, "mse", {h, y});
  return model;
}

inline const TensorPtr& batch_x() {
  static const TensorPtr x = noise({12, 6}, 1);
  return x;
}
inline const TensorPtr& batch_y() {
  static const TensorPtr y = noise({12, 3}, 2);
  return y;
}

// The results of some steps.
struct Trained {
  std::vector<double> losses;
  std::string digest;
  std::vector<std::vector<std::vector<float>>> outputs;
  friend bool operator==(const Trained&, const Trained&) = default;
};

inline Trained train_only(const RunPtr& run) {
  Trained out;
  weft_tensor* batch[] = {batch_x().get(), batch_y().get()};
  Error err;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(weft_run_step(run.get(), batch, 2, WEFT_TRAIN, nullptr, 0, &out.losses.emplace_back(),
                            &err),
              WEFT_OK)
        << err.text;
  out.digest = digest(run);
  EXPECT_LT(out.losses.back(), out.losses.front());
  return out;
}

inline Trained train(const RunPtr& run) {
  Trained out = train_only(run);
  out.outputs = step(run, {batch_x().get(), batch_y().get()}, WEFT_FORWARD).outputs;
  return out;
}

inline Trained train(const ModelPtr& model, const weft_plan_config& config, uint32_t threads = 0) {
  return train(start(model, config, threads));
}

// 12 samples as 4 micro-batches.
inline weft_plan_config four(uint32_t ranks = 1) { return plan_config(ranks, 4, 3); }
