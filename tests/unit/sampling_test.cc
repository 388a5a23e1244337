// The choice of a token from logits: which tokens can be chosen, and how often.
#include "api/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace weft::api {
namespace {

// Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625, in another order.
std::vector<float> logits() {
  std::vector<float> out;
  for (const double p : {0.125, 0.5, 0.0625, 0.25, 0.0625})
    out.push_back(static_cast<float>(std::log(p)));
  return out;
}

std::map<int32_t, int> counts(const Sampling& sampling, const std::vector<float>& of,
                              int draws = 4000) {
  Candidates work;
  std::map<int32_t, int> out;
  for (int i = 0; i < draws; ++i) ++out[sample(sampling, of, 3, static_cast<uint64_t>(i), work)];
  return out;
}

TEST(Sampling, ChoosesTokensAsOftenAsTheirProbabilitySays) {
  const auto seen = counts({}, logits());
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_NEAR(seen.at(1), 2000, 150);
  EXPECT_NEAR(seen.at(3), 1000, 120);
  EXPECT_NEAR(seen.at(2), 250, 60);
  const auto sharper = counts({.temperature = 0.5}, logits());
  EXPECT_NEAR(sharper.at(1), 4000 * 0.25 / (0.25 + 0.0625 + 1.0 / 64 + 2.0 / 256), 150);
}

TEST(Sampling, AsManyAsThereAreTokensIsAll) {
  Candidates work;
  Sampling most;
  for (const uint32_t top_k : {5u, 6u, 1000u}) {
    most.top_k = top_k;
    for (uint64_t i = 0; i < 100; ++i)
      EXPECT_EQ(sample(most, logits(), 3, i, work), sample(Sampling(), logits(), 3, i, work));
  }
}

TEST(Sampling, Temperature0TakesTheMostLikelyAndTheLowestOfEqualOnes) {
  EXPECT_EQ(counts({.temperature = 0}, logits(), 10), (std::map<int32_t, int>{{1, 10}}));
  EXPECT_EQ(counts({.temperature = 0}, std::vector<float>{1, 2, 2}, 10),
            (std::map<int32_t, int>{{1, 10}}));
}

TEST(Sampling, FiltersKeepTheMostLikelyTokens) {
  const auto kept = [](const Sampling& sampling) {
    std::vector<int32_t> out;
    for (const auto& [token, count] : counts(sampling, logits())) out.push_back(token);
    return out;
  };
  EXPECT_EQ(kept({.top_k = 1}), (std::vector<int32_t>{1}));
  EXPECT_EQ(kept({.top_k = 3}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(kept({.top_k = 4}), (std::vector<int32_t>{0, 1, 2, 3}));  // 2 and 4 are equal
  EXPECT_EQ(kept({.top_p = 0}), (std::vector<int32_t>{1}));
  EXPECT_EQ(kept({.top_p = 0.5}), (std::vector<int32_t>{1}));
  EXPECT_EQ(kept({.top_p = 0.51}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.8}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(kept({.min_p = 0.2}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(kept({.min_p = 1}), (std::vector<int32_t>{1}));
  // The share is of the tokens that top-k has left.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.66}), (std::vector<int32_t>{1}));
}

TEST(Sampling, TopPOfManyTokensIsThatOfAllInOrder) {
  std::vector<float> flat(1000);
  for (size_t i = 0; i < flat.size(); ++i) flat[i] = -static_cast<float>(i * 37 % 1000) / 500;
  double all = 0, sum = 0;
  for (int i = 0; i < 1000; ++i) all += std::exp(-i / 500.0);
  int expected = 0;
  while (sum < 0.9 * all) sum += std::exp(-expected++ / 500.0);
  for (const auto& [token, count] : counts({.top_p = 0.9}, flat))
    EXPECT_LE(static_cast<int>(-flat[static_cast<size_t>(token)] * 500 + 0.5f), expected);
}

TEST(Sampling, DependsOnSeedTextAndPositionOnly) {
  Candidates work, other;
  const std::vector<float> of = logits();
  const Sampling first{.seed = 1}, second{.seed = 2};
  int seeds = 0, texts = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const int32_t token = sample(first, of, 0, i, work);
    EXPECT_EQ(token, sample(first, of, 0, i, other));
    seeds += token != sample(second, of, 0, i, other);
    texts += token != sample(first, of, 1, i, other);
  }
  EXPECT_GT(seeds, 20);
  EXPECT_GT(texts, 20);
}

TEST(Sampling, PenaltyMakesTokensOfTheTextLessLikelyOnce) {
  std::vector<float> of = {2, -2, 0.5f, 4};
  const std::vector<int32_t> text = {1, 0, 1, 0};
  penalize(of, text, 2);
  EXPECT_EQ(of, (std::vector<float>{1, -4, 0.5f, 4}));
  penalize(of, text, 1);
  EXPECT_EQ(of, (std::vector<float>{1, -4, 0.5f, 4}));
  constexpr float kMost = std::numeric_limits<float>::max();
  penalize(of, text, 1e-300);
  EXPECT_EQ(of[0], kMost);
  of[1] = -std::numeric_limits<float>::infinity();
  penalize(of, text, 1e300);
  EXPECT_EQ(of[1], -std::numeric_limits<float>::infinity());
}

TEST(Sampling, NeedsALargestLogitThatIsFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(can_sample(std::vector<float>{-kInfinity, 1, 2}));
  EXPECT_FALSE(can_sample(std::vector<float>{0, kInfinity, 2}));
  EXPECT_FALSE(can_sample(std::vector<float>{-kInfinity, -kInfinity}));
  EXPECT_FALSE(can_sample(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN(), 2}));
}

}  // namespace
}  // namespace weft::api
