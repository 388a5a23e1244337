// Making a plan, saving it and loading it: invalid calls and their errors.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "api/drivers.h"

namespace {

TEST(PlanTest, SpeedsAreThoseOfTheRanks) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  const double speeds[] = {1, 3, 1};
  weft_plan* out = nullptr;
  Error err;
  config.n_speeds = 2;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"weft_plan_config.speeds is NULL"});
  config.speeds = speeds;
  for (uint32_t n : {1u, 3u}) {
    config.n_speeds = n;
    expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
                 {"speeds has ", "expected one for each of 2 ranks"});
  }
  config.n_speeds = 0;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"weft_plan_config.n_speeds is 0"});
}

TEST(PlanTest, TheOpOfASplitNeedsTheSplit) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  config.split_type = "linear";
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"weft_plan_config.split_type is 'linear'", "WEFT_SPLIT_TYPE"});
}

TEST(PlanTest, NullIsHarmless) {
  const ModelPtr model = small_model();
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(nullptr, &config, &out, &err), err, WEFT_EINVAL, {"model is NULL"});
  expect_error(weft_plan_new(model.get(), &config, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  ASSERT_EQ(weft_plan_new(model.get(), nullptr, &out, &err), WEFT_OK) << err.text;
  weft_plan_info info = sized<weft_plan_info>();
  EXPECT_EQ(weft_plan_describe(out, &info), WEFT_OK);
  EXPECT_EQ(info.micro_batches, defaults(weft_plan_config_init).micro_batches);
  weft_plan_free(out);
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
  refused([](auto& c) { c.split = weft_split{7}; }, WEFT_EINVAL, {"split is 7"});
  refused([](auto& c) { c.short_size = 2; }, WEFT_EINVAL,
          {"short_size is 2", "micro_batch_size, 2"});
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
std::string refusal_of_bytes(int64_t in, int64_t out_features, bool trained,
                             uint32_t micro_batches) {
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
  EXPECT_NE(
      refusal_of_bytes(kOne << 20, kOne << 39, true, 1).find("2305843009213693952 bytes or more"),
      std::string::npos)
      << "weight, gradient and state have more than 64 bits can count";
  refusal_of_bytes(kOne << 21, kOne << 21, true,
                   1);  // a weight of a quarter of the limit, and three times as much beside it
  refusal_of_bytes(1, kOne << 40, false, 32);  // what is kept of each micro-batch
}

TEST(PlanTest, WorkersOfMicroBatchesThatCannotBeCountedAreRefused) {
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, int64_t{1} << 40});
  Error err;
  ASSERT_EQ(weft_model_add_output(model.get(), add_node(model, "relu", {x}), &err), WEFT_OK)
      << err.text;
  const weft_plan_config config = plan_config(1, 1, UINT32_MAX);
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"node 'x'", "4294967295 samples", "too large"});
}

TEST(PlanTest, AModelMustHaveAnEnd) {
  const ModelPtr model = new_model();
  add_linear(model, "l", add_input(model, "x", {1, 4}), 2);
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"neither a loss nor an output"});
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
  const Directory directory;
  const std::string first = directory / "first.json", second = directory / "second.json",
                    edited = directory / "edited.json";
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  weft_optimizer optimizer = unclipped();
  optimizer.rule = WEFT_SGD;
  optimizer.momentum = 0.3;
  optimizer.clip = 1.0 / 3;
  config.optimizer = &optimizer;
  config.seed = 0xfedcba9876543210;
  const double speeds[] = {1, 3};
  config.speeds = speeds;
  config.n_speeds = 2;
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
  const auto refused = [&](const std::string& from, const std::string& to, weft_status status,
                           std::initializer_list<const char*> parts) {
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
  refused("\"rate\": ", "\"rate\": -", WEFT_EDATA,
          {"'optimizer': 'rate' is -0.001, expected a finite number from 0"});
  refused("\"ranks\": 2", "\"ranks\": 2.5", WEFT_EDATA,
          {"'ranks' expects a whole number from 0, found 2.5"});
  refused("\"ranks\": 2", "\"ranks\": 1073741825", WEFT_EDATA,
          {"'ranks' is 1073741825, expected at most 1073741824"});
  refused("\"ranks\": 2", "\"ranks\": [2]", WEFT_EDATA,
          {"'ranks' expects a number, a string, true or false, found array"});
  refused("\"vertical_sync\": false", "\"vertical_sync\": 0", WEFT_EDATA,
          {"'vertical_sync' expects true or false, found 0"});
  refused("0F0 0F1", "0F1 0F0", WEFT_EINVAL, {"rank 0"});
  refused("\"slack\": 1", "\"slack\": 2", WEFT_EINVAL,
          {"edited.json", "'plan_hash' is ", "edited", "without 'plan_hash'"});
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
}

// Whatever a setting is changed to: a plan that takes other bytes, runs in another order or
// computes something else is another plan.
TEST(PlanTest, AnEditedSettingIsRefused) {
  const Directory directory;
  const std::string saved = directory / "saved.json", edited = directory / "edited.json";
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2, 4, 8);
  config.short_size = 3;
  config.recompute = "stage";
  Error err;
  const PlanPtr plan = new_plan(model, config);
  ASSERT_EQ(weft_plan_save(plan.get(), saved.c_str(), &err), WEFT_OK) << err.text;
  for (const auto& [from, to] :
       {std::pair("\"recompute\": \"stage\"", "\"recompute\": \"every:4\""),
        {"\"recompute\": \"stage\"", "\"recompute\": \"none\""},
        {"\"micro_batches\": 4", "\"micro_batches\": 5"},
        {"\"micro_batch_size\": 8", "\"micro_batch_size\": 9"},
        {"\"short_size\": 3", "\"short_size\": 2"},
        {"\"slack\": 1", "\"slack\": 2"},
        {"\"memory_limit\": 0", "\"memory_limit\": 99999999"},
        {"\"step_kinds\": 0", "\"step_kinds\": 1"},
        {"\"warm_up\": 1", "\"warm_up\": 2"},
        {"\"seed\": 0", "\"seed\": 1"},
        {"\"rate\": 0.001", "\"rate\": 0.002"}}) {
    std::string text = text_at(saved);
    ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
    std::ofstream(edited) << text.replace(text.find(from), std::string(from).size(), to);
    weft_plan* out = nullptr;
    SCOPED_TRACE(to);
    expect_error(weft_plan_load(model.get(), edited.c_str(), &out, &err), err, WEFT_EINVAL,
                 {"'plan_hash' is ", "edited"});
    weft_plan_free(out);
  }
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
