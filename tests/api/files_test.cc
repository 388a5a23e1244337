// Presets and checkpoints through the C API: their properties, and the errors if they do not fit.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/drivers.h"

namespace {

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

// x [6] -> the named layers of 6 -> mean squared error to y [6].
ModelPtr layers_of(std::initializer_list<const char*> names, int64_t width = 6) {
  ModelPtr model = new_model();
  weft_value x = add_input(model, "x", {1, 6});
  const weft_value y = add_input(model, "y", {1, width});
  for (const char* name : names) x = add_linear(model, name, x, width);
  add_node(model, "mse", {x, y});
  return model;
}

RunPtr start_layers(std::initializer_list<const char*> names, int64_t width = 6) {
  return start(layers_of(names, width), plan_config());
}

TEST(Save, AnOptionIsThereOnceAndHasAKey) {
  const Directory directory;
  const RunPtr run = start_layers({"a"});
  const std::string path = directory.path() + "/checkpoints";
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
  const Directory directory;
  const RunPtr saved = start_layers({"a", "b"});
  step(saved, {noise({6, 6}).get(), noise({6, 6}, 2).get()});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &config, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path());
  const std::string file = directory.path() + "/weights.safetensors";
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

// A body that was trained before, with a new head of another width or name.
TEST(CheckpointTest, ParametersThatMatchKeepTheirValues) {
  const Directory directory;
  const RunPtr saved = start_layers({"a", "b"});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &config, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path());
  const std::string file = directory.path() + "/weights.safetensors";
  ASSERT_EQ(weft_checkpoint_export(checkpoint.get(), file.c_str(), &err), WEFT_OK) << err.text;
  const CheckpointPtr weights = open_checkpoint(file);
  const auto body = read(saved, "a.weight", WEFT_VALUE, {6, 6});
  for (weft_checkpoint* from : {checkpoint.get(), weights.get()}) {
    const RunPtr run = start_layers({"a", "b"});
    const std::vector<float> head(36, 3);
    const TensorPtr threes = zeros({6, 6});
    std::copy(head.begin(), head.end(), floats(threes));
    for (const char* name : {"a.weight", "b.weight"})
      ASSERT_EQ(weft_run_write(run.get(), name, WEFT_VALUE, threes.get(), &err), WEFT_OK);
    ASSERT_EQ(weft_run_load_except(run.get(), from, "b.*", &err), WEFT_OK) << err.text;
    EXPECT_EQ(read(run, "a.weight", WEFT_VALUE, {6, 6}), body);
    EXPECT_EQ(read(run, "b.weight", WEFT_VALUE, {6, 6}), head);
    EXPECT_EQ(weft_run_load_except(run.get(), from, "*.bias,?.weight", &err), WEFT_OK) << err.text;

    const RunPtr renamed = start_layers({"a", "c"}), wider = start_layers({"a", "b"}, 7);
    expect_error(weft_run_load_except(renamed.get(), from, "c.*", &err), err, WEFT_EDATA,
                 {": 2 surplus tensors: ", "'b.weight'", "'b.bias'"});
    EXPECT_EQ(weft_run_load_except(renamed.get(), from, "c.*,b.*", &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_run_load_except(wider.get(), from, "a.*,b.*", &err), WEFT_OK) << err.text;
    expect_error(weft_run_load_except(wider.get(), from, "a.weight,b.w", &err), err, WEFT_ENOENT,
                 {"pattern 'b.w' matches no parameter of the model and none of the file"});
  }
  expect_error(weft_run_load_except(saved.get(), checkpoint.get(), nullptr, &err), err, WEFT_EINVAL,
               {"kept is NULL"});
}

RunPtr start_adapted(std::initializer_list<const char*> names) {
  const ModelPtr model = layers_of(names);
  const char* const target = "a";
  weft_adapter_config config = defaults(weft_adapter_config_init);
  config.targets = &target;
  config.n_targets = 1;
  weft_model* out = nullptr;
  Error err;
  EXPECT_EQ(weft_model_adapt(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return start(ModelPtr(out), plan_config());
}

// What the file has decides which parameters may be missing, also if they are not loaded.
TEST(CheckpointTest, ParametersThatKeepTheirValuesHideNoMissingOnes) {
  const Directory directory;
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  Error err;
  ASSERT_EQ(weft_run_save(start_adapted({"a", "b"}).get(), &config, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path());
  const RunPtr longer = start_adapted({"a", "b", "c"});
  for (const char* kept : {"b.*", "a.weight,a.bias,b.*"})
    expect_error(weft_run_load_except(longer.get(), checkpoint.get(), kept, &err), err, WEFT_EDATA,
                 {"2 missing tensors: 'c.weight', 'c.bias'"});
  expect_error(weft_run_load_except(longer.get(), checkpoint.get(), "", &err), err, WEFT_EINVAL,
               {"kept is empty"});
}

// A head that is not tied, in a model in which it is: with another vocabulary, both are new.
TEST(CheckpointTest, AHeadThatIsTiedToAParameterThatKeepsItsValueIsNotCompared) {
  const auto preset = [](const char* text) {
    weft_model* made = nullptr;
    Error err;
    EXPECT_EQ(weft_model_preset(text, 0, 1, &made, nullptr, &err), WEFT_OK) << err.text;
    return start(ModelPtr(made), plan_config());
  };
  const Directory directory;
  const std::string file = directory.path() + "/weights.safetensors";
  Error err;
  const RunPtr untied = preset("gpt-nano:blocks=1,width=8,heads=1,context=4,vocabulary=5,tied=0");
  ASSERT_EQ(weft_run_export(untied.get(), file.c_str(), &err), WEFT_OK) << err.text;
  const CheckpointPtr weights = open_checkpoint(file);
  const RunPtr tied = preset("gpt-nano:blocks=1,width=8,heads=1,context=4,vocabulary=5");
  expect_error(weft_run_load(tied.get(), weights.get(), WEFT_LOAD_WEIGHTS, &err), err, WEFT_EDATA,
               {"'lm_head.weight' differs from 'wte.weight'"});
  for (const char* kept : {"wte.*", "lm_head.weight", "*.weight"})
    EXPECT_EQ(weft_run_load_except(tied.get(), weights.get(), kept, &err), WEFT_OK) << err.text;
  const RunPtr wider = preset("gpt-nano:blocks=1,width=8,heads=1,context=4,vocabulary=6");
  EXPECT_EQ(weft_run_load_except(wider.get(), weights.get(), "wte.*", &err), WEFT_OK) << err.text;
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
  const Directory directory;
  const RunPtr run = start_layers({"a"});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  Error err;
  std::string digests[2];
  for (std::string& saved : digests) {
    step(run, {noise({6, 6}).get(), noise({6, 6}, 2).get()});
    ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
    saved = digest(run);
  }
  const std::string newest = directory.path() + "/step-00000002",
                    shard = newest + "/model-00001.safetensors";
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  const CheckpointPtr whole = open_checkpoint(directory.path());
  ASSERT_EQ(weft_checkpoint_describe(whole.get(), &info), WEFT_OK);
  EXPECT_EQ(info.warning, nullptr);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const CheckpointPtr older = open_checkpoint(directory.path());
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
    const Directory directory;
    const RunPtr run = start_layers({"a"});
    weft_save_config config = defaults(weft_save_config_init);
    config.directory = directory.path().c_str();
    config.model = given;
    Error err;
    ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    const CheckpointPtr checkpoint = open_checkpoint(directory.path());
    ASSERT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
    EXPECT_STREQ(info.model, given);
  }
}

TEST(Load, AnotherRuleMeansOtherThingsByTheSameTensors) {
  const Directory directory;
  weft_optimizer optimizer = unclipped();  // adamw
  weft_plan_config config = plan_config();
  config.optimizer = &optimizer;
  const RunPtr saved = start(small_model(), config);
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = directory.path().c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &save, &err), WEFT_OK) << err.text;
  const CheckpointPtr checkpoint = open_checkpoint(directory.path());
  optimizer.rule = WEFT_ADAM;
  const RunPtr adam = start(small_model(), config);
  expect_error(weft_run_load(adam.get(), checkpoint.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"'adamw'", "'adam'"});
  EXPECT_EQ(weft_run_load(adam.get(), checkpoint.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(digest(adam), digest(saved));
}

TEST(Load, AModelThatDoesNotTrainIsSavedWithoutState) {
  const Directory directory;
  const auto made = [] {
    const ModelPtr model = new_model();
    EXPECT_EQ(weft_model_add_output(
                  model.get(), add_linear(model, "l", add_input(model, "x", {1, 6}), 3), nullptr),
              WEFT_OK);
    return start(model, plan_config());
  };
  const RunPtr run = made(), other = made();
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = directory.path().c_str();
  char text[33];
  Error err;
  const TensorPtr bias = zeros({3});
  floats(bias)[1] = 0.5f;
  ASSERT_EQ(weft_run_write(run.get(), "l.bias", WEFT_VALUE, bias.get(), &err), WEFT_OK) << err.text;
  expect_error(weft_run_read(run.get(), "l.bias", WEFT_EXP_AVG, bias.get(), &err), err, WEFT_ENOENT,
               {"no loss", "optimizer state"});
  EXPECT_EQ(weft_run_optimizer_digest(run.get(), text, &err), WEFT_OK) << err.text;
  ASSERT_EQ(weft_run_save(run.get(), &save, &err), WEFT_OK) << err.text;
  EXPECT_EQ(
      weft_run_load(other.get(), open_checkpoint(directory.path()).get(), WEFT_LOAD_ALL, &err),
      WEFT_OK)
      << err.text;
  EXPECT_EQ(digest(other), digest(run));
}

}  // namespace
