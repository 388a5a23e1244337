// What a caller of SPMD programs may get wrong, refused by name.
#include "api/spmd.h"

namespace {

TEST(RefusedAxes, AreRefusedByName) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "pipe", 4, err), WEFT_OK) << err.text;
  const struct {
    const char* name;
    uint32_t size;
    const char* text;
  } cases[] = {
      {"data", 2, "axis 'data': the name is reserved for an axis of plans"},
      {"stage", 2, "axis 'stage': the name is reserved for an axis of plans"},
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
               {"axis 'c' gives the model 5120 coordinates, expected at most 4096"});
}

TEST(RefusedAxes, CutsAreRefusedByTheirTensor) {
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
  expect_error(cut(1, "wide"), err, WEFT_ESTATE,
               {"input 'x' is already used by a node; cut it before"});
  expect_error(weft_model_cut_input(model.get(), y, 1, "wide", 0, &err), err, WEFT_EINVAL,
               {"not an input of this model"});
  expect_error(weft_model_cut_output(model.get(), y, 1, "wide", 0, &err), err, WEFT_EINVAL,
               {"not an output of this model"});
  expect_error(weft_model_cut_param(model.get(), weft_param{1}, 0, "wide", 0, &err), err,
               WEFT_ESTATE, {"parameter 'layer.weight' is already used by a node; cut it before"});
  expect_error(weft_model_cut_param(model.get(), weft_param{9}, 0, "wide", 0, &err), err,
               WEFT_EINVAL, {"not a parameter of this model"});
}

TEST(RefusedAxes, CollectivesAreRefusedByTheirNode) {
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

TEST(RefusedAxes, PlansAreRefusedThatDoNotFit) {
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
      {{}, 2, "tensor is 2, expected 1: the model has the axis 'deep'"},
  };
  for (const auto& c : cases) {
    weft_plan_config config = plan_config(1);
    config.axes = c.axes.data();
    config.n_axes = static_cast<uint32_t>(c.axes.size());
    config.tensor = c.tensor;
    weft_plan* plan = nullptr;
    expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL, {c.text});
  }
}

TEST(RefusedAxes, SharedGradientsAreRefusedInSeveralStages) {
  const ModelPtr model = new_model();
  Error err;
  weft_value x = add_input(model, "x", {1, 4});
  const weft_value y = add_input(model, "y", {1, 4});
  const weft_desc d = desc({4, 4});
  weft_param weight = {};
  ASSERT_EQ(weft_model_add_param(model.get(), "w", &d, WEFT_INIT_NORMAL, 1, &weight, &err),
            WEFT_OK);
  expect_error(weft_model_share_gradient(model.get(), weft_param{9}, &err), err, WEFT_EINVAL,
               {"not a parameter of this model"});
  ASSERT_EQ(weft_model_share_gradient(model.get(), weight, &err), WEFT_OK) << err.text;
  for (const char* name : {"first", "second"}) {
    weft_node_config linear = defaults(weft_node_config_init);
    linear.op = "linear";
    linear.name = name;
    linear.inputs = &x;
    linear.params = &weight;
    linear.n_inputs = linear.n_params = 1;
    ASSERT_EQ(weft_model_add_node(model.get(), &linear, &x, &err), WEFT_OK) << err.text;
  }
  expect_error(weft_model_share_gradient(model.get(), weight, &err), err, WEFT_ESTATE,
               {"parameter 'w' has a use, expected to share its gradient before"});
  add_node(model, "mse", {x, y}, "loss");
  const weft_plan_config config = plan_config(2);
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"parameter 'w' has one sum of the gradients of node 'first' in stage 0 and node "
                "'second' in stage 1, expected one stage"});
}

}  // namespace
