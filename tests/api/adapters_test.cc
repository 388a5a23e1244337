// Adapters of low rank: logits and training as Hugging Face's PEFT computes them
// (tests/data/make_adapters.py), on every axis of a mesh; exports; models of the program.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "api/api.h"
#include "test_data.h"

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kData = WEFT_TEST_DATA;

json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

weft_checkpoint_info info_of(const CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  EXPECT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
  return info;
}

TensorPtr tensor_of(const json& rows) {
  TensorPtr out =
      zeros({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, WEFT_I32);
  auto* to = static_cast<int32_t*>(weft_tensor_data(out.get()));
  for (const json& row : rows)
    for (const json& token : row) *to++ = token;
  return out;
}

void load(const RunPtr& run, const CheckpointPtr& from) {
  Error err;
  EXPECT_EQ(weft_run_load(run.get(), from.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK) << err.text;
}

weft_parameter_group group(const char* pattern, bool frozen) {
  weft_parameter_group out;
  weft_parameter_group_init(&out, sizeof out);
  out.pattern = pattern;
  out.frozen = frozen;
  return out;
}

// Trains only adapters, with four micro-batches of one sample.
RunPtr start_adapters(const ModelPtr& model, std::vector<weft_axis> axes = {}) {
  const weft_parameter_group groups[] = {group("*", true), group("*.lora_?.weight", false)};
  weft_optimizer adamw = unclipped();
  adamw.rate = 0.01;
  adamw.beta2 = 0.99;
  adamw.weight_decay = 0.1;
  weft_plan_config config = plan_config(1, 4, 1);
  config.optimizer = &adamw;
  config.groups = groups;
  config.n_groups = 2;
  config.axes = axes.data();
  config.n_axes = static_cast<uint32_t>(axes.size());
  return start(model, config);
}

ModelPtr preset(const std::string& text) {
  Error err;
  weft_model* model = nullptr;
  EXPECT_EQ(weft_model_preset(text.c_str(), 0, 1, &model, nullptr, &err), WEFT_OK) << err.text;
  return ModelPtr(model);
}

// A model, and the axis that is 2 long, or "".
class Peft : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  RunPtr start() const {
    const char* axis = std::get<1>(GetParam());
    RunPtr run = start_adapters(
        preset(text()), *axis ? std::vector<weft_axis>{{axis, 2, 0}} : std::vector<weft_axis>());
    load(run, base_);
    load(run, adapters_);
    return run;
  }
  std::string text() const {
    return std::string(info_of(base_).model) + "," + info_of(adapters_).adapters;
  }
  void expect_logits(const RunPtr& run) const {
    const TensorPtr tokens = tensor_of(base_expected_["tokens"]), logits = zeros({4, 12, 37});
    weft_tensor *const inputs[] = {tokens.get(), nullptr}, *const outputs[] = {logits.get()};
    Error err;
    ASSERT_EQ(weft_run_step(run.get(), inputs, 2, WEFT_FORWARD, outputs, 1, nullptr, &err), WEFT_OK)
        << err.text;
    for (size_t i = 0; i < expected_["logits"].size(); ++i)
      EXPECT_NEAR(floats(logits)[i], expected_["logits"][i].get<double>(), 2e-5) << "logit " << i;
  }

  const std::string name_ = std::get<0>(GetParam());
  const CheckpointPtr base_ = open_checkpoint((kData / name_).string()),
                      adapters_ = open_checkpoint((kData / "adapters" / name_).string());
  const json base_expected_ = read_json(kData / name_ / "expected.json"),
             expected_ = read_json(kData / "adapters" / name_ / "expected.json");
};

TEST_P(Peft, ComputesItsLogits) { expect_logits(start()); }

TEST_P(Peft, TrainsOnlyAdaptersAsItDoes) {
  const RunPtr run = start();
  const TensorPtr tokens = tensor_of(base_expected_["tokens"]),
                  targets = tensor_of(base_expected_["targets"]);
  weft_tensor* const inputs[] = {tokens.get(), targets.get()};
  for (const json& expected_loss : expected_["losses"]) {
    double loss = 0;
    Error err;
    ASSERT_EQ(weft_run_step(run.get(), inputs, 2, WEFT_TRAIN, nullptr, 0, &loss, &err), WEFT_OK)
        << err.text;
    EXPECT_NEAR(loss / expected_loss.get<double>(), 1, 1e-5);
  }
}

TEST_P(Peft, ReadsItsOwnExportsAndMergedOnes) {
  const fs::path folder = fs::temp_directory_path() / ("weft-adapters-" + std::to_string(getpid()));
  fs::remove_all(folder);
  const std::string checkpoints = folder / "checkpoints", model = text();
  weft_save_config save;
  weft_save_config_init(&save, sizeof save);
  save.directory = checkpoints.c_str();
  save.model = model.c_str();
  Error err;
  ASSERT_EQ(weft_run_save(start().get(), &save, &err), WEFT_OK) << err.text;
  const CheckpointPtr saved = open_checkpoint(checkpoints);
  weft_export_config config;
  weft_export_config_init(&config, sizeof config);
  for (const uint32_t merge : {0u, 1u}) {
    config.merge = merge;
    const std::string to = (folder / (merge ? "merged/" : "adapters/")).string();
    ASSERT_EQ(weft_checkpoint_export_as(saved.get(), to.c_str(), &config, &err), WEFT_OK)
        << err.text;
    const CheckpointPtr exported = open_checkpoint(to);
    const RunPtr run = merge ? ::start(preset(info_of(exported).model), plan_config(1, 4, 1))
                             : start_adapters(preset(text()));
    if (!merge) {
      EXPECT_EQ(info_of(exported).model, nullptr);
      EXPECT_EQ(info_of(exported).n_params, info_of(adapters_).n_params);
      load(run, base_);
    }
    load(run, exported);
    expect_logits(run);
  }
  const std::string adapters = (kData / "adapters" / name_).string(), joined = folder / "joined/";
  config.adapters = adapters.c_str();
  ASSERT_EQ(weft_checkpoint_export_as(base_.get(), joined.c_str(), &config, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(digest(open_checkpoint(joined)), digest(open_checkpoint(folder / "merged/")));
  expect_error(weft_checkpoint_export_as(saved.get(), "none/", &config, &err), err, WEFT_EINVAL,
               {checkpoints.c_str(), "the model has adapters already"});
  config.adapters = nullptr;
  config.merge = 2;
  expect_error(weft_checkpoint_export_as(saved.get(), "none/", &config, &err), err, WEFT_EINVAL,
               {"weft_export_config.merge is 2"});
  config.merge = 1;
  const std::string other = std::regex_replace(model, std::regex("width=[0-9]+"), "width=256"),
                    to = folder / "none/";
  save.model = other.c_str();
  ASSERT_EQ(weft_run_save(start().get(), &save, &err), WEFT_OK) << err.text;
  expect_error(
      weft_checkpoint_export_as(open_checkpoint(checkpoints).get(), to.c_str(), &config, &err), err,
      WEFT_EDATA, {"elements, the model of the manifest expects f32[256"});
  fs::remove_all(folder);
}

std::string mesh_name(const testing::TestParamInfo<Peft::ParamType>& info) {
  const auto [directory, axis] = info.param;
  return std::string(directory) + "_" + (*axis ? axis : "one");
}
INSTANTIATE_TEST_SUITE_P(Adapters, Peft,
                         testing::Combine(testing::Values("gpt2", "llama"),
                                          testing::Values("", "data", "stage", "tensor")),
                         mesh_name);

// A copy of PEFT's directory, which a test changes.
class PeftFiles : public testing::Test {
 protected:
  PeftFiles() {
    fs::remove_all(folder_);
    fs::copy(kData / "adapters" / "llama", folder_);
  }
  ~PeftFiles() override { fs::remove_all(folder_); }

  void configure(const char* field, const json& value) const {
    json config = read_json(folder_ / "adapter_config.json");
    config[field] = value;
    std::ofstream(folder_ / "adapter_config.json") << config.dump();
  }
  const fs::path folder_ = fs::temp_directory_path() / ("weft-peft-" + std::to_string(getpid()));
};

TEST_F(PeftFiles, DescribeTheAdapters) {
  EXPECT_STREQ(info_of(open_checkpoint(folder_.string())).adapters,
               "lora_rank=3,lora_alpha=5,lora_targets=down_proj/q_proj");
  configure("a_new_field", json::object());
  configure("qalora_group_size", 16);
  configure("target_modules", "all-linear");
  EXPECT_STREQ(info_of(open_checkpoint(folder_.string())).adapters,
               "lora_rank=3,lora_alpha=5,lora_targets=all-linear");
  configure("target_modules", {"transformer.h.1.mlp.c_proj", "c_fc"});  // as GPT-2 has them
  EXPECT_STREQ(info_of(open_checkpoint(folder_.string())).adapters,
               "lora_rank=3,lora_alpha=5,lora_targets=h.1.mlp.c_proj/c_fc");
  configure("target_modules", "all-linear");
  configure("use_rslora", true);  // the factor is 5 / sqrt(3)
  EXPECT_STREQ(info_of(open_checkpoint(folder_.string())).adapters,
               "lora_rank=3,lora_alpha=8.660254037844386,lora_targets=all-linear");
}

TEST_F(PeftFiles, AreRefusedIfWeftWouldComputeSomethingElse) {
  const json before = read_json(folder_ / "adapter_config.json");
  const std::tuple<const char*, json, weft_status, const char*> rows[] = {
      {"peft_type", "IA3", WEFT_ENOTSUP, R"('peft_type' is "IA3", expected "LORA")"},
      {"r", 2.5, WEFT_EDATA, "'r' is 2.5, expected a whole number"},
      {"bias", "all", WEFT_ENOTSUP, R"('bias' is "all", expected "none")"},
      {"init_lora_weights", "pissa", WEFT_ENOTSUP,
       R"('init_lora_weights' is "pissa", expected true)"},
      {"use_rslora", 1, WEFT_EDATA, "'use_rslora' is 1, expected true or false"},
      {"rank_pattern",
       {{"q_proj", 2}},
       WEFT_ENOTSUP,
       R"('rank_pattern' is {"q_proj":2}, expected null: weft does not support this field)"},
      {"modules_to_save",
       {"lm_head"},
       WEFT_ENOTSUP,
       R"('modules_to_save' is ["lm_head"], expected null: weft does not support this field)"},
      {"new_field", 1, WEFT_ENOTSUP, "field 'new_field' is not known"},
      {"target_modules", ".*_proj", WEFT_ENOTSUP, "expected a list of names"},
      {"target_modules", json::array(), WEFT_EDATA, "'target_modules' is empty"},
  };
  for (const auto& [field, value, status, text] : rows) {
    configure(field, value);
    Error err;
    weft_checkpoint* opened = nullptr;
    expect_error(weft_checkpoint_open(folder_.c_str(), &opened, &err), err, status,
                 {"adapter_config.json", text});
    std::ofstream(folder_ / "adapter_config.json") << before.dump();
  }
}

TEST_F(PeftFiles, DoNotLoadIntoAModelWithoutAdapters) {
  const RunPtr run = start(preset(info_of(open_checkpoint((kData / "llama").string())).model),
                           plan_config(1, 4, 1));
  Error err;
  expect_error(
      weft_run_load(run.get(), open_checkpoint(folder_.string()).get(), WEFT_LOAD_WEIGHTS, &err),
      err, WEFT_EDATA, {"8 surplus tensors", "lora_A.weight"});
}

TEST_F(PeftFiles, DoNotLoadIntoAModelWithAnotherScale) {
  const std::string base = info_of(open_checkpoint((kData / "llama").string())).model;
  const RunPtr run =
      start(preset((base + ",lora_rank=3,lora_alpha=4,lora_targets=down_proj/q_proj").c_str()),
            plan_config(1, 4, 1));
  Error err;
  expect_error(
      weft_run_load(run.get(), open_checkpoint(folder_.string()).get(), WEFT_LOAD_WEIGHTS, &err),
      err, WEFT_EINVAL,
      {"alpha / rank of its adapters is 1.66666", "that of node '", "' of the model is 1.3333"});
}

// hidden, gelu, out, mean squared error.
ModelPtr own_model() {
  ModelPtr model = new_model();
  Error err;
  const weft_desc row = {WEFT_F32, 2, {1, 4}};
  weft_value x, y, out, loss;
  EXPECT_EQ(weft_model_add_input(model.get(), "x", &row, 0, &x, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_input(model.get(), "y", &row, 0, &y, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_linear(model.get(), "hidden", x, 8, &out, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_unary(model.get(), nullptr, "gelu", out, &out, &err), WEFT_OK);
  EXPECT_EQ(weft_model_add_linear(model.get(), "out", out, 4, &out, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_model_add_binary(model.get(), nullptr, "mse", out, y, &loss, &err), WEFT_OK);
  return model;
}

weft_adapter_config adapter_config(const char* const* targets, uint32_t n_targets) {
  weft_adapter_config config;
  weft_adapter_config_init(&config, sizeof config);
  config.rank = 2;
  config.targets = targets;
  config.n_targets = n_targets;
  return config;
}

TEST(Adapters, OfAModelOfTheProgramAreTrained) {
  const ModelPtr model = own_model();
  const char* const targets[] = {"hidden"};
  const weft_adapter_config config = adapter_config(targets, 1);
  weft_model* out = nullptr;
  Error err;
  ASSERT_EQ(weft_model_adapt(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  const ModelPtr adapted(out);
  EXPECT_EQ(weft_model_parameters(adapted.get()) - weft_model_parameters(model.get()), 2 * (4 + 8));
  const RunPtr run = start_adapters(adapted);
  const TensorPtr x = zeros({4, 4}), y = zeros({4, 4});
  for (int i = 0; i < 16; ++i) floats(x)[i] = floats(y)[i] = static_cast<float>(i) / 16;
  weft_tensor* const inputs[] = {x.get(), y.get()};
  double first = 0, last = 0;
  for (int step = 0; step < 50; ++step)
    ASSERT_EQ(
        weft_run_step(run.get(), inputs, 2, WEFT_TRAIN, nullptr, 0, step ? &last : &first, &err),
        WEFT_OK)
        << err.text;
  EXPECT_LT(last, 0.8 * first);
}

TEST(Adapters, FaultsAreNamed) {
  const ModelPtr model = own_model();
  weft_model* out = nullptr;
  Error err;
  expect_error(weft_model_adapt(model.get(), nullptr, &out, &err), err, WEFT_ENOENT,
               {"no linear node has one of the names", "q_proj"});
  const char* const targets[] = {"idden", nullptr};
  weft_adapter_config config = adapter_config(targets, 1);
  expect_error(weft_model_adapt(model.get(), &config, &out, &err), err, WEFT_ENOENT,
               {"target 'idden' of the adapters"});
  config.n_targets = 2;
  expect_error(weft_model_adapt(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"a name in weft_adapter_config.targets"});
  config = adapter_config(targets, 0);
  config.rank = 0;
  expect_error(weft_model_adapt(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"the rank of the adapters is 0, expected 1 to 65536"});
  config.rank = 1;
  config.alpha = -1;
  expect_error(weft_model_adapt(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"alpha of the adapters is -1"});
  expect_error(weft_model_adapt(new_model().get(), nullptr, &out, &err), err, WEFT_EINVAL,
               {"the model has no node"});
  EXPECT_EQ(out, nullptr);
}

}  // namespace
