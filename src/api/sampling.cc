#include "api/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "base/text.h"

namespace weft::api {

namespace {

using Token = Candidates::Token;

// SplitMix64's finalizer (Steele et al. 2014): each bit of the result depends on every bit of x.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1).
double uniform(uint64_t seed, uint64_t prompt, uint64_t position) {
  return static_cast<double>(mix(mix(mix(seed) ^ prompt) ^ position) >> 11) * 0x1p-53;
}

// If weights are equal, the lower token comes first, so that the order is unique.
bool likelier(const Token& a, const Token& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

double sum_of(std::span<const Token> tokens) {
  double sum = 0;
  for (const Token& token : tokens) sum += token.weight;
  return sum;
}

// Keeps the most likely tokens, in the order of their weights.
void keep_most(std::vector<Token>& tokens, size_t count) {
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count),
                    tokens.end(), likelier);
  tokens.resize(count);
}

// Keeps the fewest most likely tokens whose share of all weights is at least top_p. Few tokens are
// likely as a rule, so that not all are sorted.
void keep_share(std::vector<Token>& tokens, double top_p) {
  const double wanted = top_p * sum_of(tokens);
  double sum = 0;
  for (size_t sorted = 0, next = 64; sorted < tokens.size(); next *= 8) {
    const size_t end = std::min(next, tokens.size());
    const auto at = [&](size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
    std::partial_sort(at(sorted), at(end), tokens.end(), likelier);
    for (; sorted < end; ++sorted) {
      sum += tokens[sorted].weight;
      if (sum < wanted) continue;
      tokens.resize(sorted + 1);
      return;
    }
  }
}

int32_t most_likely(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

Status check_sampling(const Sampling& c) {
  const auto field = [](const char* name, double value, bool good, const char* expected) {
    return good ? Status()
                : Status(Code::invalid, cat("weft_sequence_config.", name, " is ", value,
                                            ", expected ", expected));
  };
  const auto share = [](double x) { return x >= 0 && x <= 1; };
  WEFT_TRY(field("temperature", c.temperature, c.temperature >= 0 && std::isfinite(c.temperature),
                 "a finite number from 0"));
  WEFT_TRY(field("top_p", c.top_p, share(c.top_p), "a number from 0 to 1"));
  WEFT_TRY(field("min_p", c.min_p, share(c.min_p), "a number from 0 to 1"));
  return field("repetition_penalty", c.repetition_penalty,
               c.repetition_penalty > 0 && std::isfinite(c.repetition_penalty),
               "a finite number above 0");
}

void penalize(std::span<float> logits, std::span<const int32_t> text, double penalty) {
  if (penalty == 1) return;
  std::vector<int32_t> seen(text.begin(), text.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int32_t token : seen) {
    constexpr double kMost = std::numeric_limits<float>::max();
    float& logit = logits[static_cast<size_t>(token)];
    const double x = logit;
    if (std::isfinite(x))
      logit = static_cast<float>(std::clamp(x > 0 ? x / penalty : x * penalty, -kMost, kMost));
  }
}

bool can_sample(std::span<const float> logits) {
  const auto is_nan = [](float x) { return std::isnan(x); };
  return std::none_of(logits.begin(), logits.end(), is_nan) &&
         std::isfinite(logits[static_cast<size_t>(most_likely(logits))]);
}

int32_t sample(const Sampling& sampling, std::span<const float> logits, uint64_t prompt,
               uint64_t position, Candidates& work) {
  const int32_t first = most_likely(logits);
  if (sampling.temperature <= 0) return first;
  const double most = static_cast<double>(logits[static_cast<size_t>(first)]);
  std::vector<Token>& tokens = work.tokens;
  tokens.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((static_cast<double>(logits[i]) - most) / sampling.temperature);
    if (weight > 0) tokens.push_back({static_cast<int32_t>(i), weight});
  }
  if (sampling.top_k > 0 && sampling.top_k < tokens.size()) keep_most(tokens, sampling.top_k);
  if (sampling.top_p < 1) keep_share(tokens, sampling.top_p);
  if (sampling.min_p > 0)
    std::erase_if(tokens, [&](const Token& token) { return token.weight < sampling.min_p; });
  double left = uniform(sampling.seed, prompt, position) * sum_of(tokens);
  for (const Token& token : tokens)
    if ((left -= token.weight) < 0) return token.id;
  return tokens.back().id;
}

}  // namespace weft::api
