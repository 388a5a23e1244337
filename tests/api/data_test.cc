// Data through the C API: files of tokens, texts and samples, and data that is drawn.
#include <cstring>
#include <fstream>

#include "api/drivers.h"

namespace {

struct FileDirectory : Directory {
  std::string file(const char* name, const std::string& bytes) const {
    const std::string at = *this / name;
    std::ofstream(at, std::ios::binary) << bytes;
    return at;
  }
};

struct Free {
  void operator()(weft_data* data) const { weft_data_free(data); }
  void operator()(weft_tokenizer* tokenizer) const { weft_tokenizer_free(tokenizer); }
};
using DataPtr = std::unique_ptr<weft_data, Free>;
using TokenizerPtr = std::unique_ptr<weft_tokenizer, Free>;

// One without merges.
TokenizerPtr tokenizer_of(const std::string& vocabulary) {
  const std::string json =
      R"({"model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": []}})";
  Error err;
  weft_tokenizer* out = nullptr;
  EXPECT_EQ(weft_tokenizer_parse(json.data(), json.size(), &out, &err), WEFT_OK) << err.text;
  return TokenizerPtr(out);
}

// Samples of two letters, for training and held out.
weft_data_config config_of(const std::string& samples, const TokenizerPtr& tokenizer,
                           int64_t seq_len) {
  weft_data_config config = defaults(weft_data_config_init);
  config.path = config.eval_path = samples.c_str();
  config.vocabulary = 2;
  config.seq_len = seq_len;
  config.tokenizer = tokenizer.get();
  return config;
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
                    one = directory.file("one", "a"), none = directory.path() + "/none";
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
  const TokenizerPtr tokenizer = tokenizer_of(R"("<s>": 0, "</s>": 1, " ": 2, "a": 3, "b": 4)");
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

TEST(Data, LongSamplesOfBothFilesAreCutOrSkipped) {
  const FileDirectory directory;
  const std::string samples =
      directory.file("a.jsonl", R"({"prompt": "a", "completion": "b"})"
                                "\n"
                                R"({"prompt": "a", "completion": "bbbb"})"
                                "\n"
                                R"({"prompt": "aaaaaa", "completion": "b"})");
  Error err;
  const TokenizerPtr tokenizer = tokenizer_of(R"("a": 0, "b": 1)");
  weft_data_config config = config_of(samples, tokenizer, 2);
  EXPECT_EQ(config.long_samples, WEFT_LONG_REFUSE);
  weft_data* opened = nullptr;
  expect_error(weft_data_open(&config, &opened, &err), err, WEFT_EDATA,
               {"2 of 3 samples are longer", "--long-samples"});
  config.long_samples = static_cast<weft_long_samples>(3);
  expect_error(weft_data_open(&config, &opened, &err), err, WEFT_EINVAL,
               {"weft_data_config.long_samples is 3, expected WEFT_LONG_REFUSE"});
  const auto check = [&](weft_long_samples what, int64_t windows, int64_t cut, int64_t skipped) {
    config.long_samples = what;
    ASSERT_EQ(weft_data_open(&config, &opened, &err), WEFT_OK) << err.text;
    const DataPtr data(opened);
    EXPECT_EQ(weft_data_windows(data.get()), windows);
    EXPECT_EQ(weft_data_eval_windows(data.get()), windows);
    EXPECT_EQ(weft_data_cut_samples(data.get()), cut);
    EXPECT_EQ(weft_data_skipped_samples(data.get()), skipped);
  };
  check(WEFT_LONG_CUT, 2, 2, 2);
  check(WEFT_LONG_SKIP, 1, 0, 4);
  EXPECT_EQ(weft_data_cut_samples(nullptr) + weft_data_skipped_samples(nullptr), 0);
}

TEST(Data, PackedSamplesHavePositionsAndHeldOutWindowsArePadded) {
  const FileDirectory directory;
  const std::string line = R"({"prompt": "ab", "completion": "b"})",
                    samples = directory.file("a.jsonl", line + "\n" + line);
  Error err;
  const TokenizerPtr tokenizer = tokenizer_of(R"("a": 0, "b": 1)");
  weft_data_config config = config_of(samples, tokenizer, 5);
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

}  // namespace
