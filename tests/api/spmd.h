// What the tests of SPMD programs share.
#pragma once

#include "api/api.h"

inline weft_status add_axis(const ModelPtr& model, const char* name, uint32_t size, Error& err) {
  return weft_model_add_axis(model.get(), name, size, &err);
}

struct Collective {
  const char* op;
  const char* axis_name;
  std::vector<int32_t> coordinates = {};
  int32_t axis = 0;
  std::vector<int64_t> dims = {};
  const char* name = "node";
};

inline weft_status add(const ModelPtr& model, const Collective& c, weft_value x, weft_value* out,
                       Error& err) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = c.op;
  config.name = c.name;
  config.inputs = &x;
  config.n_inputs = 1;
  config.axis = c.axis;
  config.axis_name = c.axis_name;
  config.coordinates = c.coordinates.data();
  config.n_coordinates = static_cast<uint32_t>(c.coordinates.size());
  for (const int64_t dim : c.dims) config.dims[config.n_dims++] = dim;
  return weft_model_add_node(model.get(), &config, out, &err);
}

// A layer whose weight is cut over "wide", and whose output the coordinates add.
inline ModelPtr cut_layer(uint32_t deep, uint32_t wide) {
  ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "deep", deep, err), WEFT_OK) << err.text;
  EXPECT_EQ(add_axis(model, "wide", wide, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 8}), y = add_input(model, "y", {1, 3});
  EXPECT_EQ(weft_model_cut_input(model.get(), x, 1, "wide", 0, &err), WEFT_OK) << err.text;
  const weft_desc d = desc({8, 3});
  weft_param weight = {};
  EXPECT_EQ(weft_model_add_param(model.get(), "weight", &d, WEFT_INIT_NORMAL, 0.5, &weight, &err),
            WEFT_OK);
  EXPECT_EQ(weft_model_cut_param(model.get(), weight, 0, "wide", 0, &err), WEFT_OK) << err.text;
  weft_node_config linear = defaults(weft_node_config_init);
  linear.op = "linear";
  linear.name = "layer";
  linear.inputs = &x;
  linear.params = &weight;
  linear.n_inputs = linear.n_params = 1;
  weft_value out = {};
  EXPECT_EQ(weft_model_add_node(model.get(), &linear, &out, &err), WEFT_OK) << err.text;
  EXPECT_EQ(add(model, {"all_reduce", "wide"}, out, &out, err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_output(model.get(), out, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {out, y}, "loss");
  return model;
}

// The loss of a step whose micro-batches may end in any order.
inline double loss_of_step(const RunPtr& run, const TensorPtr& x, const TensorPtr& y) {
  Error err;
  EXPECT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), WEFT_OK) << err.text;
  weft_event event = sized<weft_event>();
  do {
    EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  } while (event.kind == WEFT_EVENT_MICRO_BATCH);
  EXPECT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << event.text;
  return event.loss;
}
