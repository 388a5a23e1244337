// Same bits anywhere: what may not change the digest, what must, and how it is computed.
#include <xxhash.h>

#include <cfenv>

#include "api/api.h"

namespace {

struct Case {
  uint32_t ranks;
  const char* schedule;
  weft_split split;
  uint32_t threads;
};

class DigestTest : public testing::TestWithParam<Case> {};

// Six samples in micro-batches of two, three steps; clipping and decay make every gradient count
// for every weight.
RunPtr trained(weft_plan_config config, uint32_t threads = 0) {
  weft_optimizer adamw = unclipped();
  adamw.clip = 0.05;
  adamw.weight_decay = 0.1;
  config.optimizer = &adamw;
  RunPtr run = start(small_model(), config, threads);
  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  for (int i = 0; i < 3; ++i) step(run, {x.get(), y.get()});
  return run;
}

TEST_P(DigestTest, IsTheSameHoweverTheRunIsCut) {
  const Case c = GetParam();
  weft_plan_config config = plan_config(c.ranks);
  config.schedule = c.schedule;
  config.split = c.split;
  const RunPtr run = trained(config, c.threads), one = trained(plan_config());
  EXPECT_EQ(digest(run), digest(one));
  EXPECT_EQ(read(run, "a.weight", WEFT_GRAD, {6, 8}), read(one, "a.weight", WEFT_GRAD, {6, 8}));
  EXPECT_EQ(read(run, "c.bias", WEFT_EXP_AVG_SQ, {3}), read(one, "c.bias", WEFT_EXP_AVG_SQ, {3}));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (uint32_t ranks = 1; ranks <= 4; ++ranks)
    for (const char* schedule : {"gpipe", "1f1b"})
      for (weft_split split : {WEFT_SPLIT_COST, WEFT_SPLIT_UNIFORM})
        for (uint32_t threads : {0, 1, 3}) out.push_back({ranks, schedule, split, threads});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cuts, DigestTest, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(test.param.schedule) + "_" + std::to_string(test.param.ranks) +
         (test.param.split == WEFT_SPLIT_UNIFORM ? "_uniform_" : "_cost_") +
         std::to_string(test.param.threads);
});

// First weights, norms and losses, whichever thread computes them; and the host has its mode back.
TEST(Digest, IsTheSameInAnyRoundingMode) {
  for (uint32_t threads : {0, 1, 2}) {
    const RunPtr one = trained(plan_config(2), threads);
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
    const RunPtr other = trained(plan_config(2), threads);
    const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
    const Outcome upward = step(other, {x.get(), y.get()});
    const int mode = std::fegetround();
    std::fesetround(FE_TONEAREST);
    const Outcome nearest = step(one, {x.get(), y.get()});
    EXPECT_EQ(mode, FE_UPWARD);
    EXPECT_EQ(upward.loss, nearest.loss);
    EXPECT_EQ(upward.losses, nearest.losses);
    EXPECT_EQ(upward.grad_norm, nearest.grad_norm);
    EXPECT_EQ(digest(one), digest(other));
  }
}

TEST(Digest, ChangesWithTheSeed) {
  weft_plan_config other = plan_config();
  other.seed = 1;
  EXPECT_NE(digest(start(small_model(), plan_config())), digest(start(small_model(), other)));
}

TEST(Digest, ChangesWithTheNumberOfMicroBatches) {
  EXPECT_EQ(digest(start(small_model(), plan_config(1, 3, 2))),
            digest(start(small_model(), plan_config(1, 2, 3))));
  EXPECT_NE(digest(trained(plan_config(1, 3, 2))), digest(trained(plan_config(1, 2, 3))));
}

TEST(Digest, ChangesWithASingleBit) {
  const RunPtr run = start(small_model(), plan_config(2));
  const std::string before = digest(run);
  const TensorPtr weight = zeros({8, 8});
  auto flip = [&] {
    uint32_t bits = 0;
    std::memcpy(&bits, floats(weight) + 37, sizeof bits);
    bits ^= 1;
    std::memcpy(floats(weight) + 37, &bits, sizeof bits);
    EXPECT_EQ(weft_run_write(run.get(), "b.weight", WEFT_VALUE, weight.get(), nullptr), WEFT_OK);
  };
  ASSERT_EQ(weft_run_read(run.get(), "b.weight", WEFT_VALUE, weight.get(), nullptr), WEFT_OK);
  flip();
  EXPECT_NE(digest(run), before);
  flip();
  EXPECT_EQ(digest(run), before);
}

TEST(Digest, IsComputedAsTheHeaderSays) {
  const RunPtr run = trained(plan_config(2));
  std::string all;
  auto add = [&](const char* name, std::initializer_list<int64_t> dims) {
    const std::vector<float> data = read(run, name, WEFT_VALUE, dims);
    const XXH128_hash_t hash = XXH3_128bits(data.data(), data.size() * sizeof(float));
    const uint64_t words[] = {hash.high64, hash.low64};
    all.append(name).push_back('\0');
    all.append(reinterpret_cast<const char*>(words), sizeof words);
  };
  add("a.bias", {8});
  add("a.weight", {6, 8});
  add("b.bias", {8});
  add("b.weight", {8, 8});
  add("c.bias", {3});
  add("c.weight", {8, 3});
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  char expected[33];
  std::snprintf(expected, sizeof expected, "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  EXPECT_EQ(digest(run), expected);
}

}  // namespace
