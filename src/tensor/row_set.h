// A set of rows of a matrix.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace weft {

class RowSet {
 public:
  // All rows of a matrix with so many.
  explicit RowSet(int64_t rows)
      : rows_(rows), words_(static_cast<size_t>((rows + kBits - 1) / kBits)) {
    insert_all();
  }

  void insert_all() { std::fill(words_.begin(), words_.end(), ~uint64_t{0}); }
  void clear() { std::fill(words_.begin(), words_.end(), uint64_t{0}); }
  void insert(int64_t row) { words_[static_cast<size_t>(row / kBits)] |= bit(row); }
  // `other`: of the same matrix.
  void insert(const RowSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

  // Calls visit(row) for those from first to end - 1, in ascending order.
  template <typename Visit>
  void each(int64_t first, int64_t end, Visit&& visit) const {
    for (int64_t row = next(first); row < std::min(end, rows_); row = next(row + 1)) visit(row);
  }

 private:
  static constexpr int64_t kBits = 64;
  static uint64_t bit(int64_t row) { return uint64_t{1} << (row % kBits); }

  // The first one from `row` on; rows_ or more: there is none.
  int64_t next(int64_t row) const {
    if (row >= rows_) return rows_;
    auto word = static_cast<size_t>(row / kBits);
    uint64_t left = words_[word] & ~(bit(row) - 1);
    while (left == 0) {
      if (++word == words_.size()) return rows_;
      left = words_[word];
    }
    return std::min(rows_, static_cast<int64_t>(word) * kBits + std::countr_zero(left));
  }

  int64_t rows_;
  std::vector<uint64_t> words_;
};

}  // namespace weft
