// SPMD programs: what is cut over axes, where coordinates run, and what a caller may get wrong.
#include <cmath>

#include "api/api.h"

namespace {

weft_status add_axis(const ModelPtr& model, const char* name, uint32_t size, Error& err) {
  return weft_model_add_axis(model.get(), name, size, &err);
}

struct Collective {
  const char* op;
  const char* axis_name;
  std::vector<int32_t> coordinates = {};
  int32_t axis = 0;
  std::vector<int64_t> dims = {};
};

weft_status add(const ModelPtr& model, const Collective& c, weft_value x, weft_value* out,
                Error& err) {
  weft_node_config config = WEFT_NODE_INIT;
  config.op = c.op;
  config.name = "node";
  config.inputs = &x;
  config.n_inputs = 1;
  config.axis = c.axis;
  config.axis_name = c.axis_name;
  config.coordinates = c.coordinates.data();
  config.n_coordinates = static_cast<uint32_t>(c.coordinates.size());
  for (const int64_t dim : c.dims) config.dims[config.rank++] = dim;
  return weft_model_add_node(model.get(), &config, out, &err);
}

TEST(Axes, AreRefusedByName) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "pipe", 4, err), WEFT_OK) << err.text;
  const struct {
    const char* name;
    uint32_t size;
    const char* text;
  } cases[] = {
      {"data", 2, "axis 'data': plans have an axis of this name, expected another name"},
      {"stage", 2, "axis 'stage': plans have an axis of this name, expected another name"},
      {"pipe", 2, "axis 'pipe': the name is taken"},
      {"", 2, "axis name must have 1 to 200 bytes, has 0"},
      {"wide", 17, "axis 'wide' has size 17, expected 1 to 16"},
      {"none", 0, "axis 'none' has size 0, expected 1 to 16"},
  };
  for (const auto& c : cases)
    expect_error(add_axis(model, c.name, c.size, err), err, WEFT_EINVAL, {c.text});
  ASSERT_EQ(add_axis(model, "a", 16, err), WEFT_OK) << err.text;
  ASSERT_EQ(add_axis(model, "b", 16, err), WEFT_OK) << err.text;
  expect_error(add_axis(model, "c", 5, err), err, WEFT_EINVAL,
               {"axis 'c' makes 5120 coordinates of the model, expected at most 4096"});
}

TEST(Axes, CutsAreRefusedByTheirTensor) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "pipe", 4, err), WEFT_OK) << err.text;
  ASSERT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 6, 8});
  const auto cut = [&](uint32_t dim, const char* axis, uint32_t flags = 0) {
    return weft_model_cut_input(model.get(), x, dim, axis, flags, &err);
  };
  expect_error(cut(1, "pipe"), err, WEFT_EINVAL,
               {"input 'x': dimension 1 of [1,6,8] is 6, expected a multiple of axis 'pipe', 4"});
  expect_error(cut(2, "pipe", WEFT_CUT_DROP), err, WEFT_EINVAL,
               {"dimension 2 of [1,6,8] has 2 indices per coordinate of axis 'pipe', expected 1"});
  expect_error(cut(0, "pipe"), err, WEFT_EINVAL, {"input 'x': dimension 0 counts samples"});
  expect_error(cut(3, "pipe"), err, WEFT_EINVAL,
               {"input 'x': dimension 3 is cut, expected one of"});
  expect_error(cut(8, "pipe"), err, WEFT_EINVAL, {"dimension is 8, expected 0 to 7"});
  expect_error(cut(2, "deep"), err, WEFT_ENOENT,
               {"axis 'deep' is not known; the model has pipe, wide"});
  expect_error(cut(2, "pipe", 4), err, WEFT_EINVAL, {"flags are 4, expected 0 or WEFT_CUT_DROP"});
  EXPECT_EQ(cut(2, "pipe"), WEFT_OK) << err.text;
  expect_error(cut(2, "wide"), err, WEFT_EINVAL,
               {"input 'x': dimension 2 is cut over axis 'pipe' already"});
  expect_error(cut(1, "pipe"), err, WEFT_EINVAL, {"axis 'pipe' cuts dimension 2 already"});

  const weft_value y = add_linear(model, "layer", x, 3);
  expect_error(cut(1, "wide"), err, WEFT_ESTATE, {"input 'x' has a use, expected its cuts before"});
  expect_error(weft_model_cut_input(model.get(), y, 1, "wide", 0, &err), err, WEFT_EINVAL,
               {"not an input of this model"});
  expect_error(weft_model_cut_output(model.get(), y, 1, "wide", 0, &err), err, WEFT_EINVAL,
               {"not an output of this model"});
  expect_error(weft_model_cut_param(model.get(), weft_param{1}, 0, "wide", 0, &err), err,
               WEFT_ESTATE, {"parameter 'layer.weight' has a use, expected its cuts before"});
  expect_error(weft_model_cut_param(model.get(), weft_param{9}, 0, "wide", 0, &err), err,
               WEFT_EINVAL, {"not a parameter of this model"});
}

