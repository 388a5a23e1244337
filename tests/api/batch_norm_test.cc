// Batch normalization in runs: what its running moments are after a step, who uses them, and equal
// bits for every split. tests/ops/ compares the op with other implementations.
#include <cmath>

#include "api/drivers.h"

namespace {

constexpr int64_t kIn = 6, kWidth = 8, kOut = 3, kSize = 4, kMicroBatches = 3;
constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

// x [6] -> linear [8] -> batch_norm -> gelu -> linear [3], mean squared error to y.
ModelPtr model_with_batch_norm() {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, kIn}), y = add_input(model, "y", {1, kOut});
  weft_value h = add_linear(model, "a", x, kWidth);
  Error err;
  EXPECT_EQ(weft_model_add_batch_norm(model.get(), "norm", h, &h, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_output(model.get(), h, &err), WEFT_OK) << err.text;
  h = add_linear(model, "b", add_node(model, "gelu", {h}), kOut);
  add_node(model, "mse", {h, y});
  return model;
}

weft_plan_config config_of(uint32_t ranks, const char* recompute = "none") {
  weft_plan_config config = plan_config(ranks, kMicroBatches, kSize);
  config.recompute = recompute;
  return config;
}

struct Moments {
  std::vector<double> mean, variance;
};

Moments running(const RunPtr& run) {
  const auto mean = read(run, "norm.running_mean", WEFT_VALUE, {kWidth}),
             variance = read(run, "norm.running_var", WEFT_VALUE, {kWidth});
  return {{mean.begin(), mean.end()}, {variance.begin(), variance.end()}};
}

// What the first linear node makes of x.
std::vector<double> hidden(const RunPtr& run, const std::vector<float>& x) {
  const auto weight = read(run, "a.weight", WEFT_VALUE, {kIn, kWidth}),
             bias = read(run, "a.bias", WEFT_VALUE, {kWidth});
  std::vector<double> out;
  for (size_t row = 0; row < x.size() / kIn; ++row)
    for (size_t c = 0; c < kWidth; ++c) {
      double sum = bias[c];
      for (size_t i = 0; i < kIn; ++i) sum += double{x[row * kIn + i]} * weight[i * kWidth + c];
      out.push_back(sum);
    }
  return out;
}

// The running moments after a step with these hidden values.
Moments moved(Moments from, const std::vector<double>& h) {
  for (size_t c = 0; c < kWidth; ++c) {
    double means = 0, variances = 0;
    for (size_t mb = 0; mb < kMicroBatches; ++mb) {
      const double* first = h.data() + mb * kSize * kWidth + c;
      double mean = 0, squares = 0;
      for (size_t i = 0; i < kSize; ++i) mean += first[i * kWidth] / kSize;
      for (size_t i = 0; i < kSize; ++i) squares += std::pow(first[i * kWidth] - mean, 2);
      means += mean / kMicroBatches;
      variances += squares / (kSize - 1) / kMicroBatches;
    }
    from.mean[c] += kMomentum * (means - from.mean[c]);
    from.variance[c] += kMomentum * (variances - from.variance[c]);
  }
  return from;
}

void expect_near(const Moments& found, const Moments& expected) {
  for (size_t c = 0; c < kWidth; ++c) {
    EXPECT_NEAR(found.mean[c], expected.mean[c], 1e-6) << c;
    EXPECT_NEAR(found.variance[c], expected.variance[c], 1e-6) << c;
  }
}

struct Batch {
  TensorPtr x, y;
  explicit Batch(uint32_t number, int64_t samples = kSize * kMicroBatches)
      : x(noise({samples, kIn}, 2 * number + 1)), y(noise({samples, kOut}, 2 * number + 2)) {}
};

