// Profiles: measured, saved, read back, and refused where they are of something else.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "api/drivers.h"
#include "api/low_rank_model.h"
#include "api/square_op.h"

namespace {

struct FreeProfile {
  void operator()(weft_profile* profile) const { weft_profile_free(profile); }
};
using ProfilePtr = std::unique_ptr<weft_profile, FreeProfile>;

class ProfileTest : public testing::Test {
 protected:
  std::string path(const char* name) const { return directory_ / name; }

  static ModelPtr preset(const char* text) {
    weft_model* out = nullptr;
    Error err;
    EXPECT_EQ(weft_model_preset(text, 0, 1, &out, nullptr, &err), WEFT_OK) << err.text;
    return ModelPtr(out);
  }

  static ProfilePtr measure(const ModelPtr& model, uint32_t micro_batch_size) {
    weft_profile_config config = defaults(weft_profile_config_init);
    config.micro_batch_size = micro_batch_size;
    config.repeats = 3;
    weft_profile* out = nullptr;
    Error err;
    EXPECT_EQ(weft_profile_new(model.get(), &config, &out, &err), WEFT_OK) << err.text;
    return ProfilePtr(out);
  }

  static weft_status plan(const ModelPtr& model, const weft_profile* profile,
                          uint32_t micro_batch_size, PlanPtr& out, Error& err) {
    weft_plan_config config = defaults(weft_plan_config_init);
    config.ranks = 2;
    config.micro_batch_size = micro_batch_size;
    config.profile = profile;
    weft_plan* made = nullptr;
    const weft_status status = weft_plan_new(model.get(), &config, &made, &err);
    out.reset(made);
    return status;
  }

