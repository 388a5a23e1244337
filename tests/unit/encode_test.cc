// Models and plan configurations as bytes: round trips, and bytes that are wrong.
#include <gtest/gtest.h>

#include <random>

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
  const auto gpt = make_preset("gpt-nano:dropout=0.1", {}).take().model;
  EXPECT_EQ(decode_model(encode_model(*gpt), nullptr).take()->hash(), gpt->hash());
}

TEST(Encode, WrongBytesAreRefusedOrMakeAnotherSoundModel) {
  std::mt19937 rng(1);
  const auto model = test::random_model(rng, 10);
  const std::vector<std::byte> bytes = encode_model(*model);
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

TEST(Encode, ConfigsComeBack) {
  PlanConfig config;
  config.ranks = 3;
  config.micro_batches = 7;
  config.schedule = "gpipe";
  config.cuts = {"a", "b"};
  config.optim.clip = 0.25;
  config.seed = 99;
  auto bytes = encode_config(config);
  auto back = decode_config(bytes);
  ASSERT_TRUE(back.ok()) << back.status().text();
  EXPECT_EQ(encode_config(back.value()), bytes);
  EXPECT_EQ(back.value().cuts, config.cuts);
  EXPECT_EQ(back.value().optim.clip, 0.25);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_config({bytes.data(), n}).ok());
}

}  // namespace
}  // namespace weft
