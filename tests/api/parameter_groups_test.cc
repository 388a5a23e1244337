// Parameter groups: which group counts, what a frozen parameter has, and checkpoints between plans
// that train other parameters. tests/api/oracle_test.cc compares trained values with PyTorch.
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "api/drivers.h"
#include "api/spmd.h"

namespace {

weft_parameter_group group(const char* pattern, bool frozen) {
  weft_parameter_group out = defaults(weft_parameter_group_init);
  out.pattern = pattern;
  out.frozen = frozen;
  return out;
}

using Groups = std::vector<weft_parameter_group>;

weft_plan_config with_groups(const Groups& groups, uint32_t ranks = 2) {
  weft_plan_config config = plan_config(ranks);
  static weft_optimizer optimizer = [] {
    weft_optimizer out = unclipped();
    out.rate = 0.01;
    out.weight_decay = 0.1;
    return out;
  }();
  config.optimizer = &optimizer;
  config.groups = groups.data();
  config.n_groups = static_cast<uint32_t>(groups.size());
  return config;
}

const Groups& frozen_a() {
  static const Groups groups = {group("a.*", true)};
  return groups;
}

Outcome train(const RunPtr& run, int steps) {
  Outcome out;
  for (int i = 0; i < steps; ++i) {
    const TensorPtr x = noise({6, 6}, static_cast<uint32_t>(2 * i + 1)),
                    y = noise({6, 3}, static_cast<uint32_t>(2 * i + 2));
    out = step(run, {x.get(), y.get()});
    EXPECT_EQ(out.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << out.text;
  }
  return out;
}

int64_t trained(const PlanPtr& plan) {
  weft_plan_info info = sized<weft_plan_info>();
  EXPECT_EQ(weft_plan_describe(plan.get(), &info), WEFT_OK);
  return info.trained;
}

class ParameterGroups : public testing::TestWithParam<Driver> {};

TEST_P(ParameterGroups, AFrozenParameterStaysAsItIs) {
  const TwoRanks alone(new_plan(small_model(), with_groups(frozen_a(), 1)), kInline);
  const TwoRanks ranks(new_plan(small_model(), with_groups(frozen_a())), GetParam());
  const auto before = read(ranks.run, "a.weight", WEFT_VALUE, {6, 8});
  const auto trained_before = read(ranks.run, "b.weight", WEFT_VALUE, {8, 8});
  EXPECT_EQ(train(alone.run, 4).grad_norm, train(ranks.run, 4).grad_norm);
  EXPECT_EQ(digest(alone.run), digest(ranks.run));
  EXPECT_EQ(read(ranks.run, "a.weight", WEFT_VALUE, {6, 8}), before);
  EXPECT_NE(read(ranks.run, "b.weight", WEFT_VALUE, {8, 8}), trained_before);

  const TensorPtr weight = zeros({6, 8});
  for (const weft_part part : {WEFT_GRAD, WEFT_EXP_AVG, WEFT_EXP_AVG_SQ}) {
    Error err;
    expect_error(weft_run_read(ranks.run.get(), "a.weight", part, weight.get(), &err), err,
                 WEFT_ENOENT, {"'a.weight' is frozen", "neither a gradient nor optimizer state"});
    if (part == WEFT_GRAD) continue;  // of no parameter it can be written
    expect_error(weft_run_write(ranks.run.get(), "a.weight", part, weight.get(), &err), err,
                 WEFT_ENOENT, {"'a.weight' is frozen"});
  }
  Error err;
  EXPECT_EQ(weft_run_write(ranks.run.get(), "a.weight", WEFT_VALUE, weight.get(), &err), WEFT_OK)
      << err.text;
  EXPECT_EQ(read(ranks.run, "a.weight", WEFT_VALUE, {6, 8}), values(weight));
}

// Saves, and returns the path of the checkpoint.
std::string save_as_newest(const RunPtr& run, const Directory& directory) {
  const std::string path = save(run, directory);
  std::string name;
  std::ifstream(path + "/latest") >> name;
  return path + "/" + name;
}

// Whether files of both checkpoints are one file.
bool share_a_file(const std::string& a, const std::string& b) {
  return std::filesystem::equivalent(a + "/model-00001.safetensors",
                                     b + "/model-00001.safetensors");
}

TEST_P(ParameterGroups, CheckpointsShareTheFileOfAFrozenParameterUntilItIsWritten) {
  const Directory directory;
  const TwoRanks ranks(new_plan(small_model(), with_groups(frozen_a())), GetParam());
  std::string last = save_as_newest(ranks.run, directory);
  for (const bool written : {false, true, false}) {
    train(ranks.run, 1);
    Error err;
    const TensorPtr weight = noise({6, 8}, 5);
    if (written) {
      ASSERT_EQ(weft_run_write(ranks.run.get(), "a.weight", WEFT_VALUE, weight.get(), &err),
                WEFT_OK);
    }
    const std::string path = save_as_newest(ranks.run, directory);
    EXPECT_EQ(share_a_file(path, last), !written);
    EXPECT_EQ(digest(open_checkpoint(path)), digest(ranks.run));
    last = path;
  }
  {
    Error err;
    ASSERT_EQ(weft_run_load(ranks.run.get(), open_checkpoint(last).get(), WEFT_LOAD_ALL, &err),
              WEFT_OK);
  }
  train(ranks.run, 1);
  EXPECT_FALSE(share_a_file(save_as_newest(ranks.run, directory), last));
}

// Finite numbers as bf16, to nearest even.
std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) {
    auto bits = std::bit_cast<uint32_t>(value);
    bits += 0x7fff + (bits >> 16 & 1);
    value = std::bit_cast<float>(bits & 0xffff0000);
  }
  return values;
}