Outcome make(const RunPtr& run, const Batch& batch, weft_step_mode mode = WEFT_TRAIN) {
  Outcome out = step(run, {batch.x.get(), batch.y.get()}, mode);
  while (out.kind == WEFT_EVENT_UPDATE) out = finish(run);
  EXPECT_EQ(out.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << out.text;
  return out;
}

class BatchNorm : public testing::TestWithParam<Driver> {};

TEST_P(BatchNorm, AnUpdateMovesTheRunningMoments) {
  for (const char* name : {"stage", "data", "tensor"}) {
    SCOPED_TRACE(name);
    const weft_axis axis = {name, 2, 0};
    weft_plan_config config = config_of(2);
    config.axes = &axis;
    config.n_axes = 1;
    const TwoRanks ranks(new_plan(model_with_batch_norm(), config), GetParam());
    for (uint32_t i = 0; i < 3; ++i) {
      const Batch batch(i);
      const Moments expected = moved(running(ranks.run), hidden(ranks.run, values(batch.x)));
      make(ranks.run, batch);
      expect_near(running(ranks.run), expected);
    }
  }
}

TEST_P(BatchNorm, EverySplitGivesTheSameBits) {
  const RunPtr alone = start(model_with_batch_norm(), config_of(1));
  for (uint32_t i = 0; i < 4; ++i) make(alone, Batch(i));
  for (const char* recompute : {"none", "stage", "every:1"})
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      if (schedule == std::string("zb-h1") && recompute != std::string("none")) continue;
      SCOPED_TRACE(std::string(schedule) + ", " + recompute);
      weft_plan_config config = config_of(2, recompute);
      config.schedule = schedule;
      const TwoRanks ranks(new_plan(model_with_batch_norm(), config), GetParam());
      for (uint32_t i = 0; i < 4; ++i) make(ranks.run, Batch(i));
      EXPECT_EQ(digest(ranks.run), digest(alone));
    }
}

INSTANTIATE_TEST_SUITE_P(Drivers, BatchNorm, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RunningMoments, AreUsedByStepsThatDoNotTrain) {
  for (const char* precision : {"f32", "bf16"}) {
    weft_plan_config config = config_of(1);
    config.precision = precision;
    const RunPtr run = start(model_with_batch_norm(), config);
    for (uint32_t i = 0; i < 3; ++i) make(run, Batch(i));
    const std::string before = digest(run);
    const Batch batch(9);
    const Outcome out = step(run, {batch.x.get(), nullptr}, WEFT_FORWARD);
    make(run, batch, WEFT_EVAL);
    make(run, batch, WEFT_NO_UPDATE);
    EXPECT_EQ(digest(run), before);
    const Moments moments = running(run);
    const auto scale = read(run, "norm.weight", WEFT_VALUE, {kWidth}),
               shift = read(run, "norm.bias", WEFT_VALUE, {kWidth});
    const std::vector<double> h = hidden(run, values(batch.x));
    ASSERT_EQ(out.outputs.size(), static_cast<size_t>(kMicroBatches));
    for (size_t i = 0; i < h.size(); ++i) {
      const size_t c = i % kWidth, per = kSize * kWidth;
      const double expected =
          (h[i] - moments.mean[c]) / std::sqrt(moments.variance[c] + kEpsilon) * scale[c] +
          shift[c];
      EXPECT_NEAR(out.outputs[i / per][0][i % per], expected, *precision == 'f' ? 1e-5 : 2e-2);
    }
  }
}

TEST(RunningMoments, AreNoGradients) {
  const RunPtr run = start(model_with_batch_norm(), config_of(1));
  const Outcome out = make(run, Batch(0), WEFT_NO_UPDATE);
  double squares = 0;
  const std::pair<const char*, weft_desc> trained[] = {
      {"a.weight", desc({kIn, kWidth})},  {"a.bias", desc({kWidth})},
      {"norm.weight", desc({kWidth})},    {"norm.bias", desc({kWidth})},
      {"b.weight", desc({kWidth, kOut})}, {"b.bias", desc({kOut})},
  };
  for (const auto& [name, shape] : trained) {
    weft_tensor* made = nullptr;
    Error err;
    ASSERT_EQ(weft_tensor_new(&shape, &made, &err), WEFT_OK) << err.text;
    const TensorPtr gradient(made);
    ASSERT_EQ(weft_run_read(run.get(), name, WEFT_GRAD, made, &err), WEFT_OK) << err.text;
    for (const float g : values(gradient)) squares += double{g} * g;
  }
  EXPECT_NEAR(out.grad_norm, std::sqrt(squares), 1e-6);
}

TEST(RunningMoments, FollowNoRateAndStayIfFrozen) {
  const RunPtr still = start(model_with_batch_norm(), config_of(1));
  Error err;
  ASSERT_EQ(weft_run_set_rate(still.get(), 0, &err), WEFT_OK);
  const Batch batch(0);
  const Moments expected = moved(running(still), hidden(still, values(batch.x)));
  make(still, batch);
  expect_near(running(still), expected);

  weft_parameter_group group = defaults(weft_parameter_group_init);
  group.pattern = "norm.running_*";
  group.frozen = 1;
  weft_plan_config config = config_of(2);
  config.groups = &group;
  config.n_groups = 1;
  const RunPtr frozen = start(model_with_batch_norm(), config);
  make(frozen, batch);
  EXPECT_EQ(running(frozen).mean, std::vector<double>(kWidth, 0));
  EXPECT_EQ(running(frozen).variance, std::vector<double>(kWidth, 1));
}

