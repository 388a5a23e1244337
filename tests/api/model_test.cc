// Building a model and a plan: what is refused, and how that is told.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/api.h"

namespace {

weft_status add(const ModelPtr& model, const weft_node_config& config, Error& err) {
  weft_value out = {};
  const weft_status status = weft_model_add_node(model.get(), &config, &out, &err);
  EXPECT_EQ(out.id != 0, status == WEFT_OK);
  return status;
}

weft_node_config node(const char* op, const weft_value* inputs, uint32_t n_inputs, const char* name = nullptr) {
  weft_node_config config = WEFT_NODE_INIT;
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
  const weft_op op = WEFT_OP_INIT;
  weft_value v = {};
  weft_param p = {};
  Error err;
  expect_error(weft_model_new(nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_input(nullptr, "i", &d, 0, &v, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_input(model.get(), nullptr, &d, 0, &v, &err), err, WEFT_EINVAL, {"name is NULL"});
  expect_error(weft_model_add_input(model.get(), "i", nullptr, 0, &v, &err), err, WEFT_EINVAL, {"desc is NULL"});
  expect_error(weft_model_add_input(model.get(), "i", &d, 0, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_param(nullptr, "p", &d, 0, 0, &p, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_param(model.get(), nullptr, &d, 0, 0, &p, &err), err, WEFT_EINVAL, {"name is NULL"});
  expect_error(weft_model_add_param(model.get(), "p", nullptr, 0, 0, &p, &err), err, WEFT_EINVAL, {"desc is NULL"});
  expect_error(weft_model_add_param(model.get(), "p", &d, 0, 0, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_node(nullptr, &relu, &v, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_node(model.get(), nullptr, &v, &err), err, WEFT_EINVAL, {"config is NULL"});
  expect_error(weft_model_add_node(model.get(), &relu, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(add(model, node(nullptr, &x, 1), err), err, WEFT_EINVAL, {"op is NULL"});
  expect_error(add(model, node("relu", nullptr, 1), err), err, WEFT_EINVAL, {"inputs is NULL"});
  expect_error(weft_model_add_linear(nullptr, "l", x, 3, &v, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_linear(model.get(), nullptr, x, 3, &v, &err), err, WEFT_EINVAL, {"name is NULL"});
  expect_error(weft_model_add_linear(model.get(), "l", x, 3, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_model_add_output(nullptr, x, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_op(nullptr, &op, nullptr, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_model_add_op(model.get(), nullptr, nullptr, &err), err, WEFT_EINVAL, {"op is NULL"});
  weft_model_free(nullptr);
  EXPECT_EQ(weft_model_parameters(nullptr), 0);
  EXPECT_EQ(add(model, relu, err), WEFT_OK) << "the model is none the worse: " << err.text;
}

TEST(ModelTest, AWrongShapeNamesNodePortAndBothShapes) {
  const ModelPtr model = new_model();
  const weft_value in[] = {add_input(model, "x", {1, 4}), add_input(model, "y", {1, 5})};
  Error err;
  expect_error(add(model, node("add", in, 2, "sum"), err), err, WEFT_EINVAL, {"node 'sum'", "add", "input 1", "[1,5]", "[1,4]"});
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
  expect_error(add(model, linear, err), err, WEFT_EINVAL, {"node 'lin'", "linear", "[5,6]", "[1,4]"});
}

TEST(ModelTest, HandlesThatAreNoneOrForeignAreRefused) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  for (uint32_t id : {0u, x.id + 1, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffffffu}) {
    SCOPED_TRACE(id);
    const weft_value foreign = {id};
    weft_value out = {};
    Error err;
    expect_error(add(model, node("relu", &foreign, 1, "n"), err), err, WEFT_EINVAL, {"node 'n'", "input 0", "not", "of this model"});
    expect_error(weft_model_add_linear(model.get(), "l", foreign, 2, &out, &err), err, WEFT_EINVAL, {"node 'l'", "of this model"});
    expect_error(weft_model_add_output(model.get(), foreign, &err), err, WEFT_EINVAL, {"of this model"});
    const weft_param param = {id};
    weft_node_config linear = node("linear", &x, 1, "n");
    linear.params = &param;
    linear.n_params = 1;
    expect_error(add(model, linear, err), err, WEFT_EINVAL, {"node 'n'", "weight 0", "of this model"});
  }
}

TEST(ModelTest, WhatNo64BitsCanCountIsRefused) {
  const ModelPtr model = new_model();
  constexpr int64_t kLong = int64_t{1} << 31;
  const weft_value column = add_input(model, "column", {1, kLong, 1}), row = add_input(model, "row", {1, 1, kLong});
  const weft_value both[] = {column, row};
  Error err;
  expect_error(add(model, node("matmul", both, 2, "product"), err), err, WEFT_EINVAL, {"product", "output", "64-bit"});
  weft_value out = {};
  expect_error(weft_model_add_linear(model.get(), "wide", column, kLong, &out, &err), err, WEFT_EINVAL, {"wide", "output", "64-bit"});
  EXPECT_EQ(weft_model_parameters(model.get()), 0) << "a refused linear leaves none";
  const weft_desc beside_nothing = desc({1, 0, int64_t{1} << 40, int64_t{1} << 40});
  expect_error(weft_model_add_input(model.get(), "nothing", &beside_nothing, 0, &out, &err), err, WEFT_EINVAL, {"nothing", "64-bit"});
}

TEST(ModelTest, ParametersAreCountedAsFarAs64BitsGo) {
  const ModelPtr model = new_model();
  const weft_desc most = desc({int64_t{1} << 60});
  weft_param out = {};
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"})
    ASSERT_EQ(weft_model_add_param(model.get(), name, &most, WEFT_INIT_ZEROS, 0, &out, nullptr), WEFT_OK);
  EXPECT_EQ(weft_model_parameters(model.get()), INT64_MAX);
}

TEST(ModelTest, NamesAreChecked) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_desc d = desc({1, 4});
  weft_value v = {};
  Error err;
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL, {"'x'", "taken"});
  expect_error(weft_model_add_input(model.get(), "", &d, 0, &v, &err), err, WEFT_EINVAL, {"name", "1 to 200"});
  expect_error(add(model, node("relu", &x, 1, "a b"), err), err, WEFT_EINVAL, {"'a b'", "space"});
  expect_error(add(model, node("rleu", &x, 1), err), err, WEFT_ENOENT, {"'rleu'", "relu"});
  EXPECT_EQ(add(model, node("relu", &x, 1, "n"), err), WEFT_OK);
  expect_error(add(model, node("relu", &x, 1, "n"), err), err, WEFT_EINVAL, {"'n'", "taken"});
  expect_error(weft_model_add_linear(model.get(), "n", x, 2, &v, &err), err, WEFT_EINVAL, {"'n'", "taken"});
}

TEST(ModelTest, ARefusedLinearLeavesNoParameters) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  const weft_desc d = desc({7});
  weft_value v = {};
  weft_param p = {};
  Error err;
  ASSERT_EQ(weft_model_add_param(model.get(), "l.bias", &d, WEFT_INIT_ZEROS, 0, &p, &err), WEFT_OK);
  expect_error(weft_model_add_linear(model.get(), "l", x, 7, &v, &err), err, WEFT_EINVAL, {"'l.bias'", "taken"});
  expect_error(weft_model_add_linear(model.get(), "m", x, 0, &v, &err), err, WEFT_EINVAL, {"out_features", "0"});
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
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL, {"'x'", "dimension 0", "[2,4]"});
  d = desc({1, 4}, WEFT_F64);
  expect_error(weft_model_add_input(model.get(), "x", &d, 0, &v, &err), err, WEFT_EINVAL, {"'x'", "dtype"});
  d = desc({1, 4}, WEFT_I32);
  expect_error(weft_model_add_input(model.get(), "x", &d, WEFT_INPUT_WANT_GRAD, &v, &err), err, WEFT_EINVAL, {"'x'", "gradient", "i32"});
  expect_error(weft_model_add_input(model.get(), "x", &d, 8, &v, &err), err, WEFT_EINVAL, {"'x'", "flags 8"});
  expect_error(weft_model_add_param(model.get(), "p", &d, 0, 0, &p, &err), err, WEFT_EINVAL, {"'p'", "WEFT_F32", "i32"});
  d = desc({0});
  expect_error(weft_model_add_param(model.get(), "p", &d, 0, 0, &p, &err), err, WEFT_EINVAL, {"'p'", "[0]"});
  d = desc({4});
  expect_error(weft_model_add_param(model.get(), "p", &d, 9, 0, &p, &err), err, WEFT_EINVAL, {"init is 9"});
  for (const double value : {-1.0, std::nan(""), HUGE_VAL})
    expect_error(weft_model_add_param(model.get(), "p", &d, WEFT_INIT_NORMAL, value, &p, &err), err, WEFT_EINVAL,
                 {"'p'", "standard deviation"});
}

TEST(ModelTest, CannotBeChangedAfterItsFirstPlan) {
  const ModelPtr model = small_model();
  new_plan(model, plan_config());
  const weft_desc d = desc({1, 4});
  weft_value v = {};
  weft_param p = {};
  Error err;
  expect_error(weft_model_add_input(model.get(), "z", &d, 0, &v, &err), err, WEFT_ESTATE, {"finished"});
  expect_error(weft_model_add_param(model.get(), "z", &d, 0, 0, &p, &err), err, WEFT_ESTATE, {"finished"});
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
  expect_error(weft_plan_new(model.get(), &newer.config, &out, &err), err, WEFT_EINVAL, {"weft_plan_config", "newer weft"});
}

TEST(ConfigSize, ASizeThatCannotBeIsRefused) {
  const ModelPtr model = small_model();
  for (uint32_t size : {0u, 3u, 65537u, 0xffffffffu}) {
    weft_plan_config config = WEFT_PLAN_INIT;
    config.size = size;
    weft_plan* out = nullptr;
    Error err;
    expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL, {"weft_plan_config.size", "WEFT_"});
  }
}

TEST(ConfigSize, HoldsForTheOthersToo) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 4});
  Error err;
  weft_node_config relu = node("relu", &x, 1);
  relu.size = 0;
  expect_error(add(model, relu, err), err, WEFT_EINVAL, {"weft_node_config.size"});
  weft_op op = WEFT_OP_INIT;
  op.size = 0;
  expect_error(weft_model_add_op(model.get(), &op, nullptr, &err), err, WEFT_EINVAL, {"weft_op.size"});

  const ModelPtr small = small_model();
  weft_optimizer optimizer = WEFT_OPTIMIZER_INIT;
  optimizer.size = 0;
  weft_plan_config config = plan_config();
  config.optimizer = &optimizer;
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(small.get(), &config, &plan, &err), err, WEFT_EINVAL, {"weft_optimizer.size"});
  weft_run_config run_config = WEFT_RUN_INIT;
  run_config.size = 1;
  weft_run* run = nullptr;
  expect_error(weft_run_start(new_plan(small, plan_config()).get(), nullptr, &run_config, &run, &err), err, WEFT_EINVAL,
               {"weft_run_config.size"});
}

// ---- plans ----

TEST(PlanTest, NullIsHarmless) {
  const ModelPtr model = small_model();
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(nullptr, &config, &out, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_plan_new(model.get(), &config, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  expect_error(weft_plan_new(model.get(), nullptr, &out, &err), err, WEFT_EINVAL, {"config is NULL"});
  weft_comparison* comparison = nullptr;
  expect_error(weft_plan_compare(model.get(), nullptr, &comparison, &err), err, WEFT_EINVAL, {"config is NULL"});
  weft_workers workers = WEFT_WORKERS_INIT;
  expect_error(weft_plan_workers(model.get(), nullptr, 1, nullptr, 0, &workers, &err), err, WEFT_EINVAL, {"config is NULL"});
  weft_plan_free(nullptr);
  EXPECT_EQ(weft_plan_stages(nullptr), 0u);
  EXPECT_EQ(weft_plan_bytes(nullptr, 0), 0);
  EXPECT_EQ(weft_plan_owned(nullptr, 0), 0);
  EXPECT_EQ(weft_plan_resident(nullptr, 0), 0);
  EXPECT_EQ(weft_plan_timetable(nullptr, nullptr, 0), 0u);
}

TEST(PlanTest, WrongSettingsAreNamed) {
  const ModelPtr model = small_model();
  auto refused = [&](auto change, weft_status status, std::initializer_list<const char*> parts) {
    weft_plan_config config = plan_config();
    change(config);
    weft_plan* out = nullptr;
    Error err;
    expect_error(weft_plan_new(model.get(), &config, &out, &err), err, status, parts);
    EXPECT_EQ(out, nullptr);
  };
  refused([](auto& c) { c.schedule = "2f2b"; }, WEFT_ENOENT, {"'2f2b'", "1f1b", "gpipe"});
  refused([](auto& c) { c.ranks = 100; }, WEFT_EINVAL, {"100"});
  refused([](auto& c) { c.ranks = 0xffffffff; }, WEFT_EINVAL, {"ranks is 4294967295", "at most"});
  refused([](auto& c) { c.group = 0xfffffffe; }, WEFT_EINVAL, {"group is 4294967294", "at most"});
  refused([](auto& c) { c.schedule_text = " \n"; }, WEFT_EINVAL, {"schedule_text holds no row"});
  refused([](auto& c) { c.split = 7; }, WEFT_EINVAL, {"split is 7"});
  refused([](auto& c) { c.short_size = 2; }, WEFT_EINVAL, {"short_size is 2", "micro_batch_size, 2"});
  refused([](auto& c) { c.n_cuts = 1; }, WEFT_EINVAL, {"cuts is NULL"});
  static const char* const nowhere[] = {"nowhere"};
  refused(
      [](auto& c) {
        c.ranks = 2;
        c.cuts = nowhere;
        c.n_cuts = 1;
      },
      WEFT_ENOENT, {"'nowhere'"});
}

// x [1, in] times a weight [in, out], to a loss or as an output.
std::string refusal_of_bytes(int64_t in, int64_t out_features, bool trained, uint32_t micro_batches) {
  const ModelPtr model = new_model();
  const weft_value wide = add_linear(model, "wide", add_input(model, "x", {1, in}), out_features);
  Error err;
  if (trained) {
    add_node(model, "mse", {wide, add_input(model, "y", {1, out_features})});
  } else {
    EXPECT_EQ(weft_model_add_output(model.get(), wide, &err), WEFT_OK) << err.text;
  }
  const weft_plan_config config = plan_config(1, micro_batches, 1);
  weft_plan* out = nullptr;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"plan: rank 0 needs ", "expected at most 70368744177664"});
  weft_plan_free(out);
  return err.text;
}

TEST(PlanTest, MoreBytesThanAnyRankHasAreRefused) {
  constexpr int64_t kOne = 1;
  EXPECT_NE(refusal_of_bytes(kOne << 20, kOne << 39, true, 1).find("2305843009213693952 bytes or more"), std::string::npos)
      << "weight, gradient and state have more than 64 bits can count";
  refusal_of_bytes(kOne << 21, kOne << 21, true, 1);  // a weight of a quarter of the limit, and three times as much beside it
  refusal_of_bytes(1, kOne << 40, false, 32);         // what is kept of each micro-batch
}

TEST(PlanTest, AModelMustHaveAnEnd) {
  const ModelPtr model = new_model();
  add_linear(model, "l", add_input(model, "x", {1, 4}), 2);
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL, {"neither a loss nor an output"});
}

TEST(PlanTest, EachParameterIsOwnedOnce) {
  const ModelPtr model = small_model();
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    const PlanPtr plan = new_plan(model, plan_config(ranks));
    int64_t owned = 0;
    for (uint32_t r = 0; r < ranks; ++r) {
      owned += weft_plan_owned(plan.get(), r);
      EXPECT_GE(weft_plan_resident(plan.get(), r), weft_plan_owned(plan.get(), r));
      EXPECT_GT(weft_plan_bytes(plan.get(), r), 4 * weft_plan_resident(plan.get(), r));
    }
    EXPECT_EQ(owned, weft_model_parameters(model.get()));
    EXPECT_EQ(weft_plan_bytes(plan.get(), ranks), 0);
    EXPECT_EQ(weft_plan_owned(plan.get(), ranks), 0);
  }
}

std::string text_at(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The file holds the hash of every section of the plan, so equal files are of equal plans.
TEST(PlanTest, APlanIsSavedAndUsedAgainAsItIs) {
  std::string directory = (std::filesystem::temp_directory_path() / "plan-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string first = directory + "/first.json", second = directory + "/second.json", edited = directory + "/edited.json";
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  weft_optimizer optimizer = WEFT_OPTIMIZER_INIT;
  optimizer.rule = WEFT_SGD;
  optimizer.momentum = 0.3;
  optimizer.clip = 1.0 / 3;
  config.optimizer = &optimizer;
  config.seed = 0xfedcba9876543210;
  const double speeds[] = {1, 3};
  config.speeds = speeds;
  Error err;
  for (const char* written : {"", "0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n"}) {
    config.schedule_text = *written ? written : nullptr;
    config.micro_batches = 3;
    const PlanPtr plan = new_plan(model, config);
    ASSERT_EQ(weft_plan_save(plan.get(), first.c_str(), &err), WEFT_OK) << err.text;
    weft_plan* loaded = nullptr;
    ASSERT_EQ(weft_plan_load(model.get(), first.c_str(), &loaded, &err), WEFT_OK) << err.text;
    const PlanPtr again(loaded);
    ASSERT_EQ(weft_plan_save(again.get(), second.c_str(), &err), WEFT_OK) << err.text;
    EXPECT_EQ(text_at(first), text_at(second));
    EXPECT_STREQ(weft_plan_first(again.get(), 1), weft_plan_first(plan.get(), 1));
    EXPECT_EQ(weft_plan_bytes(again.get(), 0), weft_plan_bytes(plan.get(), 0));
  }
  const auto refused = [&](const std::string& from, const std::string& to, weft_status status, std::initializer_list<const char*> parts) {
    std::string text = text_at(first);
    ASSERT_NE(text.find(from), std::string::npos) << from;
    std::ofstream(edited) << text.replace(text.find(from), from.size(), to);
    weft_plan* out = nullptr;
    expect_error(weft_plan_load(model.get(), edited.c_str(), &out, &err), err, status, parts);
    EXPECT_EQ(out, nullptr);
  };
  refused("\"sgd\"", "\"sdg\"", WEFT_EDATA, {"edited.json", "'sdg'"});
  refused("\"seed\"", "\"sead\"", WEFT_EDATA, {"has no 'seed'"});
  refused("\"seed\"", "\"more\": 1, \"seed\"", WEFT_EDATA, {"unknown key 'more'"});
  refused("\"clip\"", "\"clap\"", WEFT_EDATA, {"'optimizer': has no 'clip'"});
  refused("\"rate\": ", "\"rate\": -", WEFT_EDATA, {"'optimizer': 'rate' is -0.001, expected a finite number from 0"});
  refused("\"ranks\": 2", "\"ranks\": 2.5", WEFT_EDATA, {"'ranks' expects a number from 0, found a number"});
  refused("\"ranks\": 2", "\"ranks\": 1073741825", WEFT_EDATA, {"'ranks' is 1073741825, expected at most 1073741824"});
  refused("\"ranks\": 2", "\"ranks\": [2]", WEFT_EDATA, {"'ranks' expects a number, a string, true or false, found array"});
  refused("\"vertical_sync\": false", "\"vertical_sync\": 0", WEFT_EDATA, {"'vertical_sync' expects true or false, found a number"});
  refused("0F0 0F1", "0F1 0F0", WEFT_EINVAL, {"rank 0"});
  refused("\"slack\": 1", "\"slack\": 2", WEFT_EINVAL, {"edited.json", "'plan_hash' is ", "edited", "without 'plan_hash'"});
  std::string free = text_at(edited);
  const size_t at = free.find("\"plan_hash\"");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(edited) << free.erase(at, free.find(',', at) + 1 - at);
  weft_plan* taken = nullptr;
  ASSERT_EQ(weft_plan_load(model.get(), edited.c_str(), &taken, &err), WEFT_OK) << err.text;
  EXPECT_GT(weft_plan_bytes(taken, 1), 0);
  weft_plan_free(taken);
  const ModelPtr other = new_model();
  add_linear(other, "l", add_input(other, "x", {1, 4}), 2);
  weft_plan* out = nullptr;
  EXPECT_NE(weft_plan_load(other.get(), first.c_str(), &out, &err), WEFT_OK);
  expect_error(weft_plan_load(nullptr, "x", &out, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_plan_save(nullptr, "x", &err), err, WEFT_EINVAL, {"plan is NULL"});
  std::filesystem::remove_all(directory);
}

TEST(PlanTest, TheTimetableIsWrittenAsSnprintfWould) {
  weft_plan_config config = plan_config(2);
  config.schedule = "gpipe";
  const PlanPtr plan = new_plan(small_model(), config);
  const size_t size = weft_plan_timetable(plan.get(), nullptr, 0);
  std::string whole(size, '#'), cut(8, '#');
  EXPECT_EQ(weft_plan_timetable(plan.get(), whole.data(), size), size);
  EXPECT_EQ(whole.find('\0'), size - 1);
  EXPECT_EQ(whole.substr(0, 11), "0F0 0F1 0F2");
  EXPECT_NE(whole.find("1F0 1F1 1F2"), std::string::npos);
  EXPECT_EQ(weft_plan_timetable(plan.get(), cut.data(), 7), size);
  EXPECT_EQ(cut, std::string("0F0 0F\0#", 8));
}

}  // namespace
