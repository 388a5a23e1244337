// The places for sequences in the caches of a decoder: each replica has a cache. A free place keeps
// the tokens of its last sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::api {

struct CachePlace {
  int32_t replica, number;
};

// How many of these tokens a sequence begins with, without its last one, whose logits it needs.
size_t common_beginning(std::span<const int32_t> tokens, std::span<const int32_t> sequence);

class CachePlaces {
 public:
  CachePlaces(int32_t replicas, int32_t each);

  bool empty() const { return free_.empty(); }
  size_t size() const { return free_.size(); }  // free places
  int32_t each() const { return each_; }        // places of a replica, free or not
  // A place for these tokens, and how many of them it has already, without the last one. Prefers
  // the place that has the most of them, then the replica with the most free places. Tokens that
  // were computed with other weights do not count. Not if empty().
  struct Found {
    CachePlace place;
    size_t cached;
  };
  Found take(std::span<const int32_t> tokens, uint64_t weights);
  // The free place of the replica that has the most of these tokens; with 0 of them, no place.
  Found most_common(int32_t replica, std::span<const int32_t> tokens, uint64_t weights) const;
  // `tokens`: those that the place has, computed with these weights.
  void give_back(CachePlace place, std::vector<int32_t> tokens, uint64_t weights);

 private:
  struct Free {
    CachePlace place;
    std::vector<int32_t> tokens;
    uint64_t weights;
  };
  size_t common(const Free& free, std::span<const int32_t> tokens, uint64_t weights) const;
  int32_t& free_in(const CachePlace& place) { return free_in_[static_cast<size_t>(place.replica)]; }

  const int32_t each_;
  std::vector<Free> free_;        // the longest first
  std::vector<int32_t> free_in_;  // their number per replica
};

}  // namespace weft::api
