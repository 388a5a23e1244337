// Models and plan configurations as bytes: round trips, and bytes that are wrong.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "graph/encode.h"
#include "graph/presets.h"
#include "plan/encode.h"
#include "support/random_model.h"

namespace weft {
namespace {

TEST(Encode, ModelsComeBackWithTheirHash) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 rng(seed);
    const auto model = test::random_model(rng, 1 + static_cast<int>(rng() % 20));
    auto back = decode_model(encode_model(*model), nullptr);
    ASSERT_TRUE(back.ok()) << back.status().text();
    EXPECT_EQ(back.value()->hash(), model->hash());
  }
  std::set<std::string> hashes;
  for (const char* preset : {"gpt-nano:dropout=0.1", "gemma2:blocks=1",
                             "gemma2:blocks=1,score_cap=4", "gemma2:blocks=1,logit_cap=4"}) {
    const auto model = make_preset(preset, {}).take().model;
    EXPECT_EQ(decode_model(encode_model(*model), nullptr).take()->hash(), model->hash());
    EXPECT_TRUE(hashes.insert(model->hash().hex()).second) << preset;
  }
}

// Two axes, cuts of each kind, and a collective.
struct Spmd {
  const char* axis = "wide";
  int32_t cut = 1;
  int32_t over = 0;
  std::vector<int32_t> coordinates = {1, -1};
  bool shares = false;
};
std::shared_ptr<Model> spmd_model(const Spmd& as = {}) {
  auto model = std::make_shared<Model>();
  EXPECT_TRUE(model->add_axis("deep", 2).ok());
  EXPECT_TRUE(model->add_axis(as.axis, 2).ok());
  const NodeId x = model->add_input("x", {DType::f32, {1, 2, 6}}, true).take();
  EXPECT_TRUE(model->cut_input(x, {.dim = 2, .axis = 1, .drop = false}).ok());
  EXPECT_TRUE(model->cut_input(x, {.dim = 1, .axis = 0, .drop = true}).ok());
  const ParamId w = model->add_param("w", {6, 2}, {}).take();
  EXPECT_TRUE(model->cut_param(w, {.dim = 0, .axis = as.cut, .drop = false}).ok());
  EXPECT_TRUE(!as.shares || model->share_gradient(w).ok());
  const NodeId y = model->add_node("y", find_op("linear"), {}, {&x, 1}, {&w, 1}).take();
  Attrs over;
  over.over = {.axis = as.over, .size = 0, .coordinates = as.coordinates};
  const NodeId z = model->add_node("z", find_op("ppermute"), over, {&y, 1}, {}).take();
  EXPECT_TRUE(model->add_output(z).ok());
  EXPECT_TRUE(model->cut_output(z, {.dim = 1, .axis = 1, .drop = true}).ok());
  EXPECT_TRUE(model->finish().ok());
  return model;
}

TEST(Encode, SpmdModelsComeBackWithTheirHash) {
  const auto model = spmd_model({.shares = true});
  auto back = decode_model(encode_model(*model), nullptr);
  ASSERT_TRUE(back.ok()) << back.status().text();
  EXPECT_EQ(back.value()->hash(), model->hash());
  EXPECT_EQ(back.value()->whole_desc(0).text(), "f32[1,2,6]");
  EXPECT_EQ(back.value()->node(0).one.out.text(), "f32[1,3]");
  EXPECT_EQ(back.value()->whole_desc(2).text(), "f32[1,2,2]");
}

TEST(Encode, SpmdModelsThatDifferHaveOtherHashes) {
  const std::vector<Spmd> all = {{},          {.axis = "other"},        {.cut = 0},
                                 {.over = 1}, {.coordinates = {-1, 0}}, {.shares = true}};
  std::set<std::string> hashes;
  for (const Spmd& as : all) hashes.insert(spmd_model(as)->hash().hex());
  EXPECT_EQ(hashes.size(), all.size());
}

void expect_wrong_bytes_do_no_harm(const Model& model) {
  std::mt19937 rng(1);
  const std::vector<std::byte> bytes = encode_model(model);
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_model({bytes.data(), n}, nullptr).ok()) << n;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::byte> changed = bytes;
    changed[rng() % changed.size()] ^= static_cast<std::byte>(1 + rng() % 255);
    refused += !decode_model(changed, nullptr).ok();
  }
  EXPECT_GT(refused, 1000);
}

TEST(Encode, WrongBytesAreRefusedOrMakeAnotherSoundModel) {
  std::mt19937 rng(1);
  expect_wrong_bytes_do_no_harm(*test::random_model(rng, 10));
  expect_wrong_bytes_do_no_harm(*spmd_model());
}

TEST(Encode, ConfigsComeBack) {
  PlanConfig config;
  config.ranks = 3;
  config.micro_batches = 7;
  config.schedule = "gpipe";
  config.cuts = {"a", "b"};
  config.groups = {{.pattern = "h.*", .frozen = true}, {.pattern = "?", .rate_factor = 0.3}};
  config.optim.clip = 0.25;
  config.seed = 99;
  auto bytes = encode_config(config);
  auto back = decode_config(bytes);
  ASSERT_TRUE(back.ok()) << back.status().text();
  EXPECT_EQ(encode_config(back.value()), bytes);
  EXPECT_EQ(back.value().cuts, config.cuts);
  ASSERT_EQ(back.value().groups.size(), 2u);
  EXPECT_EQ(back.value().groups[0].pattern, "h.*");
  EXPECT_TRUE(back.value().groups[0].frozen);
  EXPECT_EQ(back.value().groups[1].rate_factor, 0.3);
  EXPECT_EQ(back.value().optim.clip, 0.25);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_config({bytes.data(), n}).ok());
}

}  // namespace
}  // namespace weft
