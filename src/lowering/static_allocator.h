// Offsets of tensors with known lifetimes in one block of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/byte_count.h"

namespace weft {

// First fit by lifetime: tensors with disjoint lifetimes share memory.
class StaticAllocator {
 public:
  int64_t place(int64_t bytes, size_t first, size_t last) {
    bytes = align_up(bytes);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Block& b : blocks_)
      if (b.first <= last && first <= b.last)
        taken.push_back({b.offset, sum_of_bytes(b.offset, b.bytes)});
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
