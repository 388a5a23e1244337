// What the tests of the C API share: owners of handles, a small model, and steps polled to their
// end. Only <weft.h> is known here.
#pragma once

#include <gtest/gtest.h>
#include <weft.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "support/config.h"

struct Error : weft_error {
  Error() : weft_error(sized<weft_error>()) {}
};

struct Free {
  void operator()(weft_model* model) const { weft_model_free(model); }
  void operator()(weft_plan* plan) const { weft_plan_free(plan); }
  void operator()(weft_run* run) const { weft_run_free(run); }
  void operator()(weft_tensor* tensor) const { weft_tensor_unref(tensor); }
  void operator()(weft_mesh* mesh) const { weft_mesh_free(mesh); }
  void operator()(weft_checkpoint* checkpoint) const { weft_checkpoint_free(checkpoint); }
};
using ModelPtr = std::unique_ptr<weft_model, Free>;
using PlanPtr = std::unique_ptr<weft_plan, Free>;
using RunPtr = std::unique_ptr<weft_run, Free>;
using TensorPtr = std::unique_ptr<weft_tensor, Free>;
using MeshPtr = std::unique_ptr<weft_mesh, Free>;
using CheckpointPtr = std::unique_ptr<weft_checkpoint, Free>;

// A call failed as it should, with a text that has all of `parts` in it.
inline void expect_error(weft_status found, const weft_error& err, weft_status expected,
                         std::initializer_list<const char*> parts) {
  EXPECT_EQ(found, expected) << err.text;
  EXPECT_EQ(err.status, expected);
  for (const char* part : parts)
    EXPECT_NE(std::strstr(err.text, part), nullptr) << "no \"" << part << "\" in: " << err.text;
}

inline weft_desc desc(std::initializer_list<int64_t> dims, weft_dtype dtype = WEFT_F32) {
  weft_desc out = {};
  out.dtype = dtype;
  for (int64_t d : dims) out.dims[out.n_dims++] = d;
  return out;
}

inline int64_t elements(const weft_desc& d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d.n_dims; ++i) n *= d.dims[i];
  return n;
}

inline TensorPtr zeros(std::initializer_list<int64_t> dims, weft_dtype dtype = WEFT_F32) {
  const weft_desc d = desc(dims, dtype);
  weft_tensor* out = nullptr;
  Error err;
  EXPECT_EQ(weft_tensor_new(&d, &out, &err), WEFT_OK) << err.text;
  return TensorPtr(out);
}

inline float* floats(const TensorPtr& tensor) {
  return static_cast<float*>(weft_tensor_data(tensor.get()));
}

inline std::vector<float> values(const TensorPtr& tensor) {
  return {floats(tensor), floats(tensor) + elements(weft_tensor_desc(tensor.get()))};
}

// Numbers between -1 and 1 that look drawn.
inline TensorPtr noise(std::initializer_list<int64_t> dims, uint32_t seed = 1) {
  TensorPtr out = zeros(dims);
  for (int64_t i = 0; i < elements(desc(dims)); ++i) {
    seed = seed * 1664525u + 1013904223u;
    floats(out)[i] = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return out;
}

inline ModelPtr new_model() {
  weft_model* out = nullptr;
  Error err;
  EXPECT_EQ(weft_model_new(&out, &err), WEFT_OK) << err.text;
  return ModelPtr(out);
}

inline weft_value add_input(const ModelPtr& model, const char* name,
                            std::initializer_list<int64_t> sample, uint32_t flags = 0) {
  const weft_desc d = desc(sample);
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_input(model.get(), name, &d, flags, &out, &err), WEFT_OK) << err.text;
  return out;
}

inline weft_value add_linear(const ModelPtr& model, const char* name, weft_value x,
                             int64_t out_features) {
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_linear(model.get(), name, x, out_features, &out, &err), WEFT_OK)
      << err.text;
  return out;
}

inline weft_value add_node(const ModelPtr& model, const char* op, std::vector<weft_value> inputs,
                           const char* name = nullptr) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.name = name;
  config.inputs = inputs.data();
  config.n_inputs = static_cast<uint32_t>(inputs.size());
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return out;
}