// A rank stores it as the products read it.
TEST_P(ParameterGroups, AFrozenParameterIsRoundedWithBf16) {
  weft_plan_config config = with_groups(frozen_a());
  config.precision = "bf16";
  const TwoRanks ranks(new_plan(small_model(), config), GetParam());
  const RunPtr whole = start(small_model(), with_groups({}));  // the same initial values
  EXPECT_EQ(read(ranks.run, "a.weight", WEFT_VALUE, {6, 8}),
            rounded(read(whole, "a.weight", WEFT_VALUE, {6, 8})));
  EXPECT_EQ(read(ranks.run, "b.weight", WEFT_VALUE, {8, 8}),
            read(whole, "b.weight", WEFT_VALUE, {8, 8}));

  const TensorPtr weight = noise({6, 8}, 5), bias = noise({8}, 6);
  for (const auto& [name, tensor] : {std::pair("a.weight", &weight), {"a.bias", &bias}}) {
    Error err;
    EXPECT_EQ(weft_run_write(ranks.run.get(), name, WEFT_VALUE, tensor->get(), &err), WEFT_OK)
        << err.text;
  }
  EXPECT_NE(values(weight), rounded(values(weight)));
  EXPECT_EQ(read(ranks.run, "a.weight", WEFT_VALUE, {6, 8}), rounded(values(weight)));
  EXPECT_EQ(read(ranks.run, "a.bias", WEFT_VALUE, {8}), values(bias));
  const std::string before = digest(ranks.run);
  train(ranks.run, 1);
  EXPECT_NE(digest(ranks.run), before);
  EXPECT_EQ(read(ranks.run, "a.weight", WEFT_VALUE, {6, 8}), rounded(values(weight)));
}

INSTANTIATE_TEST_SUITE_P(Drivers, ParameterGroups, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ParameterGroup, TheLastOneThatMatchesCounts) {
  const ModelPtr model = small_model();
  const int64_t a = 6 * 8 + 8, b = 8 * 8 + 8, c = 8 * 3 + 3;
  EXPECT_EQ(trained(new_plan(model, with_groups({}))), a + b + c);
  EXPECT_EQ(trained(new_plan(model, with_groups({group("*", true), group("c.*", false)}))), c);
  EXPECT_EQ(trained(new_plan(model, with_groups({group("*.weight", true), group("?.*", false),
                                                 group("b.bias", true)}))),
            a + b + c - 8);
  EXPECT_EQ(trained(new_plan(model, with_groups({group("*a*i*", true)}))), a + b + c - 8 - 48);
}

// All weights have packed forms. Those that are not frozen also have the value, its gradient, two
// tensors of the optimizer, and the sums for the norm.
TEST(ParameterGroup, AFrozenWeightTakesTheBytesOfItsPackedForms) {
  const ModelPtr model = small_model();
  const PlanPtr all = new_plan(model, with_groups({}, 1)),
                some = new_plan(model, with_groups({group("b.weight", true)}, 1));
  const auto less = [&](weft_memory_kind kind) {
    return weft_plan_memory(all.get(), 0, kind) - weft_plan_memory(some.get(), 0, kind);
  };
  constexpr int64_t bytes = 8 * 8 * 4, sums = 64;
  EXPECT_EQ(less(WEFT_MEMORY_WEIGHTS), bytes);
  EXPECT_EQ(less(WEFT_MEMORY_OPTIMIZER), 2 * bytes);
  EXPECT_EQ(less(WEFT_MEMORY_GRADIENTS), bytes + sums);
  EXPECT_LE(weft_plan_bytes(some.get(), 0), weft_plan_bytes(all.get(), 0) - 4 * bytes - sums);
}

