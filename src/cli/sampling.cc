#include "cli/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::cli {

namespace {

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

}  // namespace

int32_t sample(const Sampling& sampling, std::span<const float> logits, uint64_t prompt,
               uint64_t position, std::vector<int32_t>& order) {
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // If logits are equal, the lower token comes first, so that the order is unique.
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (sampling.temperature <= 0) return *std::min_element(order.begin(), order.end(), likelier);
  const size_t k =
      sampling.top_k == 0 ? order.size() : std::min<size_t>(sampling.top_k, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    likelier);
  const double most = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  const auto weight = [&](int32_t token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - most) /
                    sampling.temperature);
  };
  double sum = 0;
  for (size_t i = 0; i < k; ++i) sum += weight(order[i]);
  double left = uniform(sampling.seed, prompt, position) * sum;
  for (size_t i = 0; i < k; ++i)
    if ((left -= weight(order[i])) < 0) return order[i];
  return order[k - 1];
}

}  // namespace weft::cli
