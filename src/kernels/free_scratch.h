// Deals out parts of scratch memory to what runs at the same time.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace weft {

constexpr int64_t kMostParts = 16;

// Which part a user gets does not affect results. The first free one is the one that is most likely
// in a cache. No more users than parts may exist at the same time.
class FreeScratch {
 public:
  explicit FreeScratch(int64_t parts) : free_((uint32_t{1} << parts) - 1) {}

  int take() {
    uint32_t free = free_.load(std::memory_order_relaxed);
    while (!free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire,
                                        std::memory_order_relaxed)) {}
    return std::countr_zero(free);
  }
  void give_back(int part) { free_.fetch_or(uint32_t{1} << part, std::memory_order_release); }

 private:
  std::atomic<uint32_t> free_;  // a bit per part
};

}  // namespace weft