TEST(ParameterGroup, IsRefusedByName) {
  const ModelPtr model = small_model();
  const auto refused = [&](const Groups& groups, weft_status status,
                           std::initializer_list<const char*> parts) {
    const weft_plan_config config = with_groups(groups);
    weft_plan* plan = nullptr;
    Error err;
    expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, status, parts);
    EXPECT_EQ(plan, nullptr);
  };
  refused({group("b.*", true), group("encoder.*", true)}, WEFT_ENOENT,
          {"'encoder.*'", "none of the 6 parameters", "'a.weight' to 'c.bias'"});
  refused({group("a", true)}, WEFT_ENOENT, {"'a'"});  // a part of a name
  refused({group("", true)}, WEFT_ENOENT, {"''"});
  refused({group(nullptr, true)}, WEFT_EINVAL, {"weft_parameter_group.pattern is NULL"});
  refused({group("*", true)}, WEFT_EINVAL, {"freeze all parameters", "nothing to train"});
  Groups groups = {group("a.*", false), group("b.*", false)};
  groups[1].rate_factor = -1;
  refused(groups, WEFT_EINVAL, {"rate_factor", "'b.*'", "-1", "0 or more"});
  groups[1] = group("b.*", false);
  groups[1].weight_decay_factor = NAN;
  refused(groups, WEFT_EINVAL, {"weight_decay_factor", "'b.*'", "nan"});
  groups[1] = group("b.*", false);
  groups[1].size -= 8;
  refused(groups, WEFT_EINVAL, {"size is 24 in group 1 and 32 in group 0", "32 in each"});
  groups[0].size = groups[1].size = 0;
  refused(groups, WEFT_EINVAL, {"weft_parameter_group.size is 0", "weft_parameter_group_init"});
  weft_plan_config config = plan_config();
  config.n_groups = 1;
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.groups is NULL"});
}

// Of a caller that was built with a later header, whose groups are larger.
TEST(ParameterGroup, MayHaveFieldsOfALaterVersion) {
  struct Later {
    weft_parameter_group known;
    uint64_t more;
  };
  Later later[2] = {{group("a.*", true), 0}, {group("b.*", true), 0}};
  for (Later& one : later) one.known.size = sizeof one;
  weft_plan_config config = plan_config();
  config.groups = &later[0].known;
  config.n_groups = 2;
  EXPECT_EQ(trained(new_plan(small_model(), config)), 8 * 3 + 3);
  later[1].more = 1;
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(small_model().get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"weft_parameter_group was made for a newer weft"});
}