TEST(Axes, CollectivesAreRefusedByTheirNode) {
  const ModelPtr model = new_model();
  Error err;
  const weft_value x = add_input(model, "x", {1, 6, 8});
  weft_value out = {};
  expect_error(add(model, {"all_reduce", "pipe"}, x, &out, err), err, WEFT_ENOENT,
               {"axis 'pipe' is not known; the model has none"});
  ASSERT_EQ(add_axis(model, "pipe", 4, err), WEFT_OK) << err.text;
  const struct {
    Collective node;
    const char* text;
  } cases[] = {
      {{"all_reduce", nullptr}, "(all_reduce): axis_name is not set, expected an axis"},
      {{"relu", "pipe"}, "set, but not read by this op: axis_name; it reads no attribute"},
      {{"all_reduce", "pipe", {1}},
       "set, but not read by this op: coordinates; it reads axis_name"},
      {{"all_gather", "pipe"}, "axis is 0, expected 1 or more: axis 0 of input 0"},
      {{"all_gather", "pipe", {}, 3}, "axis is 3, expected 0 to 2 for input 0"},
      {{"reduce_scatter", "pipe", {}, 1},
       "dimension 1 of input 0 f32[1,6,8] is 6, expected a multiple of the axis, 4"},
      {{"all_to_all", "pipe"}, "expected the dimension that is cut and the one that is joined"},
      {{"all_to_all", "pipe", {}, 0, {1, 2}}, "is 6, expected a multiple of the axis, 4"},
      {{"broadcast", "pipe"}, "coordinates has 0 entries, expected 1"},
      {{"broadcast", "pipe", {4}}, "coordinates has 4, expected 0 to 3"},
      {{"mask", "pipe"}, "coordinates has no entry, expected the coordinates that keep"},
      {{"mask", "pipe", {-1}}, "coordinates has -1, expected 0 to 3"},
      {{"mask", "pipe", {1, 1}}, "coordinates has 1 twice, expected each at most once"},
      {{"ppermute", "pipe", {1, 2}}, "coordinates has 2 entries, expected 4: for each coordinate"},
      {{"ppermute", "pipe", {0, 1, 2, 4}}, "coordinates has 4, expected -1 to 3"},
      {{"ppermute", "pipe", {-1, 2, 2, -1}},
       "coordinates has 2 twice, but a coordinate sends to one other at most"},
  };
  for (const auto& c : cases)
    expect_error(add(model, c.node, x, &out, err), err, WEFT_EINVAL, {"node 'node' (", c.text});
  const weft_value numbers = [&] {
    const weft_desc d = desc({1, 8}, WEFT_I32);
    weft_value made = {};
    EXPECT_EQ(weft_model_add_input(model.get(), "numbers", &d, 0, &made, &err), WEFT_OK);
    return made;
  }();
  expect_error(add(model, {"all_reduce", "pipe"}, numbers, &out, err), err, WEFT_EINVAL,
               {"input 0 expects f32, got i32[1,8]"});
  EXPECT_EQ(add(model, {"all_gather", "pipe", {}, 1}, numbers, &out, err), WEFT_OK) << err.text;
}

// A layer whose weight is cut over "wide", and whose output the coordinates add.
ModelPtr cut_layer(uint32_t deep, uint32_t wide) {
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
  weft_node_config linear = WEFT_NODE_INIT;
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

TEST(Axes, PlansAreRefusedThatDoNotFit) {
  const ModelPtr model = cut_layer(2, 4);
  Error err;
  const struct {
    std::vector<weft_axis> axes;
    uint32_t tensor;
    const char* text;
  } cases[] = {
      {{{"tensor", 2, 0}}, 0, "axis 'tensor' is unknown, expected data, stage, deep and wide"},
      {{{"wide", 2, 0}},
       0,
       "axis 'wide' has size 2 in the plan, expected 1 while axis 'deep' has less than its 2"},
      {{{"deep", 2, 0}, {"wide", 3, 0}},
       0,
       "axis 'wide' has size 3 in the plan, expected a divisor of its 4 coordinates"},
      {{{"deep", 2, 0}, {"deep", 2, 0}}, 0, "axis 'deep' is given twice"},
      {{}, 2, "tensor is 2, expected 1: the model has the axis 'deep' of its own"},
  };
  for (const auto& c : cases) {
    weft_plan_config config = plan_config(0);
    config.axes = c.axes.data();
    config.n_axes = static_cast<uint32_t>(c.axes.size());
    config.tensor = c.tensor;
    weft_plan* plan = nullptr;
    expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL, {c.text});
  }
}