  const Directory directory_;
};

TEST_F(ProfileTest, IsOfOnePrecision) {
  const ModelPtr model = preset("gpt-nano:blocks=2,width=32,heads=2,context=16");
  weft_profile_config config = defaults(weft_profile_config_init);
  config.repeats = 3;
  config.precision = "bf16";
  config.f32_nodes = "lm_head";
  weft_profile* out = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_new(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  const ProfilePtr measured(out);
  ASSERT_EQ(weft_profile_save(out, path("p.json").c_str(), nullptr), WEFT_OK);
  ASSERT_EQ(weft_profile_load(path("p.json").c_str(), &out, &err), WEFT_OK) << err.text;
  const ProfilePtr profile(out);

  weft_plan_config wanted = defaults(weft_plan_config_init);
  wanted.profile = profile.get();
  weft_plan* made = nullptr;
  EXPECT_EQ(weft_plan_new(model.get(), &wanted, &made, &err), WEFT_EINVAL);
  EXPECT_STREQ(err.text,
               "the profile was made with precision bf16 and f32_nodes 'lm_head', the plan has "
               "precision f32");
  wanted.precision = config.precision;
  wanted.f32_nodes = config.f32_nodes;
  ASSERT_EQ(weft_plan_new(model.get(), &wanted, &made, &err), WEFT_OK) << err.text;
  weft_plan_free(made);

  config.precision = "bf15";
  EXPECT_EQ(weft_profile_new(model.get(), &config, &out, &err), WEFT_EINVAL);
  EXPECT_NE(std::string_view(err.text).find("precision is 'bf15', expected f32 or bf16"),
            std::string_view::npos)
      << err.text;
}

TEST_F(ProfileTest, TimesEveryNodeAndSurvivesItsFile) {
  const ModelPtr model = preset("gpt-nano:blocks=2,width=32,heads=2,context=16");
  const ProfilePtr profile = measure(model, 3);
  ASSERT_EQ(weft_profile_save(profile.get(), path("p.json").c_str(), nullptr), WEFT_OK);
  weft_profile* loaded = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_load(path("p.json").c_str(), &loaded, &err), WEFT_OK) << err.text;
  const ProfilePtr again(loaded);
  ASSERT_GT(weft_profile_nodes(profile.get()), 20u);
  ASSERT_EQ(weft_profile_nodes(again.get()), weft_profile_nodes(profile.get()));
  for (uint32_t i = 0; i < weft_profile_nodes(profile.get()); ++i) {
    weft_node_times a = sized<weft_node_times>(), b = sized<weft_node_times>();
    ASSERT_EQ(weft_profile_node(profile.get(), i, &a), WEFT_OK);
    ASSERT_EQ(weft_profile_node(again.get(), i, &b), WEFT_OK);
    EXPECT_STREQ(a.name, b.name);
    EXPECT_EQ(a.forward_ns, b.forward_ns) << a.name;
    EXPECT_EQ(a.input_ns, b.input_ns) << a.name;
    EXPECT_EQ(a.weight_ns, b.weight_ns) << a.name;
    EXPECT_EQ(a.output_bytes, b.output_bytes) << a.name;
    EXPECT_GT(a.forward_ns, 0) << a.name;
    EXPECT_GT(a.output_bytes, 0u) << a.name;
    const bool has_weights = std::strstr(a.name, "c_attn") != nullptr;
    if (has_weights) {
      EXPECT_GT(a.input_ns, 0) << a.name;
      EXPECT_GT(a.weight_ns, 0) << a.name;
    }
  }
  weft_node_times beyond = sized<weft_node_times>();
  EXPECT_EQ(weft_profile_node(profile.get(), weft_profile_nodes(profile.get()), &beyond),
            WEFT_ENOENT);
  PlanPtr made;
  EXPECT_EQ(plan(model, again.get(), 3, made, err), WEFT_OK) << err.text;
}

// Indices are drawn; those that reach an embedding by way of another node have to be good for it
// too.
TEST_F(ProfileTest, DrawsIndicesThatAreGoodForAllTheyReach) {
  const ModelPtr model = new_model();
  const weft_desc indices = desc({1, 6}, WEFT_I32), many = desc({700, 5}), few = desc({2, 5});
  weft_value tokens = {}, part = {}, turned = {}, one = {}, other = {};
  weft_param table = {}, small = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "tokens", &indices, 0, &tokens, &err), WEFT_OK)
      << err.text;
  ASSERT_EQ(weft_model_add_param(model.get(), "table", &many, WEFT_INIT_NORMAL, 0.1, &table, &err),
            WEFT_OK)
      << err.text;
  ASSERT_EQ(weft_model_add_param(model.get(), "small", &few, WEFT_INIT_NORMAL, 0.1, &small, &err),
            WEFT_OK)
      << err.text;
  weft_node_config slice = defaults(weft_node_config_init);
  slice.op = "slice";
  slice.axis = 1;
  slice.end = 6;
  slice.inputs = &tokens;
  slice.n_inputs = 1;
  ASSERT_EQ(weft_model_add_node(model.get(), &slice, &part, &err), WEFT_OK) << err.text;
  weft_node_config reshape = defaults(weft_node_config_init);
  reshape.op = "reshape";
  reshape.n_dims = 2;
  reshape.dims[0] = -1;
  reshape.dims[1] = 6;
  reshape.inputs = &part;
  reshape.n_inputs = 1;
  ASSERT_EQ(weft_model_add_node(model.get(), &reshape, &turned, &err), WEFT_OK) << err.text;
  weft_node_config embedding = defaults(weft_node_config_init);
  embedding.op = "embedding";
  embedding.n_inputs = embedding.n_params = 1;
  embedding.inputs = &tokens;
  embedding.params = &table;
  ASSERT_EQ(weft_model_add_node(model.get(), &embedding, &one, &err), WEFT_OK) << err.text;
  embedding.inputs = &turned;
  embedding.params = &small;
  ASSERT_EQ(weft_model_add_node(model.get(), &embedding, &other, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_output(model.get(), add_node(model, "add", {one, other}), &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(weft_profile_nodes(measure(model, 4).get()), 5u);
}

// The same indices choose one of 700 rows, and then one of 6.
TEST_F(ProfileTest, DrawsIndicesThatAreGoodForAGather) {
  const ModelPtr model = new_model();
  const weft_desc indices = desc({1, 6}, WEFT_I32);
  weft_value tokens = {}, rows = {}, picked = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "tokens", &indices, 0, &tokens, &err), WEFT_OK)
      << err.text;
  ASSERT_EQ(weft_model_add_embedding(model.get(), "rows", tokens, 700, 5, 0, &rows, &err), WEFT_OK)
      << err.text;
  const weft_value operands[] = {rows, tokens};
  weft_node_config gather = defaults(weft_node_config_init);
  gather.op = "gather";
  gather.axis = 1;
  gather.inputs = operands;
  gather.n_inputs = 2;
  ASSERT_EQ(weft_model_add_node(model.get(), &gather, &picked, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_output(model.get(), picked, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_profile_nodes(measure(model, 4).get()), 2u);
}

// A step fails if a mask hides all keys of a sample.
TEST_F(ProfileTest, DrawsAMaskThatHidesNoKey) {
  const ModelPtr model = new_model();
  const weft_desc keys = desc({1, 6}, WEFT_I32);
  weft_value mask = {}, seen = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "mask", &keys, 0, &mask, &err), WEFT_OK) << err.text;
  const weft_value operands[] = {add_input(model, "x", {1, 6, 12}), mask};
  weft_node_config attention = defaults(weft_node_config_init);
  attention.op = "attention";
  attention.heads = 2;
  attention.inputs = operands;
  attention.n_inputs = 2;
  ASSERT_EQ(weft_model_add_node(model.get(), &attention, &seen, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_model_add_output(model.get(), seen, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_profile_nodes(measure(model, 4).get()), 1u);
}

TEST_F(ProfileTest, DecidesWhereTheModelIsCut) {
  const ModelPtr model = preset("mlp:layers=4,width=8");
  const ProfilePtr profile = measure(model, 2);
  ASSERT_EQ(weft_profile_save(profile.get(), path("p.json").c_str(), nullptr), WEFT_OK);
  std::ifstream in(path("p.json"));
  std::stringstream text;
  text << in.rdbuf();
  // The same file, but for the first node's time.
  std::string edited = text.str();
  const size_t at = edited.find("\"forward\": ") + 11;
  edited.replace(at, edited.find(',', at) - at, "7.5");
  std::ofstream(path("q.json")) << edited;
  weft_profile* loaded = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_load(path("q.json").c_str(), &loaded, &err), WEFT_OK) << err.text;
  const ProfilePtr changed(loaded);
  PlanPtr made;
  ASSERT_EQ(plan(model, changed.get(), 2, made, err), WEFT_OK) << err.text;
  EXPECT_STREQ(weft_plan_first(made.get(), 1), "layers.0.relu");
}

TEST_F(ProfileTest, OfSomethingElseIsRefused) {
  const ModelPtr small = preset("mlp:layers=3,width=8"), large = preset("mlp:layers=4,width=8"),
                 wide = preset("mlp:layers=3,width=16");
  const ProfilePtr profile = measure(small, 2);
  PlanPtr made;
  Error err;
  expect_error(plan(small, profile.get(), 4, made, err), err, WEFT_EINVAL,
               {"micro-batches of 2", "micro-batches of 4"});
  expect_error(plan(large, profile.get(), 2, made, err), err, WEFT_EINVAL,
               {"missing: layers.3, layers.3.relu"});
  expect_error(plan(wide, profile.get(), 2, made, err), err, WEFT_EINVAL,
               {"'layers.0' makes 64 bytes in the profile", "in the model 128"});
  const ProfilePtr other = measure(large, 2);
  expect_error(plan(small, other.get(), 2, made, err), err, WEFT_EINVAL,
               {"surplus: layers.3, layers.3.relu"});
}

TEST_F(ProfileTest, DamagedFilesAreRefused) {
  const auto refused = [&](const std::string& text, std::initializer_list<const char*> parts) {
    std::ofstream(path("bad.json")) << text;
    weft_profile* out = nullptr;
    Error err;
    expect_error(weft_profile_load(path("bad.json").c_str(), &out, &err), err, WEFT_EDATA, parts);
    EXPECT_EQ(out, nullptr);
  };
  refused("", {"is empty, expected a JSON object"});
  refused("{}", {"bad.json", "has no 'format'"});
  refused(R"({"format": 2})", {"'format' is 2"});
  const std::string head =
      R"({"format":1,"weft":"","model":"","kernels":"","micro_batch_size":1,"seq_len":0,"threads":1,"update":0,)";
  refused(head + R"("nodes":[{"name":"a","forward":-1}]})", {"node 0: 'forward' is -1"});
  refused(head + R"("nodes":[],"more":1})", {"unknown key 'more'"});
  weft_profile* out = nullptr;
  Error err;
  EXPECT_EQ(weft_profile_load(path("none.json").c_str(), &out, &err), WEFT_ENOENT) << err.text;
}

// An op that takes at least so many milliseconds.
std::atomic<int> milliseconds = 1;

int32_t sleep_and_square(const weft_op_call* call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return Square::forward(call);
}

class RunProfileTest : public ProfileTest {
 protected:
  void SetUp() override {
    ProfileTest::SetUp();
    weft_op op = square_op();
    op.forward = sleep_and_square;
    model_ = squaring_model(&square_, 0, op);
    milliseconds = 1;
    profile_ = measure(model_, 2);
  }

  PlanPtr two_stages(const weft_profile* profile) {
    weft_plan_config config = defaults(weft_plan_config_init);
    config.ranks = 2;
    config.micro_batches = 4;
    config.micro_batch_size = 2;
    config.profile = profile;
    config.split = WEFT_SPLIT_UNIFORM;
    weft_plan* out = nullptr;
    Error err;
    EXPECT_EQ(weft_plan_new(model_.get(), &config, &out, &err), WEFT_OK) << err.text;
    return PlanPtr(out);
  }

  // The model and its profile. The gradient of each weight takes at least `milliseconds`.
  void with_slow_weight_gradients() {
    weft_op op = low_rank_op();
    op.backward_params = [](const weft_op_call* call) -> int32_t {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      return LowRank::backward_params(call);
    };
    model_ = low_rank_model(op);
    profile_ = measure(model_, 2);
  }

  // Makes steps that are recorded.
  static void steps(weft_run* run, int count, int64_t samples = 8,
                    std::vector<weft_step_mode> modes = {WEFT_TRAIN}) {
    Error err;
    ASSERT_EQ(weft_run_trace(run, 10000, &err), WEFT_OK) << err.text;
    const TensorPtr x = zeros({samples, 6}), y = zeros({samples, 3});
    weft_tensor* inputs[] = {x.get(), y.get()};
    for (int i = 0; i < count; ++i)
      for (const weft_step_mode mode : modes)
        ASSERT_EQ(weft_run_step(run, inputs, 2, mode, nullptr, 0, nullptr, &err), WEFT_OK)
            << err.text;
  }

  static weft_node_times times_of(const ProfilePtr& profile, const char* name) {
    weft_node_times times = sized<weft_node_times>();
    for (uint32_t i = 0; weft_profile_node(profile.get(), i, &times) == WEFT_OK; ++i)
      if (std::strcmp(times.name, name) == 0) return times;
    ADD_FAILURE() << "the profile has no node " << name;
    return sized<weft_node_times>();
  }

  // The median of the times from the begin of a step to that of the next one, without those of the
  // first two, in nanoseconds.
  int64_t recorded_step(weft_run* run) const {
    EXPECT_EQ(weft_run_save_trace(run, path("trace.json").c_str(), nullptr), WEFT_OK);
    std::ifstream in(path("trace.json"));
    std::map<int64_t, double> begins;
    std::string line;
    const auto number = [&line](const char* key) {
      const size_t at = line.find(key);
      return at == std::string::npos ? -1 : std::stod(line.substr(at + std::strlen(key)));
    };
    while (std::getline(in, line)) {
      const double step = number("\"step\":"), begin = number("\"ts\":");
      if (line.find("\"ph\":\"X\"") == std::string::npos || step < 0) continue;
      const auto [at, is_new] = begins.try_emplace(static_cast<int64_t>(step), begin);
      at->second = std::min(at->second, begin);
    }
    std::vector<double> times;
    for (auto at = std::next(begins.begin(), 2); std::next(at) != begins.end(); ++at)
      times.push_back(std::next(at)->second - at->second);
    EXPECT_FALSE(times.empty());
    if (times.empty()) return 0;
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                     times.end());
    return static_cast<int64_t>(times[times.size() / 2] * 1e3);
  }

  Square square_;
  ModelPtr model_;
  ProfilePtr profile_;
};

