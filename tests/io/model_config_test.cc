// config.json of Hugging Face's Transformers: the model that it describes, and what is refused.
#include "io/model_config.h"
#include "test_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using nlohmann::json;

class ModelConfig : public testing::Test {
 protected:
  // The file in tests/data/.
  void read(const char* name) {
    const auto path = std::filesystem::path(WEFT_TEST_DATA) / name / "config.json";
    config_ = json::parse(std::ifstream(path));
  }
  std::string model() const {
    const auto out = parse_model_config(config_.dump());
    return out.ok() ? out.value() : out.status().text();
  }
  void expect_keys(const std::string& keys) const {
    EXPECT_NE(("," + model() + ",").find("," + keys + ","), std::string::npos) << model();
  }
  struct Row {
    const char* field;
    json value;
    Code code;
    const char* text;
  };
  void expect_refused(const std::vector<Row>& rows) const {
    for (const auto& [field, value, code, text] : rows) {
      json changed = config_;
      changed[field] = value;
      const Status status = parse_model_config(changed.dump()).status();
      EXPECT_EQ(status.code(), code) << field;
      EXPECT_NE(status.text().find(text), std::string::npos) << status.text();
    }
  }

  json config_;
};

TEST_F(ModelConfig, RefusesWhatItWouldComputeDifferently) {
  read("gpt2");
  expect_refused({
      {"model_type", "bert", Code::unsupported, "'model_type' is 'bert', this version"},
      {"model_type", 3, Code::data, "'model_type' is 3, expected a string"},
      {"n_layer", -1, Code::data, "'n_layer' is -1, expected a whole number from 0 to "},
      {"n_layer", std::string(58, 'x') + "\xc3\xa4", Code::data, "x..., expected a whole number"},
      {"n_inner", 65, Code::unsupported, "'n_inner' is 65, expected null or 64"},
      {"activation_function", "relu", Code::unsupported,
       R"('activation_function' is "relu", expected "gelu_new")"},
      {"layer_norm_epsilon", 1e-6, Code::unsupported,
       "'layer_norm_epsilon' is 1e-06, expected 1e-05"},
      {"attn_pdrop", 0.5, Code::unsupported, "'embd_pdrop' is 0, expected 0.5"},
      {"tie_word_embeddings", "no", Code::data, "expected true or false"},
      {"is_causal", false, Code::unsupported, "'is_causal' is false, expected true"},
      {"quantization_config",
       {{"bits", 8}},
       Code::unsupported,
       "field 'quantization_config' is not known, and may affect results"},
  });
  config_["more"] = 1;
  expect_refused({{"most", "x", Code::unsupported, "fields 'more', 'most' are not known, and"}});
  config_.erase("more");
  const std::string before = model();
  for (const json& off : {json(), json(false), json::array(), json::object()}) {
    config_["more"] = off;
    EXPECT_EQ(model(), before);
  }
  config_ = {{"model_type", "gemma3"}, {"text_config", {{"model_type", "gemma3_text"}}}};
  EXPECT_EQ(model(),
            "'model_type' is 'gemma3', a model of more than text; save the part that 'text_config' "
            "describes as a model of its own");
}

TEST_F(ModelConfig, RefusesWhatItWouldComputeDifferentlyOfLlama) {
  read("llama");
  const json low = {{"rope_type", "llama3"},
                    {"factor", 2.0},
                    {"low_freq_factor", 4.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8}};
  expect_refused({
      {"attention_bias", true, Code::unsupported, "'attention_bias' is true, expected false"},
      {"hidden_act", "gelu", Code::unsupported, R"('hidden_act' is "gelu", expected "silu")"},
      {"layer_types",
       {"full_attention", "sliding_attention"},
       Code::unsupported,
       R"(expected "full_attention" for each layer)"},
      {"rope_scaling", 2, Code::data, "'rope_scaling' is 2, expected an object or null"},
      {"rope_scaling",
       {{"type", "spiral"}},
       Code::unsupported,
       R"('rope_scaling.rope_type' is "spiral", expected "default" or "linear")"},
      {"rope_scaling", {{"type", "yarn"}}, Code::data, "'rope_scaling' has no 'factor'"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 2}, {"truncate", false}},
       Code::unsupported,
       "'rope_scaling.truncate' is false"},
      {"rope_scaling", {{"type", "longrope"}}, Code::data, "has no 'rope_scaling.short_factor'"},
      {"rope_scaling",
       {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}},
       Code::data,
       "'original_max_position_embeddings' is missing"},
      {"rope_scaling",
       {{"type", "longrope"}, {"short_factor", {1, "x"}}},
       Code::data,
       "expected a list of numbers"},
      {"rope_scaling", {{"type", "linear"}}, Code::data, "'rope_scaling' has no 'factor'"},
      {"rope_scaling",
       {{"type", "default"}, {"beta", 1}},
       Code::unsupported,
       "'rope_scaling.beta'"},
      {"rope_scaling", low, Code::data, "expected less than 'high_freq_factor' 4"},
      {"sliding_window", 4, Code::unsupported, "field 'sliding_window' is not known"},
  });
  config_.erase("head_dim");
  expect_refused({{"hidden_size", 18, Code::unsupported,
                   "'hidden_size' is 18, expected a multiple of 'num_attention_heads'"}});
}

