// A directory of Hugging Face's Transformers: logits and training as Transformers computes them
// (tests/data/make_pretrained.py), on every axis of a mesh, and directories that are refused.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "api/api.h"
#include "test_data.h"

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kData = WEFT_TEST_DATA;
const fs::path kDirectory = kData / "gpt2";

json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

json expected_of(const fs::path& directory) { return read_json(directory / "expected.json"); }

weft_checkpoint_info info_of(const CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  EXPECT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
  return info;
}

TensorPtr tensor_of(const json& rows) {
  const auto samples = static_cast<int64_t>(rows.size()),
             length = static_cast<int64_t>(rows[0].size());
  TensorPtr out = zeros({samples, length}, WEFT_I32);
  auto* to = static_cast<int32_t*>(weft_tensor_data(out.get()));
  for (const json& row : rows)
    for (const json& token : row) *to++ = token;
  return out;
}

// A run with the weights of a checkpoint, four micro-batches of one sample.
RunPtr start_with(const CheckpointPtr& checkpoint, std::vector<weft_axis> axes = {}) {
  Error err;
  weft_model* model = nullptr;
  EXPECT_EQ(weft_model_preset(info_of(checkpoint).model, 0, 1, &model, nullptr, &err), WEFT_OK)
      << err.text;
  const ModelPtr owned(model);
  weft_optimizer adamw = unclipped();
  adamw.rate = 0.01;
  adamw.beta2 = 0.99;
  adamw.weight_decay = 0.1;
  adamw.decay_all = 1;
  weft_plan_config config = plan_config(1, 4, 1);
  config.optimizer = &adamw;
  config.axes = axes.data();
  config.n_axes = static_cast<uint32_t>(axes.size());
  RunPtr run = start(owned, config);
  EXPECT_EQ(weft_run_load(run.get(), checkpoint.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK)
      << err.text;
  return run;
}

// A directory, and the axis that is 2 long, or "".
class Mesh : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  std::vector<weft_axis> axes() const {
    const char* axis = std::get<1>(GetParam());
    return *axis ? std::vector<weft_axis>{{axis, 2, 0}} : std::vector<weft_axis>();
  }
  RunPtr start() const { return start_with(open_checkpoint(directory_.string()), axes()); }

  const fs::path directory_ = kData / std::get<0>(GetParam());
  const json expected_ = expected_of(directory_);
};

TEST_P(Mesh, ComputesTheLogitsOfTransformers) {
  const RunPtr run = start();
  const TensorPtr tokens = tensor_of(expected_["tokens"]), logits = zeros({4, 12, 37});
  weft_tensor *const inputs[] = {tokens.get(), nullptr}, *const outputs[] = {logits.get()};
  Error err;
  ASSERT_EQ(weft_run_step(run.get(), inputs, 2, WEFT_FORWARD, outputs, 1, nullptr, &err), WEFT_OK)
      << err.text;
  for (size_t i = 0; i < expected_["logits"].size(); ++i)
    EXPECT_NEAR(floats(logits)[i], expected_["logits"][i].get<double>(), 1e-5) << "logit " << i;
}

TEST_P(Mesh, TrainsAsTransformersDoes) {
  const RunPtr run = start();
  const TensorPtr tokens = tensor_of(expected_["tokens"]),
                  targets = tensor_of(expected_["targets"]);
  weft_tensor* const inputs[] = {tokens.get(), targets.get()};
  for (const json& expected_loss : expected_["losses"]) {
    double loss = 0;
    Error err;
    ASSERT_EQ(weft_run_step(run.get(), inputs, 2, WEFT_TRAIN, nullptr, 0, &loss, &err), WEFT_OK)
        << err.text;
    EXPECT_NEAR(loss / expected_loss.get<double>(), 1, 1e-5);
  }
}

std::string mesh_name(const testing::TestParamInfo<Mesh::ParamType>& info) {
  const auto [directory, axis] = info.param;
  return std::string(directory) + "_" + (*axis ? axis : "one");
}
INSTANTIATE_TEST_SUITE_P(
    Pretrained, Mesh,
    testing::Combine(testing::Values("gpt2", "gemma2", "gemma3_text", "llama", "mistral",
                                     "mistral_window", "qwen2", "qwen2_window", "qwen3", "phi3",
                                     "gpt_neox", "qwen2_yarn", "phi3_longrope"),
                     testing::Values("", "data", "stage", "tensor")),
    mesh_name);

