#include "api/cache_places.h"

#include <algorithm>
#include <utility>

namespace weft::api {

CachePlaces::CachePlaces(int32_t replicas, int32_t each)
    : free_in_(static_cast<size_t>(replicas), each) {
  for (int32_t number = 0; number < each; ++number)
    for (int32_t replica = 0; replica < replicas; ++replica)
      free_.push_back({.place = {replica, number}, .tokens = {}, .weights = 0});
}

size_t CachePlaces::common(const Free& free, std::span<const int32_t> tokens,
                           uint64_t weights) const {
  if (free.weights != weights) return 0;
  const auto some = tokens.first(std::min(free.tokens.size(), tokens.size() - 1));
  const auto end = std::mismatch(some.begin(), some.end(), free.tokens.begin()).first;
  return static_cast<size_t>(end - some.begin());
}

CachePlaces::Taken CachePlaces::take(std::span<const int32_t> tokens, uint64_t weights) {
  const auto merit = [&](const Free& free) {
    return std::pair(common(free, tokens, weights), free_in(free.place));
  };
  const auto best = std::max_element(free_.begin(), free_.end(), [&](const Free& a, const Free& b) {
    return merit(a) < merit(b);
  });
  const Taken out{best->place, common(*best, tokens, weights)};
  free_.erase(best);
  --free_in(out.place);
  return out;
}

void CachePlaces::give_back(CachePlace place, std::vector<int32_t> tokens, uint64_t weights) {
  free_.push_back({place, std::move(tokens), weights});
  ++free_in(place);
}

}  // namespace weft::api
