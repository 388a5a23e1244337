// Building a model: invalid calls and their errors.
#include <cmath>

#include "api/api.h"

namespace {

weft_status add(const ModelPtr& model, const weft_node_config& config, Error& err) {
  weft_value out = {};
  const weft_status status = weft_model_add_node(model.get(), &config, &out, &err);
  EXPECT_EQ(out.id != 0, status == WEFT_OK);
  return status;
}

weft_node_config node(const char* op, const weft_value* inputs, uint32_t n_inputs,
                      const char* name = nullptr) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.name = name;
  config.inputs = inputs;
  config.n_inputs = n_inputs;
  return config;
}

TEST(ModelTest, NullIsAnError) {
  const ModelPtr model = new_model();
  const weft_desc d = desc({1, 4});
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_node_config relu = node("relu", &x, 1);
  const weft_op op = defaults(weft_op_init);
  weft_value v = {};
  weft_param p = {};
  Error err;
  expect_error(weft_model_new(nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_input(nullptr, "i", &d, 0, &v, &err), err, WEFT_EINVAL,
               {"model is NULL"});
  expect_error(weft_model_add_input(model.get(), nullptr, &d, 0, &v, &err), err, WEFT_EINVAL,
               {"name is NULL"});
  expect_error(weft_model_add_input(model.get(), "i", nullptr, 0, &v, &err), err, WEFT_EINVAL,
               {"desc is NULL"});
  expect_error(weft_model_add_input(model.get(), "i", &d, 0, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  expect_error(weft_model_add_param(nullptr, "p", &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_param(model.get(), nullptr, &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"name is NULL"});
  expect_error(weft_model_add_param(model.get(), "p", nullptr, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"desc is NULL"});
  expect_error(weft_model_add_param(model.get(), "p", &d, WEFT_INIT_ZEROS, 0, nullptr, &err), err,
               WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_node(nullptr, &relu, &v, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_node(model.get(), nullptr, &v, &err), err, WEFT_EINVAL,
               {"config is NULL"});
  expect_error(weft_model_add_node(model.get(), &relu, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  expect_error(add(model, node(nullptr, &x, 1), err), err, WEFT_EINVAL, {"op is NULL"});
  expect_error(add(model, node("relu", nullptr, 1), err), err, WEFT_EINVAL, {"inputs is NULL"});
  expect_error(weft_model_add_linear(nullptr, "l", x, 3, &v, &err), err, WEFT_EINVAL,
               {"model is NULL"});
  expect_error(weft_model_add_linear(model.get(), nullptr, x, 3, &v, &err), err, WEFT_EINVAL,
               {"name is NULL"});
  expect_error(weft_model_add_linear(model.get(), "l", x, 3, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  expect_error(weft_model_add_output(nullptr, x, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_op(nullptr, &op, nullptr, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_op(model.get(), nullptr, nullptr, &err), err, WEFT_EINVAL,
               {"op is NULL"});
  weft_model_free(nullptr);
  EXPECT_EQ(weft_model_parameters(nullptr), 0);
  EXPECT_EQ(add(model, relu, err), WEFT_OK) << "the model is none the worse: " << err.text;
}

TEST(ModelTest, AWrongShapeNamesNodePortAndBothShapes) {
  const ModelPtr model = new_model();
  const weft_value in[] = {add_input(model, "x", {1, 4}), add_input(model, "y", {1, 5})};
  Error err;
  expect_error(add(model, node("add", in, 2, "sum"), err), err, WEFT_EINVAL,
               {"node 'sum'", "add", "input 1", "[1,5]", "[1,4]"});
}

TEST(ModelTest, AWrongWeightNamesNodePortAndBothShapes) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_desc d = desc({5, 6});
  weft_param weight = {};
  Error err;
  ASSERT_EQ(weft_model_add_param(model.get(), "w", &d, WEFT_INIT_ZEROS, 0, &weight, &err), WEFT_OK);
  weft_node_config linear = node("linear", &x, 1, "lin");
  linear.params = &weight;
  linear.n_params = 1;
  expect_error(add(model, linear, err), err, WEFT_EINVAL,
               {"node 'lin'", "linear", "[5,6]", "[1,4]"});
}

TEST(ModelTest, HandlesThatAreNoneOrForeignAreRefused) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  for (uint32_t id : {0u, x.id + 1, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffffffu}) {
    SCOPED_TRACE(id);
    const weft_value foreign = {id};
    weft_value out = {};
    Error err;
    expect_error(add(model, node("relu", &foreign, 1, "n"), err), err, WEFT_EINVAL,
                 {"node 'n'", "input 0", "not", "of this model"});
    expect_error(weft_model_add_linear(model.get(), "l", foreign, 2, &out, &err), err, WEFT_EINVAL,
                 {"node 'l'", "of this model"});
    expect_error(weft_model_add_output(model.get(), foreign, &err), err, WEFT_EINVAL,
                 {"of this model"});
    const weft_param param = {id};
    weft_node_config linear = node("linear", &x, 1, "n");
    linear.params = &param;
    linear.n_params = 1;
    expect_error(add(model, linear, err), err, WEFT_EINVAL,
                 {"node 'n'", "weight 0", "of this model"});
  }
}

TEST(ModelTest, WhatNo64BitsCanCountIsRefused) {
  const ModelPtr model = new_model();
  constexpr int64_t kLong = int64_t{1} << 31;
  const weft_value column = add_input(model, "column", {1, kLong, 1}),
                   row = add_input(model, "row", {1, 1, kLong});
  const weft_value both[] = {column, row};
  Error err;
  expect_error(add(model, node("matmul", both, 2, "product"), err), err, WEFT_EINVAL,
               {"product", "output", "64-bit"});
  weft_value out = {};
  expect_error(weft_model_add_linear(model.get(), "wide", column, kLong, &out, &err), err,
               WEFT_EINVAL, {"wide", "output", "64-bit"});
  EXPECT_EQ(weft_model_parameters(model.get()), 0) << "a refused linear leaves none";
  const weft_desc beside_nothing = desc({1, 0, int64_t{1} << 40, int64_t{1} << 40});
  expect_error(weft_model_add_input(model.get(), "nothing", &beside_nothing, 0, &out, &err), err,
               WEFT_EINVAL, {"nothing", "64-bit"});
}

TEST(ModelTest, ParametersAreCountedAsFarAs64BitsGo) {
  const ModelPtr model = new_model();
  const weft_desc most = desc({int64_t{1} << 60});
  weft_param out = {};
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"})
    ASSERT_EQ(weft_model_add_param(model.get(), name, &most, WEFT_INIT_ZEROS, 0, &out, nullptr),
              WEFT_OK);
  EXPECT_EQ(weft_model_parameters(model.get()), INT64_MAX);
}

TEST(ModelTest, NamesAreChecked) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_desc d = desc({1, 4});
  weft_value v = {};
  Error err;
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL,
               {"'x'", "taken"});
  expect_error(weft_model_add_input(model.get(), "", &d, 0, &v, &err), err, WEFT_EINVAL,
               {"name", "1 to 200"});
  expect_error(add(model, node("relu", &x, 1, "a b"), err), err, WEFT_EINVAL, {"'a b'", "space"});
  expect_error(add(model, node("rleu", &x, 1), err), err, WEFT_ENOENT, {"'rleu'", "relu"});
  EXPECT_EQ(add(model, node("relu", &x, 1, "n"), err), WEFT_OK);
  expect_error(add(model, node("relu", &x, 1, "n"), err), err, WEFT_EINVAL, {"'n'", "taken"});
  expect_error(weft_model_add_linear(model.get(), "n", x, 2, &v, &err), err, WEFT_EINVAL,
               {"'n'", "taken"});
}

TEST(ModelTest, ARefusedLinearLeavesNoParameters) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_desc d = desc({7});
  weft_value v = {};
  weft_param p = {};
  Error err;
  ASSERT_EQ(weft_model_add_param(model.get(), "l.bias", &d, WEFT_INIT_ZEROS, 0, &p, &err), WEFT_OK);
  expect_error(weft_model_add_linear(model.get(), "l", x, 7, &v, &err), err, WEFT_EINVAL,
               {"'l.bias'", "taken"});
  expect_error(weft_model_add_linear(model.get(), "m", x, 0, &v, &err), err, WEFT_EINVAL,
               {"out_features", "0"});
  EXPECT_EQ(weft_model_parameters(model.get()), 7);
  EXPECT_EQ(weft_model_add_linear(model.get(), "m", x, 2, &v, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_parameters(model.get()), 7 + 4 * 2 + 2);
}

TEST(ModelTest, InputsAndParametersAreChecked) {
  const ModelPtr model = new_model();
  weft_value v = {};
  weft_param p = {};
  Error err;
  weft_desc d = desc({2, 4});
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL,
               {"'x'", "dimension 0", "[2,4]"});
  d = desc({1, 4}, WEFT_F64);
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL,
               {"'x'", "dtype"});
  d = desc({1, 4}, WEFT_I32);
  expect_error(weft_model_add_input(model.get(), "x", &d, WEFT_INPUT_WANT_GRAD, &v, &err), err,
               WEFT_EINVAL, {"'x'", "gradient", "i32"});
  expect_error(weft_model_add_input(model.get(), "x", &d, 8, &v, &err), err, WEFT_EINVAL,
               {"'x'", "flags 8"});
  expect_error(weft_model_add_param(model.get(), "p", &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"'p'", "WEFT_F32", "i32"});
  d = desc({0});
  expect_error(weft_model_add_param(model.get(), "p", &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"'p'", "[0]"});
  d = desc({4});
  expect_error(weft_model_add_param(model.get(), "p", &d, weft_init{9}, 0, &p, &err), err,
               WEFT_EINVAL, {"init is 9"});
  for (const double value : {-1.0, std::nan(""), HUGE_VAL})
    expect_error(weft_model_add_param(model.get(), "p", &d, WEFT_INIT_NORMAL, value, &p, &err), err,
                 WEFT_EINVAL, {"'p'", "standard deviation"});
}

TEST(ModelTest, ANameIsMadeThatIsNotTaken) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  for (const char* name : {"relu_3", "relu_4"}) add_node(model, "relu", {x}, name);
  add_node(model, "relu", {x});
  add_node(model, "relu", {x});
  Error err;
  for (const char* name : {"relu_5", "relu_6"})
    expect_error(add(model, node("relu", &x, 1, name), err), err, WEFT_EINVAL, {name, "taken"});
}

TEST(ModelTest, AnEmptyNameIsNoName) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  weft_value v = {};
  Error err;
  expect_error(add(model, node("relu", &x, 1, ""), err), err, WEFT_EINVAL,
               {"node name", "1 to 200 bytes, has 0"});
  expect_error(weft_model_add_linear(model.get(), "", x, 2, &v, &err), err, WEFT_EINVAL,
               {"node name", "1 to 200 bytes, has 0"});
  EXPECT_EQ(weft_model_parameters(model.get()), 0);
}

TEST(ModelTest, UnknownFlagsAreRefused) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  Error err;
  weft_node_config gelu = node("gelu", &x, 1);
  gelu.flags = 0x80000000u | WEFT_NODE_TANH;
  expect_error(add(model, gelu, err), err, WEFT_EINVAL, {"flags", "2147483648"});
}

TEST(ModelTest, AttributesThatAnOpDoesNotReadAreRefused) {
  const std::vector<std::pair<std::string, void (*)(weft_node_config&)>> attributes = {
      {"WEFT_NODE_TANH", [](weft_node_config& c) { c.flags = WEFT_NODE_TANH; }},
      {"WEFT_NODE_CAUSAL", [](weft_node_config& c) { c.flags = WEFT_NODE_CAUSAL; }},
      {"WEFT_NODE_OUT_IN", [](weft_node_config& c) { c.flags = WEFT_NODE_OUT_IN; }},
      {"WEFT_NODE_POSITIONS", [](weft_node_config& c) { c.flags = WEFT_NODE_POSITIONS; }},
      {"WEFT_NODE_UNIT_OFFSET", [](weft_node_config& c) { c.flags = WEFT_NODE_UNIT_OFFSET; }},
      {"axis", [](weft_node_config& c) { c.axis = 1; }},
      {"heads", [](weft_node_config& c) { c.heads = 2; }},
      {"begin and end", [](weft_node_config& c) { c.end = 3; }},
      {"factor", [](weft_node_config& c) { c.factor = 0.5; }},
      {"cap", [](weft_node_config& c) { c.cap = 2; }},
      {"dims", [](weft_node_config& c) { c.n_dims = 1; }},
  };
  const std::vector<std::pair<const char*, std::string>> ops = {
      {"add", "no attribute"},
      {"attention", "WEFT_NODE_CAUSAL, heads, factor, cap, dims"},
      {"concat", "axis"},
      {"conv1d", "dims"},
      {"conv2d", "dims"},
      {"dropout", "factor"},
      {"embedding", "WEFT_NODE_POSITIONS"},
      {"gather", "axis"},
      {"gelu", "WEFT_NODE_TANH"},
      {"layer_norm", "factor"},
      {"linear", "WEFT_NODE_OUT_IN"},
      {"matmul", "no attribute"},
      {"max", "axis, dims"},
      {"max_pool", "dims"},
      {"mean", "axis, dims"},
      {"mse", "no attribute"},
      {"mul", "no attribute"},
      {"relu", "no attribute"},
      {"reshape", "dims"},
      {"rms_norm", "WEFT_NODE_UNIT_OFFSET, factor"},
      {"scale", "factor"},
      {"slice", "axis, begin and end"},
      {"softcap", "cap"},
      {"softmax", "no attribute"},
      {"softmax_cross_entropy", "factor"},
      {"sub", "no attribute"},
      {"sum", "axis, dims"},
      {"transpose", "dims"},
  };
  for (const auto& [op, reads] : ops)
    for (const auto& [name, set] : attributes) {
      const ModelPtr model = new_model();
      const weft_value x = add_input(model, "x", {1, 4});
      weft_node_config config = node(op, &x, 1, "n");
      set(config);
      Error err;
      const weft_status status = add(model, config, err);
      if (reads.find(name) == std::string::npos)
        expect_error(status, err, WEFT_EINVAL,
                     {"node 'n'", op,
                      ("set, but not read by this op: " + name + "; it reads " + reads).c_str()});
      else
        EXPECT_EQ(std::strstr(err.text, "not read"), nullptr) << err.text;
    }
}

// Such a parameter could be trained and not be saved.
TEST(ModelTest, ANameThatNoCheckpointCanHoldIsRefused) {
  const ModelPtr model = new_model();
  const weft_desc desc = {WEFT_F32, 1, {2}};
  weft_param param;
  for (const char* name : {"w\xff", "\xc0\x80", "__metadata__"}) {
    Error err;
    const weft_status status =
        weft_model_add_param(model.get(), name, &desc, WEFT_INIT_ZEROS, 0, &param, &err);
    expect_error(status, err, WEFT_EINVAL, {"parameter name '"});
  }
}

// weft_run_read takes the name of either.
TEST(ModelTest, AnInputWithAGradientHasANameOfItsOwn) {
  const ModelPtr model = new_model();
  const weft_desc d = desc({1, 4});
  const weft_value x = add_input(model, "l.bias", {1, 4}, WEFT_INPUT_WANT_GRAD);
  add_input(model, "y", {1, 4});
  weft_value v = {};
  weft_param p = {};
  Error err;
  expect_error(weft_model_add_param(model.get(), "l.bias", &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_EINVAL, {"parameter 'l.bias'", "input"});
  expect_error(weft_model_add_linear(model.get(), "l", x, 2, &v, &err), err, WEFT_EINVAL,
               {"parameter 'l.bias'", "input"});
  EXPECT_EQ(weft_model_parameters(model.get()), 0);
  EXPECT_EQ(weft_model_add_param(model.get(), "y", &d, WEFT_INIT_ZEROS, 0, &p, &err), WEFT_OK)
      << "no gradient is read of this input: " << err.text;
  EXPECT_EQ(weft_model_add_param(model.get(), "z", &d, WEFT_INIT_ZEROS, 0, &p, &err), WEFT_OK)
      << err.text;
  expect_error(weft_model_add_input(model.get(), "z", &d, WEFT_INPUT_WANT_GRAD, &v, &err), err,
               WEFT_EINVAL, {"input 'z'", "parameter"});
}

TEST(ModelTest, CanBeChangedAfterAPlanThatFailed) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(100);
  weft_profile_config profile_config = defaults(weft_profile_config_init);
  profile_config.threads = 5000;
  weft_plan* plan = nullptr;
  weft_profile* profile = nullptr;
  weft_comparison* comparison = nullptr;
  Error err;
  EXPECT_LT(weft_plan_new(model.get(), &config, &plan, &err), 0);
  config.step_kinds = 0;
  EXPECT_LT(weft_plan_compare(model.get(), &config, &comparison, &err), 0);
  EXPECT_LT(weft_plan_load(model.get(), "/nowhere/plan.json", &plan, &err), 0);
  EXPECT_LT(weft_profile_new(model.get(), &profile_config, &profile, &err), 0);
  EXPECT_EQ(weft_model_add_output(model.get(), add_node(model, "relu", {{1}}), &err), WEFT_OK)
      << err.text;
  new_plan(model, plan_config());
}

TEST(ModelTest, CannotBeChangedAfterWhatGoesByIt) {
  const weft_value one = {1};
  const auto frozen = [&](auto use) {
    const ModelPtr model = small_model();
    Error err;
    EXPECT_EQ(use(model.get(), err), WEFT_OK) << err.text;
    expect_error(add(model, node("relu", &one, 1), err), err, WEFT_ESTATE, {"finished"});
  };
  const weft_plan_config config = plan_config();
  frozen([&](weft_model* model, Error& err) {
    weft_comparison* out = nullptr;
    const weft_status status = weft_plan_compare(model, &config, &out, &err);
    weft_comparison_free(out);
    return status;
  });
  frozen([&](weft_model* model, Error& err) {
    weft_profile* out = nullptr;
    const weft_status status = weft_profile_new(model, nullptr, &out, &err);
    weft_profile_free(out);
    return status;
  });
}

TEST(ModelTest, CannotBeChangedAfterItsFirstPlan) {
  const ModelPtr model = small_model();
  new_plan(model, plan_config());
  const weft_desc d = desc({1, 4});
  weft_value v = {};
  weft_param p = {};
  Error err;
  expect_error(weft_model_add_input(model.get(), "z", &d, 0, &v, &err), err, WEFT_ESTATE,
               {"finished"});
  expect_error(weft_model_add_param(model.get(), "z", &d, WEFT_INIT_ZEROS, 0, &p, &err), err,
               WEFT_ESTATE, {"finished"});
  const weft_value one = {1};
  expect_error(add(model, node("relu", &one, 1), err), err, WEFT_ESTATE, {"finished"});
  expect_error(weft_model_add_output(model.get(), one, &err), err, WEFT_ESTATE, {"finished"});
}

// ---- configurations of other versions ----

TEST(ConfigSize, AShorterOneIsFilledWithDefaults) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  config.schedule = reinterpret_cast<const char*>(8);  // past the size: never looked at
  config.size = offsetof(weft_plan_config, short_size);
  EXPECT_EQ(weft_plan_stages(new_plan(model, config).get()), 2u);
}

TEST(ConfigSize, ALongerOneIsTakenIfItsRestIsZero) {
  struct {
    weft_plan_config config;
    uint64_t tail[2];
  } newer = {plan_config(2), {}};
  const ModelPtr model = small_model();
  newer.config.size = sizeof newer;
  EXPECT_EQ(weft_plan_stages(new_plan(model, newer.config).get()), 2u);
  newer.tail[1] = 1;
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &newer.config, &out, &err), err, WEFT_EINVAL,
               {"weft_plan_config", "newer weft"});
}