// A copy of the directory, which a test changes.
class Pretrained : public testing::Test {
 protected:
  Pretrained() {
    fs::remove_all(folder_);
    fs::copy(kDirectory, folder_);
  }
  ~Pretrained() override { fs::remove_all(folder_); }

  void write(const char* name, const json& value) const {
    std::ofstream(folder_ / name) << value.dump();
  }
  void configure(const char* field, json value) const {
    json config = read_json(folder_ / "config.json");
    config[field] = std::move(value);
    write("config.json", config);
  }
  void expect_refused(weft_status status, std::initializer_list<const char*> parts) const {
    Error err;
    weft_checkpoint* opened = nullptr;
    expect_error(weft_checkpoint_open(folder_.c_str(), &opened, &err), err, status, parts);
    EXPECT_EQ(opened, nullptr);
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("weft-pretrained-" + std::to_string(getpid()));
};

TEST_F(Pretrained, NamesItsModel) {
  configure("resid_pdrop", 0.25);
  configure("attn_pdrop", 0.25);
  configure("embd_pdrop", 0.25);
  configure("n_inner", 64);
  configure("tie_word_embeddings", false);
  configure("_num_labels", 1);
  configure("temperature", 0.7);
  const CheckpointPtr opened = open_checkpoint(folder_);
  const weft_checkpoint_info info = info_of(opened);
  EXPECT_STREQ(info.model,
               "gpt2:blocks=2,width=16,heads=2,context=12,vocabulary=37,dropout=0.25,tied=0");
  EXPECT_EQ(info.weights_only, 1u);
  EXPECT_EQ(info.n_params, 28u);
  EXPECT_STREQ(info.path, folder_.c_str());
}

TEST_F(Pretrained, NamesTheTokensThatEndAText) {
  const auto ends = [&] {
    const CheckpointPtr opened = open_checkpoint(folder_);
    const weft_checkpoint_info info = info_of(opened);
    EXPECT_STREQ(info.source, folder_.c_str());
    return std::vector<int32_t>(info.ends, info.ends + info.n_ends);
  };
  EXPECT_EQ(ends(), std::vector<int32_t>());
  configure("eos_token_id", 5);
  EXPECT_EQ(ends(), std::vector<int32_t>({5}));
  write("generation_config.json", {{"eos_token_id", nullptr}, {"extra", {{"a", {1.5}}}}});
  EXPECT_EQ(ends(), std::vector<int32_t>({5}));
  write("generation_config.json", {{"eos_token_id", {7, 3}}});
  EXPECT_EQ(ends(), std::vector<int32_t>({7, 3}));
  for (const json& wrong : {json(-1), json(1.5), json("7"), json({1, "2"}), json(1u << 31)}) {
    write("generation_config.json", {{"eos_token_id", wrong}});
    expect_refused(WEFT_EDATA, {"generation_config.json", "'eos_token_id' is", "expected a token"});
  }
}

// A checkpoint of the directory, and its exports.
class Exported : public Pretrained {
 protected:
  Exported() {
    const RunPtr run = start_with(open_checkpoint(folder_.string()));
    weft_save_config config;
    weft_save_config_init(&config, sizeof config);
    config.directory = checkpoints_.c_str();
    const CheckpointPtr source = open_checkpoint(folder_.string());
    config.model = info_of(source).model;
    Error err;
    EXPECT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
  }
  ~Exported() override { fs::remove_all(base_); }

  void keep(const fs::path& source, const fs::path& tokenizer = {}) const {
    Error err;
    EXPECT_EQ(
        weft_checkpoint_keep_source(checkpoints_.c_str(), source.c_str(), tokenizer.c_str(), &err),
        WEFT_OK)
        << err.text;
  }
  weft_status export_as(const weft_export_config* config, Error& err) const {
    const CheckpointPtr checkpoint = open_checkpoint(checkpoints_);
    return weft_checkpoint_export_as(checkpoint.get(), (base_ / "out/").c_str(), config, &err);
  }
  static std::set<std::string> names(const fs::path& directory) {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(directory))
      out.insert(entry.path().filename().string());
    return out;
  }