// x [6] -> 8 -> 8 -> 3, mean squared error to y [3]; the hidden layer's values are an output.
inline ModelPtr small_model(uint32_t input_flags = 0) {
  ModelPtr model = new_model();
  weft_value x = add_input(model, "x", {1, 6}, input_flags);
  const weft_value y = add_input(model, "y", {1, 3});
  x = add_node(model, "gelu", {add_linear(model, "a", x, 8)});
  x = add_node(model, "gelu", {add_linear(model, "b", x, 8)}, "hidden");
  Error err;
  EXPECT_EQ(weft_model_add_output(model.get(), x, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {add_linear(model, "c", x, 3), y});
  return model;
}

inline weft_plan_config plan_config(uint32_t ranks = 1, uint32_t micro_batches = 3,
                                    uint32_t micro_batch_size = 2) {
  weft_plan_config config = defaults(weft_plan_config_init);
  config.ranks = ranks;
  config.micro_batches = micro_batches;
  config.micro_batch_size = micro_batch_size;
  static const weft_optimizer optimizer = unclipped();
  config.optimizer = &optimizer;
  return config;
}

inline PlanPtr new_plan(const ModelPtr& model, const weft_plan_config& config) {
  weft_plan* out = nullptr;
  Error err;
  EXPECT_EQ(weft_plan_new(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return PlanPtr(out);
}

inline RunPtr start(const PlanPtr& plan, uint32_t threads = 0) {
  weft_run_config config = defaults(weft_run_config_init);
  config.threads = threads;
  weft_run* out = nullptr;
  Error err;
  EXPECT_EQ(weft_run_start(plan.get(), nullptr, &config, &out, &err), WEFT_OK) << err.text;
  return RunPtr(out);
}

inline RunPtr start(const ModelPtr& model, const weft_plan_config& config, uint32_t threads = 0) {
  return start(new_plan(model, config), threads);
}

inline weft_status submit(const RunPtr& run, std::vector<weft_tensor*> inputs, weft_step_mode mode,
                          uint64_t tag, Error* err = nullptr) {
  return weft_run_submit(run.get(), inputs.data(), static_cast<uint32_t>(inputs.size()), mode, tag,
                         err);
}

// The events of one step, its outputs copied.
struct Outcome {
  uint32_t kind = 0;  // of the final event
  weft_status status = 0;
  int32_t rank = -1;
  uint64_t tag = 0, step = 0;
  double loss = 0, grad_norm = 0;
  std::string text;
  std::vector<double> losses;                            // per micro-batch
  std::vector<std::vector<std::vector<float>>> outputs;  // per micro-batch, per output
};

// Polls to the next final event.
inline Outcome finish(const RunPtr& run) {
  Outcome out;
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run.get(), &event, -1, nullptr) == 1) {
    if (event.kind == WEFT_EVENT_MICRO_BATCH) {
      EXPECT_EQ(event.micro_batch, out.losses.size());
      out.losses.push_back(event.loss);
      auto& outputs = out.outputs.emplace_back();
      for (uint32_t i = 0; i < event.n_outputs; ++i) {
        const float* data = static_cast<const float*>(weft_tensor_data(event.outputs[i]));
        outputs.emplace_back(data, data + elements(weft_tensor_desc(event.outputs[i])));
      }
      continue;
    }
    out.kind = event.kind;
    out.status = event.status;
    out.rank = event.rank;
    out.tag = event.tag;
    out.step = event.step;
    out.loss = event.loss;
    out.grad_norm = event.grad_norm;
    if (event.text) out.text = event.text;
    return out;
  }
  ADD_FAILURE() << "no final event";
  return out;
}

inline Outcome step(const RunPtr& run, std::vector<weft_tensor*> inputs,
                    weft_step_mode mode = WEFT_TRAIN, uint64_t tag = 0) {
  Error err;
  EXPECT_EQ(submit(run, std::move(inputs), mode, tag, &err), WEFT_OK) << err.text;
  return finish(run);
}

inline CheckpointPtr open_checkpoint(const std::string& path) {
  weft_checkpoint* out = nullptr;
  Error err;
  EXPECT_EQ(weft_checkpoint_open(path.c_str(), &out, &err), WEFT_OK) << err.text;
  return CheckpointPtr(out);
}

inline std::string digest(const CheckpointPtr& checkpoint) {
  char out[33] = {};
  Error err;
  EXPECT_EQ(weft_checkpoint_digest(checkpoint.get(), -1, out, &err), WEFT_OK) << err.text;
  return out;
}

inline std::string digest(const RunPtr& run) {
  char out[33] = {};
  Error err;
  EXPECT_EQ(weft_run_digest(run.get(), out, &err), WEFT_OK) << err.text;
  return out;
}

inline std::vector<float> read(const RunPtr& run, const char* name, weft_part part,
                               std::initializer_list<int64_t> dims) {
  const TensorPtr to = zeros(dims);
  Error err;
  EXPECT_EQ(weft_run_read(run.get(), name, part, to.get(), &err), WEFT_OK) << err.text;
  return values(to);
}