// Each update of a segment moves them, towards the moments of its own micro-batches.
TEST(RunningMoments, MoveWithEachUpdateOfASegment) {
  weft_plan_config config = plan_config(2, 1, kSize);
  config.schedule = "pipedream";
  config.segment = kMicroBatches;
  const RunPtr run = start(model_with_batch_norm(), config);
  Error err;
  ASSERT_EQ(weft_run_set_rate(run.get(), 0, &err), WEFT_OK);  // so that the hidden values stay
  const Batch batch(0);
  const std::vector<double> h = hidden(run, values(batch.x));
  Moments expected = running(run);
  for (size_t u = 0; u < kMicroBatches; ++u) {
    std::vector<double> same;  // a step of equal micro-batches
    const auto first = h.begin() + static_cast<ptrdiff_t>(u * kSize * kWidth);
    for (int64_t i = 0; i < kMicroBatches; ++i)
      same.insert(same.end(), first, first + kSize * kWidth);
    expected = moved(expected, same);
  }
  make(run, batch);
  expect_near(running(run), expected);
}

// Training steps do not compute a node that the loss does not depend on.
TEST(RunningMoments, AreThoseOfNodesThatTheLossDependsOn) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, kIn}), y = add_input(model, "y", {1, kOut});
  const weft_value h = add_linear(model, "a", x, kWidth);
  weft_value aside, used;
  Error err;
  ASSERT_EQ(weft_model_add_batch_norm(model.get(), "aside", h, &aside, &err), WEFT_OK);
  ASSERT_EQ(weft_model_add_output(model.get(), aside, &err), WEFT_OK);
  ASSERT_EQ(weft_model_add_batch_norm(model.get(), "norm", h, &used, &err), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "b", used, kOut), y});
  const RunPtr run = start(model, config_of(2));
  const Batch batch(0);
  const Moments expected = moved(running(run), hidden(run, values(batch.x)));
  make(run, batch);
  expect_near(running(run), expected);
  EXPECT_EQ(read(run, "aside.running_mean", WEFT_VALUE, {kWidth}), std::vector<float>(kWidth, 0));
  EXPECT_EQ(read(run, "aside.running_var", WEFT_VALUE, {kWidth}), std::vector<float>(kWidth, 1));
}

// Their squares overflow, but the outputs and the gradients do not.
TEST(RunningMoments, LeaveOutAnUpdateIfTheyAreNotFinite) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, kIn}), y = add_input(model, "y", {1, kOut});
  weft_value h;
  Error err;
  ASSERT_EQ(weft_model_add_batch_norm(model.get(), "norm", x, &h, &err), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "b", add_node(model, "gelu", {h}), kOut), y});
  for (const uint32_t ranks : {1u, 2u}) {
    const RunPtr run = start(model, config_of(ranks));
    make(run, Batch(0));
    const std::string before = digest(run);
    const Batch bad(1);
    floats(bad.x)[7] = 1e20f;
    const Outcome out = make(run, bad);
    EXPECT_TRUE(std::isfinite(out.loss));
    EXPECT_FALSE(std::isfinite(out.grad_norm));
    EXPECT_EQ(digest(run), before);
    EXPECT_TRUE(std::isfinite(make(run, Batch(2)).grad_norm));
  }
}

TEST(RunningMoments, HaveNoOptimizerStateAndAreNotTrained) {
  const PlanPtr plan = new_plan(model_with_batch_norm(), config_of(1));
  weft_plan_info info = sized<weft_plan_info>();
  ASSERT_EQ(weft_plan_describe(plan.get(), &info), WEFT_OK);
  EXPECT_EQ(info.trained, (kIn + 1) * kWidth + 2 * kWidth + (kWidth + 1) * kOut);
  const RunPtr run = start(plan);
  make(run, Batch(0));
  const TensorPtr state = zeros({kWidth});
  Error err;
  EXPECT_EQ(weft_run_read(run.get(), "norm.bias", WEFT_EXP_AVG, state.get(), &err), WEFT_OK);
  expect_error(weft_run_read(run.get(), "norm.running_mean", WEFT_EXP_AVG, state.get(), &err), err,
               WEFT_ENOENT,
               {"parameter 'norm.running_mean' is a moving average, and has no optimizer state"});
}