TEST(Axes, TargetsThatAreCutAreRefused) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 2}), y = add_input(model, "y", {1, 4});
  EXPECT_EQ(weft_model_cut_input(model.get(), y, 1, "wide", 0, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {add_linear(model, "layer", x, 2), y}, "loss");
  const weft_plan_config config = plan_config();
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"loss 'loss': its targets 'y' are cut over axis 'wide'"});
}

// Parameters are drawn, read, written and hashed as a whole: the sizes of axes decide rounding
// only.
TEST(Axes, APieceHasTheNumbersOfItsWhole) {
  std::vector<float> weight;
  std::string first;
  double loss = 0;
  for (const uint32_t wide : {1u, 2u, 4u, 8u}) {
    weft_plan_config config = plan_config(1, 2, 2);
    config.seed = 3;
    const RunPtr run = start(cut_layer(1, wide), config);
    const std::vector<float> found = read(run, "weight", WEFT_VALUE, {8, 3});
    const TensorPtr x = noise({4, 8}, 1), y = noise({4, 3}, 2);
    const std::string before = digest(run);
    const double now = step(run, {x.get(), y.get()}, WEFT_NO_UPDATE).loss;
    if (wide == 1) {
      weight = found;
      first = before;
      loss = now;
    }
    EXPECT_EQ(found, weight) << wide;
    EXPECT_EQ(before, first) << wide;
    EXPECT_NEAR(now, loss, 1e-5 * loss) << wide;
    const TensorPtr other = noise({8, 3}, 9);
    Error err;
    ASSERT_EQ(weft_run_write(run.get(), "weight", WEFT_VALUE, other.get(), &err), WEFT_OK);
    EXPECT_EQ(read(run, "weight", WEFT_VALUE, {8, 3}), values(other));
  }
}

// What differs by coordinate has other masks, and what is the same at all has the same mask.
TEST(Axes, DropoutFollowsTheValue) {
  for (const bool cut : {true, false}) {
    const ModelPtr model = new_model();
    Error err;
    ASSERT_EQ(add_axis(model, "wide", 4, err), WEFT_OK) << err.text;
    const weft_value x = add_input(model, "x", {1, 64}), y = add_input(model, "y", {1, 64});
    if (cut) {
      ASSERT_EQ(weft_model_cut_input(model.get(), x, 1, "wide", 0, &err), WEFT_OK) << err.text;
    }
    weft_node_config dropout = WEFT_NODE_INIT;
    dropout.op = "dropout";
    dropout.inputs = &x;
    dropout.n_inputs = 1;
    dropout.factor = 0.5;
    weft_value out = {};
    ASSERT_EQ(weft_model_add_node(model.get(), &dropout, &out, &err), WEFT_OK) << err.text;
    const Collective reduce =
        cut ? Collective{"all_gather", "wide", {}, 1} : Collective{"all_reduce", "wide"};
    ASSERT_EQ(add(model, reduce, out, &out, err), WEFT_OK) << err.text;
    weft_param scale = {};
    const weft_desc d = desc({64, 64});
    ASSERT_EQ(weft_model_add_param(model.get(), "w", &d, WEFT_INIT_ZEROS, 0, &scale, &err),
              WEFT_OK);
    weft_node_config linear = WEFT_NODE_INIT;
    linear.op = "linear";
    linear.inputs = &out;
    linear.params = &scale;
    linear.n_inputs = linear.n_params = 1;
    ASSERT_EQ(weft_model_add_node(model.get(), &linear, &out, &err), WEFT_OK) << err.text;
    add_node(model, "mse", {out, y});
    // With an output of 0, dL/dw [i][o] is -2/64 x[i] y[o]: it shows which x were dropped.
    const RunPtr run = start(model, plan_config(1, 1, 1));
    const TensorPtr ones = zeros({1, 64});
    for (int i = 0; i < 64; ++i) floats(ones)[i] = 1;
    step(run, {ones.get(), ones.get()}, WEFT_NO_UPDATE);
    const std::vector<float> grad = read(run, "w", WEFT_GRAD, {64, 64});
    int kept = 0, repeated = 0;
    for (size_t i = 0; i < 64; ++i) {
      const float times = grad[i * 64] * -32;
      if (cut)
        EXPECT_TRUE(times == 0 || times == 2) << times;
      else
        EXPECT_TRUE(times == 0 || times == 8) << times;
      kept += times != 0;
      repeated += i >= 16 && grad[i * 64] == grad[(i - 16) * 64];
    }
    EXPECT_GT(kept, 10);
    EXPECT_LT(kept, 54);
    EXPECT_LT(repeated, 44);
  }
}

