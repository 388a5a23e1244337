#include "api/cache_places.h"

#include <algorithm>
#include <utility>

namespace weft::api {

size_t common_beginning(std::span<const int32_t> tokens, std::span<const int32_t> sequence) {
  const auto some = tokens.first(std::min(tokens.size(), sequence.size() - 1));
  const auto end = std::mismatch(some.begin(), some.end(), sequence.begin()).first;
  return static_cast<size_t>(end - some.begin());
}

CachePlaces::CachePlaces(int32_t replicas, int32_t each)
    : each_(each), free_in_(static_cast<size_t>(replicas), each) {
  for (int32_t number = 0; number < each; ++number)
    for (int32_t replica = 0; replica < replicas; ++replica)
      free_.push_back({.place = {replica, number}, .tokens = {}, .weights = 0});
}

size_t CachePlaces::common(const Free& free, std::span<const int32_t> tokens,
                           uint64_t weights) const {
  return free.weights == weights ? common_beginning(free.tokens, tokens) : 0;
}

CachePlaces::Found CachePlaces::take(std::span<const int32_t> tokens, uint64_t weights) {
  const auto merit = [&](const Free& free) {
    return std::pair(common(free, tokens, weights), free_in(free.place));
  };
  const auto best = std::max_element(free_.begin(), free_.end(), [&](const Free& a, const Free& b) {
    return merit(a) < merit(b);
  });
  const Found out{best->place, common(*best, tokens, weights)};
  free_.erase(best);
  --free_in(out.place);
  return out;
}

CachePlaces::Found CachePlaces::most_common(int32_t replica, std::span<const int32_t> tokens,
                                            uint64_t weights) const {
  Found out{{replica, -1}, 0};
  for (const Free& free : free_) {
    if (free.place.replica != replica) continue;
    const size_t cached = common(free, tokens, weights);
    if (cached > out.cached) out = {free.place, cached};
  }
  return out;
}

void CachePlaces::give_back(CachePlace place, std::vector<int32_t> tokens, uint64_t weights) {
  free_.push_back({place, std::move(tokens), weights});
  ++free_in(place);
}

}  // namespace weft::api
