// Calls that replace several others, and what they list.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/drivers.h"

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// tokens [5] -> embedding -> norm -> linear -> attention -> dropout -> relu, and a loss.
ModelPtr tokens_model() {
  ModelPtr model = new_model();
  weft_model* m = model.get();
  const weft_desc tokens = desc({1, 5}, WEFT_I32);
  weft_value x = {}, y = {}, loss = {};
  Error err;
  EXPECT_EQ(weft_model_add_input(m, "tokens", &tokens, 0, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_input(m, "targets", &tokens, 0, &y, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_embedding(m, "embed", x, 7, 8, 0, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_layer_norm(m, "norm", x, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_linear(m, "qkv", x, 24, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_attention(m, nullptr, x, 2, WEFT_NODE_CAUSAL, &x, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(weft_model_add_dropout(m, nullptr, x, 0.1, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_unary(m, "act", "relu", x, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_output(m, x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_binary(m, "loss", "softmax_cross_entropy", x, y, &loss, &err), WEFT_OK)
      << err.text;
  return model;
}

std::vector<std::string> names(const ModelPtr& model, weft_item_kind kind) {
  std::vector<std::string> out;
  weft_item item = sized<weft_item>();
  for (uint32_t i = 0; weft_model_describe(model.get(), kind, i, &item) == WEFT_OK; ++i)
    out.push_back(item.name);
  return out;
}

TEST(Shortcuts, CommonNodesHaveTheirParameters) {
  const ModelPtr model = tokens_model();
  EXPECT_EQ(names(model, WEFT_ITEM_INPUT), (std::vector<std::string>{"tokens", "targets"}));
  EXPECT_EQ(names(model, WEFT_ITEM_PARAM),
            (std::vector<std::string>{"embed.weight", "norm.weight", "norm.bias", "qkv.weight",
                                      "qkv.bias"}));
  EXPECT_EQ(names(model, WEFT_ITEM_OUTPUT), std::vector<std::string>{"act"});
  EXPECT_EQ(names(model, WEFT_ITEM_NODE).size(), 7u);
  const RunPtr run = start(model, plan_config(2, 1, 1));
  EXPECT_EQ(read(run, "norm.weight", WEFT_VALUE, {8}), std::vector<float>(8, 1));
}

TEST(Shortcuts, ItemsHaveOpsAndShapes) {
  const ModelPtr model = tokens_model();
  weft_item item = sized<weft_item>();
  ASSERT_EQ(weft_model_describe(model.get(), WEFT_ITEM_OUTPUT, 0, &item), WEFT_OK);
  EXPECT_STREQ(item.op, "relu");
  EXPECT_EQ(item.desc.n_dims, 3u);
  weft_desc shape = {};
  Error err;
  ASSERT_EQ(weft_model_shape(model.get(), item.value, 6, &shape, &err), WEFT_OK) << err.text;
  EXPECT_EQ(std::vector<int64_t>(shape.dims, shape.dims + shape.n_dims),
            (std::vector<int64_t>{6, 5, 8}));
  EXPECT_EQ(weft_model_describe(model.get(), WEFT_ITEM_INPUT, 2, &item), WEFT_ENOENT);
  EXPECT_EQ(weft_model_describe(model.get(), weft_item_kind{0}, 0, &item), WEFT_EINVAL);
  expect_error(weft_model_shape(model.get(), {99}, 1, &shape, &err), err, WEFT_EINVAL, {"99"});
}

TEST(Shortcuts, ANodeThatFailsAddsNoParameters) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6});
  weft_value out = {};
  Error err;
  expect_error(weft_model_add_embedding(model.get(), "e", x, 4, 4, 0, &out, &err), err, WEFT_EINVAL,
               {"node 'e' (embedding)"});
  expect_error(weft_model_add_layer_norm(model.get(), "n", {9}, &out, &err), err, WEFT_EINVAL,
               {"node 'n'", "x is not a value"});
  EXPECT_EQ(weft_model_parameters(model.get()), 0);
}

TEST(Shortcuts, AnOpWithSettingsNamesTheCallThatAddsIt) {
  const ModelPtr model = new_model();
  weft_model* m = model.get();
  const weft_value x = add_input(model, "x", {1, 6});
  weft_value out = {};
  Error err;
  expect_error(weft_model_add_unary(m, "n", "linear", x, &out, &err), err, WEFT_EINVAL,
               {"node 'n' (linear)", ": weft_model_add_linear adds the op with its settings"});
  expect_error(weft_model_add_unary(m, "n", "slice", x, &out, &err), err, WEFT_EINVAL,
               {"node 'n' (slice)", ": weft_model_add_node adds the op with its settings"});
  expect_error(weft_model_add_binary(m, "n", "gather", x, x, &out, &err), err, WEFT_EINVAL,
               {"node 'n' (gather)", ": weft_model_add_node adds"});
  for (const char* op : {"scale", "dropout"})
    expect_error(weft_model_add_unary(m, nullptr, op, x, &out, &err), err, WEFT_EINVAL,
                 {"a node (", " adds the op with its settings"});
  for (const char* op : {"add", "mse", "no such op"}) {
    EXPECT_LT(weft_model_add_unary(m, "n", op, x, &out, &err), 0);
    EXPECT_EQ(std::strstr(err.text, " adds "), nullptr) << err.text;
  }
}

// A loss that was added with its inputs exchanged cannot be taken back, so the call refuses it.
TEST(Shortcuts, ALossWhoseTargetsAreNoInputIsRefused) {
  const ModelPtr model = new_model();
  const weft_desc row = desc({1, 4});
  weft_value x = {}, y = {}, out = {}, loss = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "x", &row, 0, &x, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_input(model.get(), "y", &row, 0, &y, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_linear(model.get(), "out", x, 4, &out, &err), WEFT_OK) << err.text;
  expect_error(weft_model_add_binary(model.get(), "loss", "mse", y, out, &loss, &err), err,
               WEFT_EINVAL, {"'loss'", "input 1 is the targets", "got node 'out'"});
  EXPECT_EQ(weft_model_add_binary(model.get(), "loss", "mse", out, y, &loss, &err), WEFT_OK)
      << err.text;
  expect_error(weft_model_add_output(model.get(), loss, &err), err, WEFT_EINVAL,
               {"'loss' is the loss"});
}

TEST(Shortcuts, AStepInOneCallIsThatOfSubmitAndPoll) {
  const RunPtr one = start(small_model(), plan_config(2)),
               other = start(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  weft_tensor* const batch[] = {x.get(), y.get()};
  double loss = 0;
  Error err;
  ASSERT_EQ(weft_run_step(one.get(), batch, 2, WEFT_TRAIN, nullptr, 0, &loss, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(loss, step(other, {x.get(), y.get()}).loss);
  EXPECT_EQ(digest(one), digest(other));
  ASSERT_EQ(submit(one, {x.get(), y.get()}, WEFT_EVAL, 0), WEFT_OK);
  expect_error(weft_run_step(one.get(), batch, 2, WEFT_TRAIN, nullptr, 0, &loss, &err), err,
               WEFT_ESTATE, {"in progress"});
}

TEST(Shortcuts, AForwardStepInOneCallFillsTheOutputsOfAllSamples) {
  const RunPtr run = start(small_model(), plan_config(2)),
               other = start(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), hidden = zeros({6, 8}), short_one = zeros({4, 8});
  weft_tensor* const inputs[] = {x.get(), nullptr};
  const auto forward = [&](weft_tensor* output, weft_step_mode mode, uint32_t n, Error& err) {
    return weft_run_step(run.get(), inputs, 2, mode, &output, n, nullptr, &err);
  };
  Error err;
  ASSERT_EQ(forward(hidden.get(), WEFT_FORWARD, 1, err), WEFT_OK) << err.text;
  std::vector<float> expected;
  for (const auto& outputs : step(other, {x.get(), nullptr}, WEFT_FORWARD).outputs)
    expected.insert(expected.end(), outputs[0].begin(), outputs[0].end());
  EXPECT_EQ(values(hidden), expected);
  EXPECT_EQ(forward(nullptr, WEFT_FORWARD, 1, err), WEFT_OK) << "an output may be left out";
  EXPECT_EQ(forward(nullptr, WEFT_FORWARD, 0, err), WEFT_OK) << "and so may all";
  expect_error(forward(short_one.get(), WEFT_FORWARD, 1, err), err, WEFT_EINVAL,
               {"output 'hidden' of 6 samples is f32[6,8], the tensor f32[4,8]"});
  expect_error(forward(hidden.get(), WEFT_FORWARD, 2, err), err, WEFT_EINVAL,
               {"n_outputs is 2, expected 1"});
  expect_error(forward(hidden.get(), WEFT_EVAL, 1, err), err, WEFT_EINVAL,
               {"n_outputs is 1, expected 0: the plan delivers no outputs of such a step"});
}

TEST(Shortcuts, AnExportHasTheParametersOfTheRun) {
  const Directory directory;
  const std::string path = directory.path() + "/weights.safetensors";
  const RunPtr run = start(small_model(), plan_config(2));
  Error err;
  ASSERT_EQ(weft_run_export(run.get(), path.c_str(), &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(open_checkpoint(path)), digest(run));
}

// All that a plan is made of: both write the same file.
void expect_same_plan(const ModelPtr& model, const weft_plan_config& config) {
  const Directory directory;
  const std::string first = directory.path() + "/first", second = directory.path() + "/second";
  const PlanPtr plan = new_plan(model, config);
  weft_plan_config settings = sized<weft_plan_config>();
  ASSERT_EQ(weft_plan_settings(plan.get(), &settings), WEFT_OK);
  const PlanPtr again = new_plan(model, settings);
  ASSERT_EQ(weft_plan_save(plan.get(), first.c_str(), nullptr), WEFT_OK);
  ASSERT_EQ(weft_plan_save(again.get(), second.c_str(), nullptr), WEFT_OK);
  EXPECT_EQ(text_of(first), text_of(second));
}

TEST(Shortcuts, TheSettingsOfAPlanMakeItAgain) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2, 4);
  expect_same_plan(model, config);
  const weft_axis axes[] = {{"data", 2, 0}, {"stage", 2, 0}};
  config.ranks = 1;
  config.axes = axes;
  config.n_axes = 2;
  config.schedule = "gpipe";
  config.step_kinds = WEFT_STEPS_TRAIN;
  config.recompute = "stage";
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.momentum = 0.5;
  config.optimizer = &sgd;
  expect_same_plan(model, config);
  config = plan_config(1, 2);
  config.schedule_text = "0F0 0F1 0B0 0B1\n";
  expect_same_plan(model, config);
  // What weft_plan_new has selected.
  config = plan_config(2, 4);
  for (const char* schedule : {"auto", "zb-auto"}) {
    config.schedule = schedule;
    config.memory_limit = 1 << 20;
    expect_same_plan(model, config);
  }
}

// Without threads a poll with no time runs one job: a step takes many such polls.
TEST(Shortcuts, APollWithoutTimeIsShort) {
  const RunPtr run = start(small_model(), plan_config(2)),
               other = start(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  int without = 0;
  do {
    const weft_status got = weft_run_poll(run.get(), &event, 0, nullptr);
    ASSERT_GE(got, 0);
    without += got == 0;
    ASSERT_LT(without, 1000);
  } while (event.kind != WEFT_EVENT_DONE);
  EXPECT_GE(without, 2 * 2 * 3) << "forward and backward of 2 stages and 3 micro-batches";
  step(other, {x.get(), y.get()});
  EXPECT_EQ(digest(run), digest(other));
}

}  // namespace