TEST(ConfigSize, ASizeThatCannotBeIsRefused) {
  const ModelPtr model = small_model();
  for (uint32_t size : {0u, 3u, 65537u, 0xffffffffu}) {
    weft_plan_config config = defaults(weft_plan_config_init);
    config.size = size;
    weft_plan* out = nullptr;
    Error err;
    expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
                 {"weft_plan_config.size", "weft_plan_config_init"});
  }
}

TEST(ConfigSize, HoldsForTheOthersToo) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  Error err;
  weft_node_config relu = node("relu", &x, 1);
  relu.size = 0;
  expect_error(add(model, relu, err), err, WEFT_EINVAL, {"weft_node_config.size"});
  weft_op op = defaults(weft_op_init);
  op.size = 0;
  expect_error(weft_model_add_op(model.get(), &op, nullptr, &err), err, WEFT_EINVAL,
               {"weft_op.size"});

  const ModelPtr small = small_model();
  weft_optimizer optimizer = unclipped();
  optimizer.size = 0;
  weft_plan_config config = plan_config();
  config.optimizer = &optimizer;
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(small.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"weft_optimizer.size"});
  weft_run_config run_config = defaults(weft_run_config_init);
  run_config.size = 1;
  weft_run* run = nullptr;
  expect_error(
      weft_run_start(new_plan(small, plan_config()).get(), nullptr, &run_config, &run, &err), err,
      WEFT_EINVAL, {"weft_run_config.size"});
}

}  // namespace
