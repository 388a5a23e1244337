// Offsets of tensors with known lifetimes in one block of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/byte_count.h"

namespace weft {

// First fit by lifetime: tensors with disjoint lifetimes share memory.
class StaticAllocator {
 public:
  int64_t place(int64_t bytes, size_t first, size_t last) {
    bytes = align_up(bytes);
    int64_t at = 0;
    for (const Block& b : blocks_) {
      if (b.first > last || first > b.last) continue;
      if (at + bytes <= b.offset) break;
      at = std::max(at, sum_of_bytes(b.offset, b.bytes));
    }
    const auto behind = std::partition_point(blocks_.begin(), blocks_.end(),
                                             [at](const Block& b) { return b.offset <= at; });
    blocks_.insert(behind, {at, bytes, first, last});
    size_ = std::max(size_, sum_of_bytes(at, bytes));
    return at;
  }
  int64_t size() const { return size_; }

 private:
  struct Block {
    int64_t offset, bytes;
    size_t first, last;
  };
  std::vector<Block> blocks_;  // ascending by offset
  int64_t size_ = 0;
};

}  // namespace weft