TEST_F(RunProfileTest, HasTheTimesOfTheRun) {
  TwoRanks ranks(two_stages(profile_.get()), kThreads);
  milliseconds = 20;
  steps(ranks.run.get(), 6);
  weft_profile* out = nullptr;
  Error err;
  ASSERT_EQ(weft_run_profile(ranks.run.get(), profile_.get(), &out, &err), WEFT_OK) << err.text;
  const ProfilePtr adjusted(out);
  // Other nodes of its stage take nearly nothing.
  EXPECT_GT(times_of(adjusted, "squares").forward_ns, 15'000'000);
  const PlanPtr plan = two_stages(adjusted.get());
  weft_prediction* made = nullptr;
  ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &made, &err), WEFT_OK) << err.text;
  weft_prediction_info predicted = sized<weft_prediction_info>();
  EXPECT_EQ(weft_prediction_describe(made, &predicted), WEFT_OK);
  weft_prediction_free(made);
  const auto recorded = static_cast<double>(recorded_step(ranks.run.get()));
  EXPECT_NEAR(static_cast<double>(predicted.step_ns), recorded, 0.01 * recorded);
}

TEST_F(RunProfileTest, HasTheTimesOfRanksInOtherProcesses) {
  model_ = squaring_model(nullptr);
  profile_ = measure(model_, 2);
  TwoRanks ranks(two_stages(profile_.get()), kMesh);
  steps(ranks.run.get(), 6);
  weft_profile* out = nullptr;
  Error err;
  ASSERT_EQ(weft_run_profile(ranks.run.get(), profile_.get(), &out, &err), WEFT_OK) << err.text;
  const ProfilePtr adjusted(out);
  EXPECT_GT(times_of(adjusted, "squares").forward_ns, 0);
}