// Two layers in pieces, with dropout between them, in two stages.
ModelPtr two_layers() {
  ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "deep", 2, err), WEFT_OK) << err.text;
  EXPECT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  weft_value x = add_input(model, "x", {1, 12});
  const weft_value y = add_input(model, "y", {1, 12});
  for (const char* name : {"first", "second"}) {
    weft_node_config config = WEFT_NODE_INIT;
    const auto add_one = [&](const char* op, weft_value in) {
      const std::string full = std::string(name) + "." + op;
      config.op = op;
      config.name = full.c_str();
      config.inputs = &in;
      config.n_inputs = 1;
      weft_value made = {};
      EXPECT_EQ(weft_model_add_node(model.get(), &config, &made, &err), WEFT_OK) << err.text;
      config = WEFT_NODE_INIT;
      return made;
    };
    const weft_desc d = desc({2, 12, 12});
    weft_param weight = {};
    EXPECT_EQ(weft_model_add_param(model.get(), name, &d, WEFT_INIT_NORMAL, 0.3, &weight, &err),
              WEFT_OK);
    EXPECT_EQ(weft_model_cut_param(model.get(), weight, 2, "wide", 0, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_model_cut_param(model.get(), weight, 0, "deep", WEFT_CUT_DROP, &err), WEFT_OK)
        << err.text;
    config.params = &weight;
    config.n_params = 1;
    x = add_one("gelu", add_one("linear", x));
    config.factor = 0.3;
    x = add_one("dropout", x);
    config.axis_name = "wide";
    config.axis = 1;
    x = add_one("all_gather", x);
    config.axis_name = "deep";
    x = add_one("all_reduce", x);
  }
  EXPECT_EQ(weft_model_add_output(model.get(), x, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {x, y}, "loss");
  return model;
}

// The loss of a step whose micro-batches may end in any order.
double loss_of_step(const RunPtr& run, const TensorPtr& x, const TensorPtr& y) {
  Error err;
  EXPECT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), WEFT_OK) << err.text;
  weft_event event = WEFT_EVENT_INIT;
  do {
    EXPECT_EQ(weft_run_poll(run.get(), &event, -1), 1);
  } while (event.kind == WEFT_EVENT_MICRO_BATCH);
  EXPECT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << event.text;
  return event.loss;
}

TEST(Axes, AnyMeshAndScheduleGiveTheSameBits) {
  weft_optimizer optimizer = WEFT_OPTIMIZER_INIT;
  optimizer.rate = 0.01;
  optimizer.weight_decay = 0.1;
  optimizer.clip = 0.5;
  const TensorPtr x = noise({8, 12}, 1), y = noise({8, 12}, 2);
  const char* cut = "second.linear";
  std::vector<double> losses;
  std::string last;
  const std::vector<std::vector<weft_axis>> meshes = {
      {},
      {{"deep", 2, 0}},
      {{"wide", 2, 0}, {"deep", 2, 0}},
      {{"stage", 2, 0}, {"deep", 2, 0}},
      {{"data", 2, 0}, {"deep", 2, 0}},
      {{"data", 2, 0}, {"stage", 2, 0}, {"deep", 2, 0}, {"wide", 2, 0}}};
  int turn = 0;
  for (const auto& axes : meshes)
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
      const bool staged = axes.size() > 1 && (axes[0].name == std::string("stage") ||
                                              axes[1].name == std::string("stage"));
      const bool chunks = schedule == std::string("interleaved");
      if (chunks && staged) continue;  // there is one cut, for two stages
      weft_plan_config config = plan_config(0, 4, 2);
      const char* recomputes[] = {"none", "stage", "every:2"};
      config.axes = axes.data();
      config.n_axes = static_cast<uint32_t>(axes.size());
      config.gradient_groups = 2;
      config.optimizer = &optimizer;
      config.schedule = schedule;
      config.recompute = recomputes[turn++ % 3];
      config.cuts = &cut;
      config.n_cuts = staged || chunks ? 1 : 0;
      config.seed = 4;
      const RunPtr run = start(two_layers(), config, turn % 2 ? 2 : 0);
      std::vector<double> found;
      for (int s = 0; s < 3; ++s) found.push_back(loss_of_step(run, x, y));
      if (losses.empty()) {
        losses = found;
        last = digest(run);
      }
      EXPECT_EQ(found, losses) << axes.size() << " axes, " << schedule;
      EXPECT_EQ(digest(run), last) << axes.size() << " axes, " << schedule;
    }
}

}  // namespace