TEST_F(ModelConfig, RefusesWindowsThatItWouldComputeDifferently) {
  read("qwen2_window");
  expect_refused({
      {"layer_types", {"full_attention"}, Code::data, "expected a list of 2 types"},
      {"layer_types",
       {"full_attention", "chunked_attention"},
       Code::unsupported,
       R"(expected "full_attention" or "sliding_attention" for each layer)"},
      {"use_sliding_window", false, Code::unsupported,
       R"('layer_types' is ["full_attention","sliding_attention"], expected "full_attention" for)"},
      {"use_sliding_window", 1, Code::data, "'use_sliding_window' is 1, expected true or false"},
      {"sliding_window", -4, Code::data, "'sliding_window' is -4, expected a whole number"},
      {"num_hidden_layers", 0, Code::data, "has 0 layers, expected 1 to 1000"},
      {"num_hidden_layers", 100000, Code::data, "has 100000 layers, expected 1 to 1000"},
      {"num_hidden_layers", 1LL << 40, Code::data, "expected 1 to 1000"},
  });
}

TEST_F(ModelConfig, NamesCapsAndWindowsOfGemma2) {
  read("gemma2");
  expect_keys("score_size=10,score_cap=1.5,logit_cap=2");
  config_.erase("layer_types");
  expect_keys("window=4/0");
  config_["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention"};
  expect_keys("window=0/4/4");
  config_["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  config_["attn_logit_softcapping"] = nullptr;
  config_["final_logit_softcapping"] = nullptr;
  config_["use_bidirectional_attention"] = nullptr;  // of Transformers 5
  expect_keys("score_size=10,score_cap=0,logit_cap=0");
  expect_keys("window=");
  expect_refused({
      {"hidden_activation", "gelu", Code::unsupported, R"(expected "gelu_pytorch_tanh")"},
      {"sliding_window_pattern", 3, Code::unsupported, "'sliding_window_pattern' is not known"},
      {"attn_logit_softcapping", "50", Code::data, "expected a number"},
      {"use_bidirectional_attention", true, Code::unsupported, "is true, expected false"},
  });
}

TEST_F(ModelConfig, NamesWindowsOfGemma3) {
  read("gemma3_text");
  expect_keys("window=4/4/0");  // in turn
  config_.erase("layer_types");
  expect_keys("window=4");  // the first one without is the sixth
  config_["num_hidden_layers"] = 7;
  expect_keys("window=4/4/4/4/4/0");
  config_["sliding_window_pattern"] = 2;
  expect_keys("window=4/0");
  config_.erase("sliding_window_pattern");
  config_["_sliding_window_pattern"] = 1;
  expect_keys("window=");
  expect_refused({
      {"_sliding_window_pattern", 0, Code::data,
       "'sliding_window_pattern' is 0, expected at least"},
      {"attn_logit_softcapping", 50, Code::unsupported, "is 50, expected null"},
      {"use_bidirectional_attention", true, Code::unsupported, "is true, expected false"},
  });
}

TEST_F(ModelConfig, NamesRotationsOfGemma3) {
  read("gemma3_text");
  const std::string before = model();
  expect_keys("theta=100,local_theta=20");
  // As newer versions of Transformers write it.
  for (const char* const old : {"rope_theta", "rope_local_base_freq", "rope_scaling"})
    config_.erase(old);
  config_["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 100}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 20}}}};
  EXPECT_EQ(model(), before);
  config_["rope_parameters"]["sliding_attention"].erase("rope_theta");
  expect_keys("theta=100,local_theta=10000");
  config_["rope_parameters"] = {{"full_attention", nullptr}};
  expect_keys("theta=1e+06,local_theta=10000");
  expect_refused({
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}},
       Code::unsupported,
       R"('sliding_attention.rope_type' is "linear", expected "default")"},
      {"rope_parameters", {{"sliding_attention", 2}}, Code::data, "expected an object or null"},
      {"rope_parameters",
       {{"chunked_attention", {{"rope_type", "default"}}}},
       Code::unsupported,
       "'rope_parameters.chunked_attention' is not known"},
  });
}

TEST_F(ModelConfig, ANullOfARotationCountsAsMissing) {
  for (const char* const name : {"qwen2_yarn", "phi3_longrope"}) {
    read(name);
    const std::string before = model();
    config_["rope_scaling"]["attention_factor"] = nullptr;
    EXPECT_EQ(model(), before);
    config_["rope_scaling"]["attention_factor"] = 1.5;
    EXPECT_NE(model(), before);
  }
}

}  // namespace
}  // namespace weft
