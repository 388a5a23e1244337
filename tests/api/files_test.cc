// Presets, data and checkpoints through the C API: their properties, and the errors if they do not
// fit.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/drivers.h"

namespace {

struct FileDirectory : Directory {
  std::string file(const char* name, const std::string& bytes) const {
    const std::string at = path + "/" + name;
    std::ofstream(at, std::ios::binary) << bytes;
    return at;
  }
};

struct FreeFiles {
  void operator()(weft_data* data) const { weft_data_free(data); }
};
using DataPtr = std::unique_ptr<weft_data, FreeFiles>;

TEST(Preset, EachSaysWhatItIs) {
  const struct {
    const char* text;
    int64_t seq_len;
    uint32_t tokens;
    int64_t vocabulary, context, taken, width, parameters;
    const char* full;
  } rows[] = {
      {"mlp", 0, 0, 0, 0, 0, 256, 4 * (256 * 256 + 256), "mlp:layers=4,width=256"},
      {"mlp:layers=2,width=8", 0, 0, 0, 0, 0, 8, 2 * (8 * 8 + 8), "mlp:layers=2,width=8"},
      {"gpt-nano", 0, 1, 256, 128, 128, 128, 842496,
       "gpt-nano:blocks=4,width=128,heads=4,context=128,vocabulary=256,dropout=0,tied=1"},
      {"gpt-nano:tied=0", 32, 1, 256, 128, 32, 128, 842496 + 256 * 128,
       "gpt-nano:blocks=4,width=128,heads=4,context=128,vocabulary=256,dropout=0,tied=0"},
      {"gpt2", 64, 1, 50257, 1024, 64, 768, 124439808,
       "gpt2:blocks=12,width=768,heads=12,context=1024,vocabulary=50257,dropout=0,tied=1"},
  };
  for (const auto& row : rows) {
    weft_model* made = nullptr;
    weft_preset_info info = sized<weft_preset_info>();
    Error err;
    ASSERT_EQ(weft_model_preset(row.text, row.seq_len, 1, &made, &info, &err), WEFT_OK)
        << row.text << ": " << err.text;
    const ModelPtr model(made);
    EXPECT_EQ(info.tokens, row.tokens) << row.text;
    EXPECT_EQ(info.vocabulary, row.vocabulary) << row.text;
    EXPECT_EQ(info.context, row.context) << row.text;
    EXPECT_EQ(info.seq_len, row.taken) << row.text;
    EXPECT_EQ(info.width, row.width) << row.text;
    EXPECT_STREQ(info.text, row.full);
    EXPECT_EQ(weft_model_parameters(made), row.parameters) << row.text;
  }
}

TEST(Preset, WhatIsNoPresetIsRefusedByName) {
  weft_model* out = nullptr;
  Error err;
  expect_error(weft_model_preset("gpt3", 0, 1, &out, nullptr, &err), err, WEFT_ENOENT,
               {"'gpt3' is not known", "mlp", "gpt-nano", "gpt2"});
  expect_error(weft_model_preset("mlp", 0, 5000, &out, nullptr, &err), err, WEFT_EINVAL,
               {"stages is 5000", "at most 4096"});
  expect_error(weft_model_preset(nullptr, 0, 1, &out, nullptr, &err), err, WEFT_EINVAL, {"text"});
  EXPECT_EQ(out, nullptr);
}

weft_data_config tokens(const std::string& path) {
  weft_data_config config = defaults(weft_data_config_init);
  config.path = path.c_str();
  config.vocabulary = 256;
  config.seq_len = 8;
  return config;
}

TEST(Data, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const FileDirectory directory;
  const std::string text = directory.file("text", std::string(100, 'a')),
                    odd = directory.file("odd.u16", "abc"), two = directory.file("two", "ab"),
                    one = directory.file("one", "a"), none = directory.path + "/none";
  const auto refused = [](const weft_data_config& config, weft_status status,
                          std::initializer_list<const char*> parts) {
    weft_data* out = nullptr;
    Error err;
    expect_error(weft_data_open(&config, &out, &err), err, status, parts);
    EXPECT_EQ(out, nullptr);
  };
  weft_data_config config = defaults(weft_data_config_init);
  refused(config, WEFT_EINVAL, {"vocabulary is 0", "seq_len 0", "width 0"});
  config.width = -1;
  refused(config, WEFT_EINVAL, {"width -1"});
  config.width = 8;
  config.path = text.c_str();
  refused(config, WEFT_EINVAL, {"takes no tokens"});
  config = tokens(text);
  config.seq_len = INT64_MAX;
  refused(config, WEFT_EINVAL, {"seq_len 9223372036854775807", "at most"});
  config = tokens(text);
  config.path = nullptr;
  config.vocabulary = int64_t{1} << 40;  // drawn ids would not fit
  refused(config, WEFT_EINVAL, {"vocabulary is 1099511627776", "at most 2147483648"});
  refused(tokens(none), WEFT_ENOENT, {none.c_str()});
  refused(tokens(two), WEFT_EINVAL, {"2 of its 2 tokens", "take 9"});
  refused(tokens(odd), WEFT_EDATA, {"has 3 bytes", "multiple of 2"});
  config = tokens(text);
  config.eval_share = 1;
  refused(config, WEFT_EINVAL, {"eval_share is 1", "less than 1"});
  config.eval_share = 0.01;
  refused(config, WEFT_EINVAL, {"1 of its 100 tokens are for evaluation", "at least 2"});
  config = tokens(text);
  config.eval_path = one.c_str();
  refused(config, WEFT_EINVAL, {one.c_str(), "1 of its 1 tokens are for evaluation"});
}

TEST(Data, AFileCanBeOnlyForEvaluation) {
  const FileDirectory directory;
  const std::string path = directory.file("text", "abcdefghijklm");
  weft_data_config config = tokens(path);
  std::swap(config.path, config.eval_path);
  weft_data* opened = nullptr;
  Error err;
  ASSERT_EQ(weft_data_open(&config, &opened, &err), WEFT_OK) << err.text;
  const DataPtr data(opened);
  EXPECT_EQ(weft_data_windows(data.get()), 0);
  EXPECT_EQ(weft_data_eval_windows(data.get()), 2);
  const TensorPtr x = zeros({1, 8}, WEFT_I32), y = zeros({1, 8}, WEFT_I32);
  ASSERT_EQ(weft_data_eval(data.get(), 1, x.get(), y.get(), &err), WEFT_OK) << err.text;
  const int32_t last[] = {'j', 'k', 'l', 'm', -1, -1, -1, -1};
  EXPECT_TRUE(std::equal(last, last + 8, static_cast<const int32_t*>(weft_tensor_data(y.get()))));
  const TensorPtr no_x = zeros({0, 8}, WEFT_I32), no_y = zeros({0, 8}, WEFT_I32);
  EXPECT_EQ(weft_data_eval(data.get(), 1000000, no_x.get(), no_y.get(), &err), WEFT_OK) << err.text;
  expect_error(weft_data_sample(data.get(), 1, 0, x.get(), y.get(), &err), err, WEFT_EINVAL,
               {"only eval_path"});
}

TEST(Data, TextsAndSamplesAreReadWithATokenizer) {
  const FileDirectory directory;
  const std::string text = directory.file("text", "ab ab ba ab ba"),
                    samples = directory.file("a.jsonl", R"({"prompt": "ab", "completion": " b"})");
  Error err;
  const std::string letters = R"("<s>": 0, "</s>": 1, " ": 2, "a": 3, "b": 4)";
  const std::string json =
      R"({"model": {"type": "BPE", "vocab": {)" + letters + R"(}, "merges": []}})";
  weft_tokenizer* made = nullptr;
  ASSERT_EQ(weft_tokenizer_parse(json.data(), json.size(), &made, &err), WEFT_OK) << err.text;
  const std::unique_ptr<weft_tokenizer, void (*)(weft_tokenizer*)> tokenizer(made,
                                                                             weft_tokenizer_free);
  const auto open = [&](const std::string& path, weft_data_config config) {
    config.path = path.c_str();
    config.vocabulary = 5;
    config.seq_len = 8;
    weft_data* out = nullptr;
    const weft_status status = weft_data_open(&config, &out, &err);
    return std::pair(status, DataPtr(out));
  };
  weft_data_config config = defaults(weft_data_config_init);
  EXPECT_EQ(open(samples, config).first, WEFT_EINVAL);
  EXPECT_NE(std::strstr(err.text, "need a tokenizer"), nullptr) << err.text;
  EXPECT_EQ(open(text, config).first, WEFT_EINVAL);
  config.end_token = 5;
  EXPECT_EQ(open(text, config).first, WEFT_EINVAL);
  EXPECT_NE(std::strstr(err.text, "end_token is 5"), nullptr) << err.text;
  config.tokenizer = tokenizer.get();
  config.end_token = 1;
  config.eval_path = samples.c_str();
  const auto [status, data] = open(text, config);
  ASSERT_EQ(status, WEFT_OK) << err.text;
  EXPECT_EQ(weft_data_windows(data.get()), 2);  // 14 tokens
  EXPECT_EQ(weft_data_eval_windows(data.get()), 1);
  const TensorPtr x = zeros({1, 8}, WEFT_I32), y = zeros({1, 8}, WEFT_I32);
  ASSERT_EQ(weft_data_sample(data.get(), 1, 0, x.get(), y.get(), &err), WEFT_OK) << err.text;
  const auto ids = [](const TensorPtr& tensor) {
    return static_cast<const int32_t*>(weft_tensor_data(tensor.get()));
  };
  for (size_t i = 0; i + 1 < 8; ++i) EXPECT_EQ(ids(y)[i], ids(x)[i + 1]);
  ASSERT_EQ(weft_data_eval(data.get(), 0, x.get(), y.get(), &err), WEFT_OK) << err.text;
  const int32_t sample[] = {3, 4, 2, 4, 0, 0, 0, 0}, answer[] = {-1, 2, 4, 1, -1, -1, -1, -1};
  EXPECT_TRUE(std::equal(sample, sample + 8, ids(x)));
  EXPECT_TRUE(std::equal(answer, answer + 8, ids(y)));
}

TEST(Data, PackedSamplesHavePositionsAndHeldOutWindowsArePadded) {
  const FileDirectory directory;
  const std::string line = R"({"prompt": "ab", "completion": "b"})",
                    samples = directory.file("a.jsonl", line + "\n" + line);
  Error err;
  const std::string json = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
  weft_tokenizer* made = nullptr;
  ASSERT_EQ(weft_tokenizer_parse(json.data(), json.size(), &made, &err), WEFT_OK) << err.text;
  const std::unique_ptr<weft_tokenizer, void (*)(weft_tokenizer*)> tokenizer(made,
                                                                             weft_tokenizer_free);
  weft_data_config config = defaults(weft_data_config_init);
  config.path = config.eval_path = samples.c_str();
  config.vocabulary = 2;
  config.seq_len = 5;
  config.tokenizer = tokenizer.get();
  config.packed = 1;
  weft_data* opened = nullptr;
  ASSERT_EQ(weft_data_open(&config, &opened, &err), WEFT_OK) << err.text;
  const DataPtr data(opened);
  EXPECT_EQ(weft_data_eval_windows(data.get()), 1);
  const TensorPtr x = zeros({2, 5}, WEFT_I32), y = zeros({2, 5}, WEFT_I32),
                  p = zeros({2, 5}, WEFT_I32), wrong = zeros({2, 4}, WEFT_I32);
  using Rows = std::vector<int32_t>;
  const auto rows = [](const TensorPtr& tensor) {
    const auto* ids = static_cast<const int32_t*>(weft_tensor_data(tensor.get()));
    return Rows(ids, ids + 10);
  };
  ASSERT_EQ(weft_data_sample(data.get(), 1, 0, x.get(), y.get(), &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_data_positions(data.get(), 1, 0, p.get(), &err), WEFT_OK) << err.text;
  EXPECT_EQ(rows(x), (Rows{0, 1, 0, 1, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(rows(y), (Rows{-1, 1, -1, 1, -1, -1, 1, -1, 1, -1}));
  EXPECT_EQ(rows(p), (Rows{0, 1, 0, 1, 0, 0, 1, 0, 1, 0}));
  ASSERT_EQ(weft_data_eval(data.get(), 0, x.get(), y.get(), &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_data_eval_positions(data.get(), 0, p.get(), &err), WEFT_OK) << err.text;
  EXPECT_EQ(rows(x), (Rows{0, 1, 0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rows(y), (Rows{-1, 1, -1, 1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(rows(p), (Rows{0, 1, 0, 1, 0, 0, 0, 0, 0, 0}));
  expect_error(weft_data_eval_positions(data.get(), 1, p.get(), &err), err, WEFT_EINVAL,
               {"2 held-out windows from 1 on", "there are 1"});
  expect_error(weft_data_positions(data.get(), 1, 0, wrong.get(), &err), err, WEFT_EINVAL,
               {"i32[2,5]", "i32[2,4]"});
}

TEST(Data, AnIdOutOfRangeAndATensorThatDoesNotFitAreRefused) {
  const FileDirectory directory;
  const std::string path = directory.file(
      "ids.u16", std::string("\x01\x00\x02\x00\x03\x00\x03\x00\x04\x00\x05\x00", 12));
  const std::string bad = directory.file(
      "bad.u16", std::string("\x01\x00\x02\x00\x2c\x01\x03\x00\x04\x00\x05\x00", 12));
  weft_data_config config = tokens(bad);
  config.seq_len = 5;
  weft_data* opened = nullptr;
  Error err;
  expect_error(weft_data_open(&config, &opened, &err), err, WEFT_EDATA,
               {"bad.u16", "token 2 is 300", "0 to 255", "vocabulary of 256"});
  config.path = path.c_str();
  config.eval_path = bad.c_str();
  expect_error(weft_data_open(&config, &opened, &err), err, WEFT_EDATA,
               {"bad.u16", "token 2 is 300"});
  config.eval_path = nullptr;
  ASSERT_EQ(weft_data_open(&config, &opened, &err), WEFT_OK) << err.text;
  const DataPtr data(opened);
  const TensorPtr x = zeros({2, 5}, WEFT_I32), y = zeros({2, 5}, WEFT_I32),
                  wrong = zeros({2, 4}, WEFT_I32), rows = zeros({2, 5});
  directory.file("ids.u16", std::string("\x01\x00\x02\x00\x2c\x01\x03\x00\x04\x00\x05\x00",
                                        12));  // it has changed meanwhile
  expect_error(weft_data_sample(data.get(), 1, 0, x.get(), y.get(), &err), err, WEFT_EDATA,
               {"token 2 is 300", "0 to 255"});
  expect_error(weft_data_sample(data.get(), 1, 0, x.get(), wrong.get(), &err), err, WEFT_EINVAL,
               {"i32[2,5]", "i32[2,4]"});
  expect_error(weft_data_sample(data.get(), 1, 0, rows.get(), y.get(), &err), err, WEFT_EINVAL,
               {"i32[2,5]", "f32[2,5]"});
  EXPECT_EQ(weft_data_eval_windows(data.get()), 0);
  expect_error(weft_data_eval(data.get(), 0, x.get(), y.get(), &err), err, WEFT_EINVAL,
               {"2 held-out windows from 0 on", "there are 0"});
}

TEST(Data, DrawnDataHaveHeldOutWindowsWhateverTheShare) {
  weft_data_config config = defaults(weft_data_config_init);
  config.width = 3;
  weft_data* opened = nullptr;
  Error err;
  ASSERT_EQ(weft_data_open(&config, &opened, &err), WEFT_OK) << err.text;
  const DataPtr data(opened);
  EXPECT_EQ(weft_data_windows(data.get()), 0);
  EXPECT_EQ(weft_data_eval_windows(data.get()), 64);
  const TensorPtr x = zeros({2, 3}), y = zeros({2, 3});
  EXPECT_EQ(weft_data_eval(data.get(), 62, x.get(), y.get(), &err), WEFT_OK) << err.text;
  for (const int64_t first : {int64_t{-1}, int64_t{63}, INT64_MAX})
    expect_error(weft_data_eval(data.get(), first, x.get(), y.get(), &err), err, WEFT_EINVAL,
                 {("from " + std::to_string(first) + " on").c_str(), "there are 64"});
}

// x [6] -> the named layers of 6 -> mean squared error to y [6].
RunPtr start_layers(std::initializer_list<const char*> names, int64_t width = 6) {
  const ModelPtr model = new_model();
  weft_value x = add_input(model, "x", {1, 6});
  const weft_value y = add_input(model, "y", {1, width});
  for (const char* name : names) x = add_linear(model, name, x, width);
  add_node(model, "mse", {x, y});
  return start(model, plan_config());
}

TEST(Save, AnOptionIsThereOnceAndHasAKey) {
  const FileDirectory directory;
  const RunPtr run = start_layers({"a"});
  const std::string path = directory.path + "/checkpoints";
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = path.c_str();
  const auto refused = [&](std::vector<weft_pair> options,
                           std::initializer_list<const char*> parts) {
    config.options = options.data();
    config.n_options = static_cast<uint32_t>(options.size());
    Error err;
    expect_error(weft_run_save(run.get(), &config, &err), err, WEFT_EINVAL, parts);
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refused({{"b", "1"}, {"a", "2"}, {"b", "1"}}, {"options", "key 'b' twice"});
  refused({{"", "1"}}, {"options", "key", "empty"});
}

TEST(Load, TakesWhatFitsAndListsWhatDoesNot) {
  const FileDirectory directory;
  const RunPtr saved = start_layers({"a", "b"});
  step(saved, {noise({6, 6}).get(), noise({6, 6}, 2).get()});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path.c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &config, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path);
  const std::string file = directory.path + "/weights.safetensors";
  ASSERT_EQ(weft_checkpoint_export(checkpoint.get(), file.c_str(), &err), WEFT_OK) << err.text;
  const CheckpointPtr weights = open_checkpoint(file);

  for (weft_checkpoint* from : {checkpoint.get(), weights.get()}) {
    const RunPtr same = start_layers({"a", "b"});
    EXPECT_EQ(weft_run_load(same.get(), from, WEFT_LOAD_WEIGHTS, &err), WEFT_OK) << err.text;
    EXPECT_EQ(digest(same), digest(saved));

    const RunPtr other = start_layers({"a", "c"});
    const std::string before = digest(other);
    expect_error(weft_run_load(other.get(), from, WEFT_LOAD_WEIGHTS, &err), err, WEFT_EDATA,
                 {"missing", "'c.weight'", "'c.bias'", "surplus", "'b.weight'", "'b.bias'"});
    EXPECT_EQ(std::strstr(err.text, "'a.weight'"), nullptr) << err.text;
    EXPECT_EQ(digest(other), before) << "a refused file has changed something";

    const RunPtr fewer = start_layers({"a"}), wider = start_layers({"a", "b"}, 7);
    expect_error(weft_run_load(fewer.get(), from, WEFT_LOAD_WEIGHTS, &err), err, WEFT_EDATA,
                 {"surplus", "'b.weight'"});
    EXPECT_EQ(std::strstr(err.text, "missing"), nullptr) << err.text;
    expect_error(weft_run_load(wider.get(), from, WEFT_LOAD_WEIGHTS, &err), err, WEFT_EDATA,
                 {"'a.weight'", "6,6", "6,7"});
  }
  const RunPtr run = start_layers({"a", "b"});
  expect_error(weft_run_load(run.get(), weights.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"contains only weights", "not resumed"});
  expect_error(weft_run_load(run.get(), checkpoint.get(), weft_load{7}, &err), err, WEFT_EINVAL,
               {"what is 7"});
  EXPECT_EQ(weft_run_load(run.get(), checkpoint.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
}

TEST(CheckpointTest, AnErrorOfAHostileNameIsPrintableAndEndsInDotsWhereItIsCut) {
  weft_checkpoint* out = nullptr;
  Error err;
  EXPECT_EQ(weft_checkpoint_open("/tmp/weft\x1b[31m\xc2\x9b\n/none", &out, &err), WEFT_ENOENT);
  EXPECT_NE(std::string(err.text).find("/tmp/weft\\x1b[31m\\xc2\\x9b\\x0a/none: "),
            std::string::npos)
      << err.text;
  std::string name = "/tmp/";
  for (int i = 0; i < 300; ++i) name += "\xe2\x82\xac";  // three bytes each
  EXPECT_LT(weft_checkpoint_open(name.c_str(), &out, &err), 0);
  const std::string text = err.text;
  EXPECT_EQ(text.substr(text.size() - 6), "\xe2\x82\xac...") << text;
  EXPECT_GT(text.size(), 490u);
}

TEST(CheckpointTest, ADamagedLatestOfADirectoryIsPassedOverWithAWarning) {
  const FileDirectory directory;
  const RunPtr run = start_layers({"a"});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path.c_str();
  Error err;
  std::string digests[2];
  for (std::string& saved : digests) {
    step(run, {noise({6, 6}).get(), noise({6, 6}, 2).get()});
    ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
    saved = digest(run);
  }
  const std::string newest = directory.path + "/step-00000002",
                    shard = newest + "/model-00001.safetensors";
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  const CheckpointPtr whole = open_checkpoint(directory.path);
  ASSERT_EQ(weft_checkpoint_describe(whole.get(), &info), WEFT_OK);
  EXPECT_EQ(info.warning, nullptr);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const CheckpointPtr older = open_checkpoint(directory.path);
  ASSERT_EQ(weft_checkpoint_describe(older.get(), &info), WEFT_OK);
  EXPECT_EQ(info.step, 1u);
  ASSERT_NE(info.warning, nullptr);
  EXPECT_NE(std::strstr(info.warning, ("fell back to step-00000001: step-00000002 is damaged: " +
                                       shard + ": checksum is")
                                          .c_str()),
            nullptr)
      << info.warning;
  EXPECT_EQ(weft_run_load(run.get(), older.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(run), digests[0]);
  // The one that was asked for by its name is not exchanged for another.
  const CheckpointPtr named = open_checkpoint(newest);
  expect_error(weft_run_load(run.get(), named.get(), WEFT_LOAD_ALL, &err), err, WEFT_EDATA,
               {shard.c_str(), "checksum is"});
  EXPECT_EQ(digest(run), digests[0]);
}

TEST(CheckpointTest, ADirectoryWithoutANameIsRefused) {
  const RunPtr run = start_layers({"a"});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = "";
  Error err;
  expect_error(weft_run_save(run.get(), &config, &err), err, WEFT_EINVAL,
               {"weft_save_config.directory is empty"});
}

TEST(CheckpointTest, TheModelIsAsItWasGiven) {
  for (const char* given : {static_cast<const char*>(nullptr), "a model"}) {
    const FileDirectory directory;
    const RunPtr run = start_layers({"a"});
    weft_save_config config = defaults(weft_save_config_init);
    config.directory = directory.path.c_str();
    config.model = given;
    Error err;
    ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    const CheckpointPtr checkpoint = open_checkpoint(directory.path);
    ASSERT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
    EXPECT_STREQ(info.model, given);
  }
}

TEST(Load, AnotherRuleMeansOtherThingsByTheSameTensors) {
  const FileDirectory directory;
  weft_optimizer optimizer = unclipped();  // adamw
  weft_plan_config config = plan_config();
  config.optimizer = &optimizer;
  const RunPtr saved = start(small_model(), config);
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = directory.path.c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &save, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path);
  optimizer.rule = WEFT_ADAM;
  const RunPtr adam = start(small_model(), config);
  expect_error(weft_run_load(adam.get(), checkpoint.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"'adamw'", "'adam'"});
  EXPECT_EQ(weft_run_load(adam.get(), checkpoint.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(digest(adam), digest(saved));
}

TEST(Load, AModelThatDoesNotTrainIsSavedWithoutState) {
  const FileDirectory directory;
  const auto made = [] {
    const ModelPtr model = new_model();
    EXPECT_EQ(weft_model_add_output(
                  model.get(), add_linear(model, "l", add_input(model, "x", {1, 6}), 3), nullptr),
              WEFT_OK);
    return start(model, plan_config());
  };
  const RunPtr run = made(), other = made();
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = directory.path.c_str();
  char text[33];
  Error err;
  const TensorPtr bias = zeros({3});
  floats(bias)[1] = 0.5f;
  ASSERT_EQ(weft_run_write(run.get(), "l.bias", WEFT_VALUE, bias.get(), &err), WEFT_OK) << err.text;
  expect_error(weft_run_read(run.get(), "l.bias", WEFT_EXP_AVG, bias.get(), &err), err, WEFT_ENOENT,
               {"no loss", "optimizer state"});
  EXPECT_EQ(weft_run_optimizer_digest(run.get(), text, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_run_save(run.get(), &save, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_run_load(other.get(), open_checkpoint(directory.path).get(), WEFT_LOAD_ALL, &err),
            WEFT_OK)
      << err.text;
  EXPECT_EQ(digest(other), digest(run));
}

}  // namespace