// With all parameters frozen, the gradient of an input still is that of the whole model.
TEST(ParameterGroup, AnInputCanHaveTheOnlyGradient) {
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  std::vector<std::vector<float>> gradients;
  for (const Groups& groups : {Groups{}, Groups{group("*", true)}}) {
    const RunPtr run = start(small_model(WEFT_INPUT_WANT_GRAD), with_groups(groups));
    const Outcome done = step(run, {x.get(), y.get()});
    EXPECT_EQ(done.grad_norm > 0, groups.empty());
    gradients.push_back(read(run, "x", WEFT_GRAD, {6, 6}));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_NE(gradients[0], values(zeros({6, 6})));
}

// A parameter of an SPMD program is in pieces.
TEST(ParameterGroup, ContainsThePiecesOfItsParameters) {
  const TensorPtr x = noise({6, 8}), y = noise({6, 3}, 2);
  for (const double factor : {0.0, 1.0}) {
    Groups groups = {group("weight", false)};
    groups[0].rate_factor = factor;
    const RunPtr run = start(cut_layer(1, 4), with_groups(groups, 1));
    const std::string before = digest(run);
    step(run, {x.get(), y.get()});
    EXPECT_EQ(digest(run) == before, factor == 0);
  }
}

std::string text_of(const PlanPtr& plan, const std::string& path) {
  Error err;
  EXPECT_EQ(weft_plan_save(plan.get(), path.c_str(), &err), WEFT_OK) << err.text;
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ParameterGroup, IsPartOfThePlan) {
  const Directory directory;
  const std::string path = directory.path() + "/plan";
  Groups groups = {group("a.*", true), group("?.bias", false)};
  groups[1].rate_factor = 0.3;
  groups[1].weight_decay_factor = 0;
  const ModelPtr model = small_model();
  const PlanPtr plan = new_plan(model, with_groups(groups));
  const std::string text = text_of(plan, path);
  EXPECT_NE(text, text_of(new_plan(model, with_groups({})), path + "2"));

  weft_plan_config settings = sized<weft_plan_config>();
  ASSERT_EQ(weft_plan_settings(plan.get(), &settings), WEFT_OK);
  ASSERT_EQ(settings.n_groups, 2u);
  EXPECT_EQ(settings.groups[1].size, sizeof(weft_parameter_group));
  EXPECT_STREQ(settings.groups[0].pattern, "a.*");
  EXPECT_EQ(settings.groups[0].frozen, 1u);
  EXPECT_EQ(settings.groups[1].rate_factor, 0.3);
  EXPECT_EQ(settings.groups[1].weight_decay_factor, 0);
  EXPECT_EQ(text_of(new_plan(model, settings), path + "2"), text);

  weft_plan* loaded = nullptr;
  Error err;
  ASSERT_EQ(weft_plan_load(model.get(), path.c_str(), &loaded, &err), WEFT_OK) << err.text;
  const PlanPtr again(loaded);
  EXPECT_EQ(text_of(again, path + "2"), text);
  const RunPtr first = start(plan), second = start(again);
  train(first, 2);
  train(second, 2);
  EXPECT_EQ(digest(first), digest(second));

  std::string broken = text;
  broken.replace(broken.find("\"frozen\""), 8, "\"molten\"");
  std::ofstream(path) << broken;
  expect_error(weft_plan_load(model.get(), path.c_str(), &loaded, &err), err, WEFT_EDATA,
               {"'groups': has no 'frozen'"});
}

TEST(ParameterGroup, ACheckpointHasNoStateOfFrozenParameters) {
  const Directory directory;
  const RunPtr run = start(small_model(), with_groups(frozen_a()));
  train(run, 3);
  const CheckpointPtr saved = open_checkpoint(save(run, directory));
  EXPECT_EQ(states(saved), 8u);
  train(run, 2);
  const std::string expected = digest(run);

  Error err;
  const RunPtr same = start(small_model(), with_groups(frozen_a(), 1));
  ASSERT_EQ(weft_run_load(same.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  train(same, 2);
  EXPECT_EQ(digest(same), expected);

  const Groups more = {group("a.*", true), group("b.*", true)};
  const RunPtr frozen = start(small_model(), with_groups(more));
  EXPECT_EQ(weft_run_load(frozen.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;

  const RunPtr whole = start(small_model(), with_groups({}));
  expect_error(weft_run_load(whole.get(), saved.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"'a.weight' has no optimizer state", "was frozen", "load only the weights"});
  EXPECT_EQ(weft_run_load(whole.get(), saved.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(whole), digest(saved));
}

// A checkpoint contains float32 values. Those of a plan that stores bf16 are rounded.
TEST(ParameterGroup, ACheckpointMovesBetweenBf16AndFloats) {
  const Directory first, second;
  weft_plan_config config = with_groups(frozen_a());
  config.precision = "bf16";
  const PlanPtr half = new_plan(small_model(), config);
  config.n_groups = 0;
  const PlanPtr all = new_plan(small_model(), config);

  // From a run that trains all parameters to one that keeps some as bf16.
  const RunPtr source = start(all);
  train(source, 2);
  const auto weight = read(source, "a.weight", WEFT_VALUE, {6, 8});
  const CheckpointPtr floats_saved = open_checkpoint(save(source, first));
  const RunPtr run = start(half);
  Error err;
  ASSERT_EQ(weft_run_load(run.get(), floats_saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_NE(weight, rounded(weight));
  EXPECT_EQ(read(run, "a.weight", WEFT_VALUE, {6, 8}), rounded(weight));
  EXPECT_NE(digest(run), digest(floats_saved));

  // It resumes bit for bit.
  train(run, 2);
  const CheckpointPtr saved = open_checkpoint(save(run, second));
  EXPECT_EQ(digest(saved), digest(run));
  const RunPtr again = start(half);
  ASSERT_EQ(weft_run_load(again.get(), saved.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(again), digest(run));
  train(run, 3);
  train(again, 3);
  EXPECT_EQ(digest(again), digest(run));

  // And back: training begins with the rounded value.
  const RunPtr back = start(all);
  expect_error(weft_run_load(back.get(), saved.get(), WEFT_LOAD_ALL, &err), err, WEFT_EINVAL,
               {"'a.weight' has no optimizer state"});
  ASSERT_EQ(weft_run_load(back.get(), saved.get(), WEFT_LOAD_WEIGHTS, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(back), digest(saved));
  EXPECT_EQ(read(back, "a.weight", WEFT_VALUE, {6, 8}), rounded(weight));
}

}  // namespace