// A trace has the time of a group in its first micro-batch.
TEST_F(RunProfileTest, DividesTheTimeOfWeightGradientsThatRanAtOnce) {
  with_slow_weight_gradients();
  weft_plan_config config = plan_config(1, 4, 2);
  config.schedule = "1f1b-delayed-w";
  config.profile = profile_.get();
  const RunPtr run = start(model_, config);
  milliseconds = 5;
  steps(run.get(), 6);
  weft_profile* out = nullptr;
  Error err;
  ASSERT_EQ(weft_run_profile(run.get(), profile_.get(), &out, &err), WEFT_OK) << err.text;
  EXPECT_GT(times_of(ProfilePtr(out), "second").weight_ns, 4'000'000);
}

// Eight weight gradients run at once, the ninth by itself. The profile says that this takes a
// quarter of the time for each of the eight; so where it took as long as for the ninth, that of one
// micro-batch is longer.
TEST_F(RunProfileTest, ComparesWeightGradientsThatRanAtOnceWithTheirPrediction) {
  with_slow_weight_gradients();
  ASSERT_EQ(weft_profile_save(profile_.get(), path("p.json").c_str(), nullptr), WEFT_OK);
  nlohmann::json changed = nlohmann::json::parse(std::ifstream(path("p.json")));
  for (auto& node : changed["nodes"]) node["weight_together"] = node["weight"].get<double>() / 4;
  std::ofstream(path("quarter.json")) << changed;
  weft_profile* made = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_load(path("quarter.json").c_str(), &made, &err), WEFT_OK) << err.text;
  const ProfilePtr quarter(made);
  weft_plan_config config = plan_config(1, 9, 2);
  config.schedule = "1f1b-delayed-w";
  config.group = 8;
  const RunPtr run = start(model_, config);
  milliseconds = 5;
  steps(run.get(), 6, 18);
  ASSERT_EQ(weft_run_profile(run.get(), quarter.get(), &made, &err), WEFT_OK) << err.text;
  EXPECT_GT(times_of(ProfilePtr(made), "second").weight_ns, 22'000'000);
}

