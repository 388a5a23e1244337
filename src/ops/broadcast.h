// Broadcasting: an operand with 1 in place of a dimension of the result is repeated along that
// dimension, and its gradient is the sum over the repetitions. A parameter may also lack dimensions
// in front. Samples, dimension 0 of a batched operand, are never repeated.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/ranges.h"
#include "ops/op.h"

namespace weft {

// The shape of the result. Errors name the port.
Result<Shape> broadcast_shape(std::span<const Operand> in, std::span<const Desc> weights);

// The result as rows of `inner` elements, and where the operands of a row are. Adjacent dimensions
// that every operand has or every operand repeats are one.
class Broadcast {
 public:
  static constexpr size_t kMostOperands = 17;
  // Elements of a row that a callback gets at most, if an operand is one element for a whole row.
  static constexpr int64_t kStrip = 1024;

  Broadcast(const Shape& out, std::span<const View> in, std::span<const View> weights);

  // A part of a row.
  struct Part {
    int64_t row, first, count;
  };

  int64_t out_offset(const Part& part) const { return part.row * inner() + part.first; }
  // The elements of an operand for a part; a repeated one is written to `repeated`.
  const float* elements(size_t operand, const float* data, const Part& part,
                        float* repeated) const {
    const float* x = data + offset(operand, part);
    if (inner_stride(operand) != 0) return x;
    std::fill_n(repeated, part.count, *x);
    return repeated;
  }

  // body(part) for all rows in parts.
  template <typename F>
  void for_parts(Tiles& tiles, F&& body) const {
    const int64_t strip = repeats_inner_ ? kStrip : kTileElements;
    const int64_t strips = (inner() + strip - 1) / strip;
    for_ranges(tiles, rows() * strips, tile_rows(std::min(inner(), strip)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   body(part(i / strips, i % strips * strip, strip));
               });
  }

  // Writes the sums of `term` over what an operand repeats to `to`, or adds them. term(part, out)
  // writes the elements of a part.
  template <typename F>
  void sum_repeated(Tiles& tiles, size_t operand, float* to, bool add, F&& term) const {
    if (!add && !repeats(operand)) {
      for_parts(tiles, [&](const Part& p) { term(p, to + offset(operand, p)); });
      return;
    }
    const bool along_row = inner_stride(operand) == 0;
    if (rows() * inner() == 0) {  // a sum of no terms
      if (!add) std::fill_n(to, count(operand, false) * (along_row ? 1 : inner()), 0.0f);
    } else if (along_row) {
      sum_rows(tiles, operand, to, add, term);
    } else {
      sum_columns(tiles, operand, to, add, term);
    }
  }

 private:
  static constexpr int64_t kSumStrip = 256;

  int64_t strips_of_row() const { return (inner() + kSumStrip - 1) / kSumStrip; }

  // For an operand that repeats one element along each row: the terms are strips of rows.
  template <typename F>
  void sum_rows(Tiles& tiles, size_t operand, float* to, bool add, F&& term) const {
    const int64_t strips = strips_of_row();
    const int64_t terms = count(operand, true) * strips;
    for_ranges(tiles, count(operand, false), tile_rows(terms * std::min(inner(), kSumStrip)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t kept = row_at(operand, false, i);
                   float sum = 0;
                   add_terms(0, terms, 1, &sum, [&](int64_t t, float* to_sum) {
                     const int64_t row = kept + row_at(operand, true, t / strips);
                     add_sum(part(row, t % strips * kSumStrip, kSumStrip), term, to_sum);
                   });
                   store(&sum, 1, to + offset(operand, part(kept, 0, 1)), add);
                 }
               });
  }

  // For an operand with the elements of a row: the terms are the same strip of different rows.
  template <typename F>
  void sum_columns(Tiles& tiles, size_t operand, float* to, bool add, F&& term) const {
    const int64_t strips = strips_of_row();
    const int64_t terms = count(operand, true);
    for_ranges(tiles, count(operand, false) * strips,
               tile_rows(terms * std::min(inner(), kSumStrip)), [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t kept = row_at(operand, false, i / strips);
                   const Part own = part(kept, i % strips * kSumStrip, kSumStrip);
                   float sums[kSumStrip] = {};
                   add_terms(0, terms, own.count, sums, [&](int64_t t, float* to_sums) {
                     const int64_t row = kept + row_at(operand, true, t);
                     add_part({row, own.first, own.count}, term, to_sums);
                   });
                   store(sums, own.count, to + offset(operand, own), add);
                 }
               });
  }

  static void store(const float* sums, int64_t n, float* to, bool add) {
    if (add)
      kernels::add(to, sums, to, n);
    else
      std::copy_n(sums, n, to);
  }

  // Adds the terms from `begin` to `end` - 1 to `n` sums, which are 0. More than 32 terms are those
  // of two halves, so that the error grows slowly.
  template <typename F>
  static void add_terms(int64_t begin, int64_t end, int64_t n, float* sums, const F& add_term) {
    if (end - begin <= 32) {
      for (int64_t t = begin; t < end; ++t) add_term(t, sums);
      return;
    }
    const int64_t middle = begin + (end - begin) / 2;
    float others[kSumStrip] = {};
    add_terms(begin, middle, n, sums, add_term);
    add_terms(middle, end, n, others, add_term);
    kernels::add(sums, others, sums, n);
  }

  template <typename F>
  static void add_part(const Part& part, F&& term, float* sums) {
    float terms[kSumStrip];
    term(part, terms);
    kernels::add(sums, terms, sums, part.count);
  }

  template <typename F>
  static void add_sum(const Part& part, F&& term, float* sum) {
    float terms[kSumStrip], of_part = 0;
    term(part, terms);
    kernels::row_sums(terms, 1, part.count, &of_part);
    *sum += of_part;
  }

  Part part(int64_t row, int64_t first, int64_t most) const {
    return {row, first, std::min(most, inner() - first)};
  }
  int64_t inner() const { return extent_[static_cast<size_t>(rank_ - 1)]; }
  int64_t rows() const;
  int64_t inner_stride(size_t operand) const {
    return stride_[operand][static_cast<size_t>(rank_ - 1)];
  }
  int64_t offset(size_t operand, const Part& part) const;
  bool repeats(size_t operand) const;
  // The number of combinations of the rows' dimensions that an operand repeats, or has; and the row
  // of one of them, the other dimensions at 0.
  int64_t count(size_t operand, bool repeated) const;
  int64_t row_at(size_t operand, bool repeated, int64_t index) const;

  int rank_ = 0;  // at least 1
  size_t operands_;
  bool repeats_inner_ = false;
  std::array<int64_t, kMaxRank> extent_{};
  std::array<std::array<int64_t, kMaxRank>, kMostOperands> stride_{};
};

}  // namespace weft