// x [6] -> linear [8], and the parameters of the norm as biases.
ModelPtr model_without_batch_norm() {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, kIn}), y = add_input(model, "y", {1, kOut});
  weft_value h = add_linear(model, "a", x, kWidth);
  const weft_desc shape = desc({kWidth});
  for (const char* name : {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}) {
    Error err;
    weft_param param = {};
    EXPECT_EQ(weft_model_add_param(model.get(), name, &shape, WEFT_INIT_CONSTANT, 1, &param, &err),
              WEFT_OK)
        << err.text;
    weft_node_config add = defaults(weft_node_config_init);
    add.op = "add";
    add.inputs = &h;
    add.n_inputs = 1;
    add.params = &param;
    add.n_params = 1;
    EXPECT_EQ(weft_model_add_node(model.get(), &add, &h, &err), WEFT_OK) << err.text;
  }
  add_node(model, "mse", {add_linear(model, "b", h, kOut), y});
  return model;
}

// Earlier versions stored zeros for the running moments.
TEST(RunningMoments, AreLoadedFromCheckpointsThatHaveOptimizerStateOfThem) {
  const Directory directory;
  const RunPtr old = start(model_without_batch_norm(), config_of(1));
  make(old, Batch(0));
  Error err;
  weft_save_config to = defaults(weft_save_config_init);
  to.directory = directory.path().c_str();
  ASSERT_EQ(weft_run_save(old.get(), &to, &err), WEFT_OK) << err.text;
  const CheckpointPtr saved = open_checkpoint(directory.path());
  const RunPtr run = start(model_with_batch_norm(), config_of(1));
  ASSERT_EQ(weft_run_load(run.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(run), digest(old));
  for (const weft_part part : {WEFT_VALUE, WEFT_EXP_AVG, WEFT_EXP_AVG_SQ})
    EXPECT_EQ(read(run, "norm.bias", part, {kWidth}), read(old, "norm.bias", part, {kWidth}));
}

TEST(RunningMoments, NeedTwoRows) {
  const ModelPtr model = model_with_batch_norm();
  const auto refused = [&](uint32_t size, uint32_t short_size) {
    weft_plan_config config = plan_config(1, 2, size);
    config.short_size = short_size;
    weft_plan* plan = nullptr;
    Error err;
    expect_error(
        weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
        {"node 'norm' (batch_norm): a micro-batch of 1 sample has one row, [1,8], expected"});
  };
  refused(1, 0);
  refused(4, 1);
  weft_plan_config config = plan_config(1, 2, 1);
  config.step_kinds = WEFT_STEPS_FORWARD;
  EXPECT_TRUE(new_plan(model, config));
}

TEST(RunningMoments, BelongToOneKindOfNode) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, kIn});
  const weft_desc shape = desc({kIn});
  weft_param params[4] = {};
  Error err;
  for (size_t i = 0; i < 4; ++i)
    ASSERT_EQ(weft_model_add_param(model.get(), std::string(1, static_cast<char>('a' + i)).c_str(),
                                   &shape, WEFT_INIT_CONSTANT, 1, &params[i], &err),
              WEFT_OK)
        << err.text;
  weft_node_config config = defaults(weft_node_config_init);
  config.op = "batch_norm";
  config.inputs = &x;
  config.n_inputs = 1;
  config.params = params;
  config.n_params = 4;
  config.factor = 1e-5;
  config.momentum = 0.1;
  weft_value out;
  ASSERT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  weft_param twice[] = {params[0], params[1], params[2], params[2]};
  config.params = twice;
  expect_error(weft_model_add_node(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"weight 2, 'c', is a moving average, and also another weight"});
  config.params = params;
  config.momentum = 0.2;
  expect_error(weft_model_add_node(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"weight 2, 'c', is a moving average in one node", "another momentum"});
  weft_node_config add = defaults(weft_node_config_init);
  add.op = "add";
  add.inputs = &x;
  add.n_inputs = 1;
  add.params = &params[3];
  add.n_params = 1;
  expect_error(weft_model_add_node(model.get(), &add, &out, &err), err, WEFT_EINVAL,
               {"weight 0, 'd', is a moving average in one node"});
}

}  // namespace