  const fs::path base_ = folder_.string() + "-exported";
  const std::string checkpoints_ = (base_ / "checkpoints").string();
};

TEST_F(Exported, HasTheConfiguredTypeAndFiles) {
  Error err;
  weft_export_config config;
  weft_export_config_init(&config, sizeof config);
  EXPECT_STREQ(config.dtype, "f32");
  EXPECT_EQ(config.shard_bytes, 5'000'000'000u);
  ASSERT_EQ(export_as(nullptr, err), WEFT_OK) << err.text;
  EXPECT_EQ(names(base_ / "out"), std::set<std::string>({"config.json", "model.safetensors"}));
  config.dtype = "bf16";
  config.shard_bytes = 4096;
  ASSERT_EQ(export_as(&config, err), WEFT_OK) << err.text;
  EXPECT_EQ(read_json(base_ / "out/config.json")["torch_dtype"], "bfloat16");
  const CheckpointPtr exported = open_checkpoint((base_ / "out").string());
  const char* dtype = nullptr;
  for (uint32_t i = 0; i < info_of(exported).n_params; ++i) {
    EXPECT_NE(weft_checkpoint_tensor(exported.get(), i, nullptr, &dtype), nullptr);
    EXPECT_STREQ(dtype, "BF16");
  }
  const RunPtr run = start_with(exported);
  config.dtype = "f16";
  expect_error(export_as(&config, err), err, WEFT_EINVAL,
               {"weft_export_config.dtype is 'f16'", "expected 'f32' or 'bf16'"});
  config.dtype = nullptr;
  expect_error(export_as(&config, err), err, WEFT_EINVAL, {"weft_export_config.dtype"});
  config.dtype = "f32";
  config.shard_bytes = 0;
  expect_error(export_as(&config, err), err, WEFT_EINVAL, {"shard_bytes is 0"});
}

TEST_F(Exported, HasTheFilesThatWereKept) {
  Error err;
  write("generation_config.json", {{"eos_token_id", 4}});
  write("tokenizer.json", {{"of", "source"}});
  write("merges.txt", "of source");
  write("README.md", "is not copied");
  configure("pad_token_id", 3);
  keep(folder_);
  const CheckpointPtr checkpoint = open_checkpoint(checkpoints_);
  EXPECT_EQ(info_of(checkpoint).ends[0], 4);
  EXPECT_TRUE(fs::equivalent(info_of(checkpoint).source, checkpoints_ + "/source"));
  ASSERT_EQ(export_as(nullptr, err), WEFT_OK) << err.text;
  EXPECT_EQ(names(base_ / "out"),
            std::set<std::string>({"config.json", "generation_config.json", "merges.txt",
                                   "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(read_json(base_ / "out/config.json")["pad_token_id"], 3);
  EXPECT_EQ(read_json(base_ / "out/config.json")["bos_token_id"], 0);
  // A tokenizer replaces all files of the tokenizer of the source, which can be the kept one.
  fs::create_directory(base_ / "tokenizer");
  std::ofstream(base_ / "tokenizer/mine.json") << "{}";
  keep(checkpoints_ + "/source", base_ / "tokenizer/mine.json");
  EXPECT_EQ(names(checkpoints_ + "/source"),
            std::set<std::string>({"config.json", "generation_config.json", "tokenizer.json"}));
  keep("");
  EXPECT_FALSE(fs::exists(checkpoints_ + "/source"));
  EXPECT_EQ(names(checkpoints_), std::set<std::string>({"latest", "step-00000000"}));
}

TEST_F(Exported, KeepsAPrivateFilePrivate) {
  fs::create_directory(base_ / "tokenizer");
  const fs::path secret = base_ / "secret";
  std::ofstream(secret) << "private";
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(secret, base_ / "tokenizer/merges.txt");
  keep("", base_ / "tokenizer");
  EXPECT_EQ(fs::status(checkpoints_ + "/source/merges.txt").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Exported, DoesNotReplaceASourceDirectoryOfOthers) {
  const fs::path source = fs::path(checkpoints_) / "source";
  fs::create_directories(source / "sub");
  std::ofstream(source / "main.c") << "precious";
  keep("");
  Error err;
  expect_error(weft_checkpoint_keep_source(checkpoints_.c_str(), folder_.c_str(), nullptr, &err),
               err, WEFT_ESTATE, {"source: has 'main.c', which weft does not write there"});
  EXPECT_EQ(names(source), std::set<std::string>({"main.c", "sub"}));
}

TEST_F(Exported, KeepsFilesOnlyInADirectoryOfCheckpoints) {
  Error err;
  const auto keep_in = [&](const fs::path& directory, const fs::path& source,
                           const char* tokenizer) {
    return weft_checkpoint_keep_source(directory.c_str(), source.c_str(), tokenizer, &err);
  };
  expect_error(keep_in(folder_, folder_, nullptr), err, WEFT_EINVAL,
               {"is a directory of Transformers"});
  expect_error(keep_in(checkpoints_ + "/step-00000000", folder_, nullptr), err, WEFT_EINVAL,
               {"is a checkpoint"});
  expect_error(keep_in(checkpoints_, folder_ / "none", nullptr), err, WEFT_ENOENT, {"none"});
  expect_error(keep_in(checkpoints_, folder_, "/none.json"), err, WEFT_ENOENT, {"/none.json"});
  write("generation_config.json", {{"eos_token_id", "x"}});
  expect_error(keep_in(checkpoints_, folder_, nullptr), err, WEFT_EDATA,
               {"generation_config.json", "'eos_token_id' is"});
  EXPECT_FALSE(fs::exists(checkpoints_ + "/source"));
}

TEST_F(Pretrained, CannotBeResumed) {
  const CheckpointPtr opened = open_checkpoint(folder_);
  const RunPtr run = start_with(opened);
  Error err;
  expect_error(weft_run_load(run.get(), opened.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"contains only weights"});
}

TEST_F(Pretrained, IsNoDirectoryOfCheckpoints) {
  const RunPtr run = start_with(open_checkpoint(folder_.string()));
  weft_save_config config;
  weft_save_config_init(&config, sizeof config);
  const std::string folder = folder_.string();
  config.directory = folder.c_str();
  Error err;
  expect_error(weft_run_save(run.get(), &config, &err), err, WEFT_EINVAL,
               {"is a directory of Transformers", "expected a directory of checkpoints"});
}

TEST_F(Pretrained, RefusesAFieldThatIsNotKnown) {
  configure("quantization_config", {{"bits", 8}});
  expect_refused(WEFT_ENOTSUP, {"config.json", "field 'quantization_config' is not known"});
}

TEST_F(Pretrained, RefusesAnIndexThatDiffersFromItsFiles) {
  const char* const kIndex = "model.safetensors.index.json";
  const json index = read_json(folder_ / kIndex);
  const std::string wte = "transformer.wte.weight", file = index["weight_map"][wte];
  json changed = index;
  changed["weight_map"]["more"] = file;
  write(kIndex, changed);
  expect_refused(WEFT_EDATA, {file.c_str(), "has no tensor 'more', which", kIndex});
  changed = index;
  changed["weight_map"].erase(wte);
  write(kIndex, changed);
  expect_refused(WEFT_EDATA, {file.c_str(), "'transformer.wte.weight'", "does not list it"});
  changed = index;
  changed["weight_map"][wte] = "../gpt2/" + file;
  write(kIndex, changed);
  expect_refused(WEFT_EDATA, {kIndex, "expected the name of a file in the same directory"});
  write(kIndex, index);
  fs::remove(folder_ / file);
  expect_refused(WEFT_ENOENT, {file.c_str()});
}

TEST_F(Pretrained, RefusesADirectoryWithoutWeights) {
  fs::remove(folder_ / "model.safetensors.index.json");
  expect_refused(WEFT_ENOENT, {"has no model.safetensors and no model.safetensors.index.json"});
  std::ofstream(folder_ / "pytorch_model.bin") << "x";
  expect_refused(WEFT_ENOENT, {"pytorch_model.bin cannot be read", "safe_serialization=True"});
}

}  // namespace