TEST_F(RunProfileTest, IsRefusedWithoutRecordedSteps) {
  TwoRanks ranks(two_stages(profile_.get()), kThreads);
  weft_run* const run = ranks.run.get();
  weft_profile* out = nullptr;
  Error err;
  expect_error(weft_run_profile(run, profile_.get(), &out, &err), err, WEFT_EINVAL,
               {"has recorded 0 training steps", "expected 5 or more"});
  steps(run, 4);
  expect_error(weft_run_profile(run, profile_.get(), &out, &err), err, WEFT_EINVAL,
               {"has recorded 4 training steps"});
  for (const weft_step_mode other : {WEFT_NO_UPDATE, WEFT_EVAL}) {
    steps(run, 5, 8, {other, WEFT_TRAIN});
    expect_error(weft_run_profile(run, profile_.get(), &out, &err), err, WEFT_EINVAL,
                 {"has recorded 5 training steps", "without other steps between them"});
  }
  steps(run, 5);
  const ProfilePtr other = measure(model_, 3);
  expect_error(weft_run_profile(run, other.get(), &out, &err), err, WEFT_EINVAL,
               {"micro-batches of 3"});
  expect_error(weft_run_profile(run, nullptr, &out, &err), err, WEFT_EINVAL, {"profile is NULL"});
  EXPECT_EQ(out, nullptr);
}

TEST_F(ProfileTest, NullIsHarmless) {
  Error err;
  weft_profile* out = nullptr;
  expect_error(weft_profile_new(nullptr, nullptr, &out, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_profile_load(nullptr, &out, &err), err, WEFT_EINVAL, {"path is NULL"});
  expect_error(weft_profile_save(nullptr, "x", &err), err, WEFT_EINVAL, {"profile is NULL"});
  EXPECT_EQ(weft_profile_nodes(nullptr), 0u);
  EXPECT_EQ(weft_profile_node(nullptr, 0, nullptr), WEFT_EINVAL);
  weft_profile_free(nullptr);
}

}  // namespace
