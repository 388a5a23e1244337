// Memory of tensors whose lifetimes are known, in one area.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/shape.h"

namespace weft {

// The most that a plan places on a rank.
constexpr int64_t kMostBytes = int64_t{1} << 46;
// Sizes and counts are the caller's. What they come to stops here instead of wrapping round, and is refused where it is known of which rank.
constexpr int64_t kEndless = int64_t{1} << 61;

constexpr int64_t kAlign = 64;
constexpr int64_t align_up(int64_t bytes) { return (std::min(bytes, kEndless) + kAlign - 1) / kAlign * kAlign; }
constexpr int64_t sum_of_bytes(int64_t a, int64_t b) { return std::min(std::min(a, kEndless) + std::min(b, kEndless), kEndless); }
constexpr int64_t bytes_of_many(int64_t bytes, int64_t count) {
  int64_t out = 0;
  return __builtin_mul_overflow(bytes, count, &out) ? kEndless : std::min(out, kEndless);
}

inline int64_t padded_bytes(const Desc& desc) { return align_up(static_cast<int64_t>(desc.bytes())); }

// First fit by lifetime: bytes that live from one call to another share one area.
class Packer {
 public:
  int64_t place(int64_t bytes, size_t first, size_t last) {
    bytes = align_up(bytes);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Block& b : blocks_)
      if (b.first <= last && first <= b.last) taken.push_back({b.offset, sum_of_bytes(b.offset, b.bytes)});
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (auto [begin, end] : taken) {
      if (at + bytes <= begin) break;
      at = std::max(at, end);
    }
    blocks_.push_back({at, bytes, first, last});
    size_ = std::max(size_, sum_of_bytes(at, bytes));
    return at;
  }
  int64_t size() const { return size_; }

 private:
  struct Block {
    int64_t offset, bytes;
    size_t first, last;
  };
  std::vector<Block> blocks_;
  int64_t size_ = 0;
};

}  // namespace weft
