#include "ops/attention_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/packed.h"
#include "kernels/softmax_block.h"
#include "ops/dropout.h"
#include "ops/finite_rows.h"

namespace weft::attention {

namespace {

using kernels::kTileColumns;
using kernels::ScoreTile;

// To rows of padded(n) floats, with zeros behind them, which gemm_tile() reads without a copy.
void copy_rows(const float* x, int64_t rows, int64_t n, int64_t step, float* out) {
  for (int64_t i = 0; i < rows; ++i, out += padded(n))
    std::fill(std::copy_n(x + i * step, n, out), out + padded(n), 0.0f);
}

// Numbers of the rows of a block.
using PerRow = std::array<float, kBlockRows>;

// The computation of one head. Blocks of scores are transposed (softmax_block.h): as `width` floats
// per column, one for each row of the block.
class HeadKernel {
 public:
  HeadKernel(const Call& call, const Sizes& sizes, const Head& head, float* scratch)
      : call_(call),
        s_(sizes),
        h_(head),
        causal_((call.attrs->flags & kCausal) != 0),
        drops_(call.training && call.attrs->factor > 0),
        bounded_(head.positions || head.mask || sizes.window < sizes.rows),
        width_(sizes.block_rows()),
        row_(padded(sizes.size)),
        k_(scratch),
        v_(k_ + s_.keys * row_),
        scores_(v_ + s_.keys * row_),
        grads_(scores_ + s_.keys * width_),
        first_side_(grads_ + s_.keys * width_),
        second_side_(first_side_ + row_ * width_),
        capped_(second_side_ + row_ * width_),
        factor_(static_cast<float>(1 / std::sqrt(static_cast<double>(s_.size)))),
        cap_(static_cast<float>(call.attrs->cap)) {
    if (h_.mask) find_seen();
    if (!h_.first) return;
    copy_rows(h_.k, s_.keys, s_.size, s_.key_step, k_);
    copy_rows(h_.v, s_.keys, s_.size, s_.key_step, v_);
    if (h_.mask) clear_masked();
  }

  void forward() const {
    for (int64_t first = 0; first < s_.rows; first += width_) forward_block(first);
  }

  // Last block first: it sees all columns even under a causal mask, so that of the first head
  // writes all of dK and dV and the others add to them. If it is bounded it does not.
  void backward() const {
    const int64_t last = (s_.rows - 1) / width_ * width_;
    if (bounded_ && h_.first) clear_key_grads();
    for (int64_t first = last; first >= 0; first -= width_)
      backward_block(first, first != last || !h_.first || bounded_);
  }

 private:
  // Of a block of rows.
  struct Tile : ScoreTile {
    bool is_first = true;
  };

  int64_t rows_from(int64_t first) const { return std::min(width_, s_.rows - first); }

  void find_seen() {
    const auto is_seen = [](int32_t flag) { return flag != 0; };
    const int32_t *begin = h_.mask, *end = begin + s_.keys;
    first_seen_ = std::find_if(begin, end, is_seen) - begin;
    while (end != begin && !is_seen(end[-1])) --end;
    end_seen_ = end - begin;
  }

  // 0 times what is not a number would be none.
  void clear_masked() const {
    for (int64_t i = 0; i < s_.keys; ++i) {
      if (h_.mask[i] != 0) continue;
      std::fill_n(k_ + i * row_, row_, 0.f);
      std::fill_n(v_ + i * row_, row_, 0.f);
    }
  }

  void clear_key_grads() const {
    for (float* grad : {h_.dk, h_.dv})
      for (int64_t i = 0; grad && i < s_.keys; ++i)
        std::fill_n(grad + i * s_.key_step, s_.size, 0.f);
  }

  // Sets the first column that each row of the block sees, and returns the least of them.
  int64_t find_starts(int64_t first, int32_t* starts) const {
    int64_t least = first;
    for (int64_t row = first; row < first + rows_from(first); ++row) {
      const int64_t before = std::min(s_.window - 1, h_.positions ? h_.positions[row] : row),
                    start = row - std::min(before, row);
      starts[row - first] = static_cast<int32_t>(start);
      least = std::min(least, start);
    }
    return least;
  }

  // Calls body(tile of `data`) for the columns that the block of rows from `first` sees.
  template <typename F>
  void for_tiles_of(int64_t first, float* data, F&& body) const {
    const bool has_starts = causal_ && bounded_;
    std::array<int32_t, kBlockRows> starts{};
    const int64_t seen = has_starts ? find_starts(first, starts.data()) : first_seen_,
                  begin = seen / kTileColumns * kTileColumns,
                  end = causal_ ? first + rows_from(first) : end_seen_;
    for (int64_t c = begin; c < end; c += kTileColumns)
      body(Tile{{data + c * width_, width_, c, std::min(end, c + kTileColumns), first, causal_,
                 has_starts ? starts.data() : nullptr, h_.mask},
                c == begin});
  }

  // The same place in the other block.
  float* grads_of(const ScoreTile& tile) const { return grads_ + tile.begin * width_; }

  // Calls body(c, end, row) for parts of the tile that together contain what is seen: columns c to
  // end and the rows of the block from `row`. Under a causal mask the first group of 16 rows sees
  // what lies before first_row + 16, and each later group 16 columns more.
  template <typename F>
  static void for_column_parts(const ScoreTile& t, F&& body) {
    const int64_t all = t.causal ? std::clamp(t.first_row + 16, t.begin, t.end) : t.end;
    if (t.begin < all) body(t.begin, all, int64_t{0});
    for (int64_t c = all; c < t.end; c += 16) body(c, std::min(t.end, c + 16), c - t.first_row);
  }

  // Calls body(row, end, columns) for groups of the block's rows, which see that many columns of
  // the tile.
  template <typename F>
  void for_row_parts(const ScoreTile& t, F&& body) const {
    const int64_t rows = rows_from(t.first_row), columns = t.end - t.begin;
    if (!t.causal || t.end <= t.first_row + 16) return body(0, rows, columns);
    for (int64_t row = std::max<int64_t>(0, t.begin - t.first_row); row < rows; row += 16)
      body(row, std::min(rows, row + 16), std::min(columns, t.first_row + row + 16 - t.begin));
  }

  // The rows of a block as columns, for make_tile(); zeros in those that are missing.
  void pack_block(const float* x, int64_t rows, int64_t step, float* side) const {
    SerialTiles here;
    pack({x, step, kTransposed}, s_.size, rows, side, here);
    std::fill(side + packed_floats(s_.size, rows), side + s_.size * width_, 0.0f);
  }

  // tile = factor * x side, where x has a row per column of the tile and side a column per row.
  void make_tile(const ScoreTile& tile, const float* x, const float* side, float factor) const {
    for_column_parts(tile, [&](int64_t c, int64_t end, int64_t row) {
      gemm_tile({.m = end - c,
                 .n = width_ - row,
                 .k = s_.size,
                 .a = {x + c * row_, row_},
                 .b = {},
                 .c = tile.data + (c - tile.begin) * width_ + row,
                 .stride = width_,
                 .alpha = factor,
                 .packed_b = side + row * s_.size});
    });
  }

  // Calls body(place, count) for the floats of each column of the tile that are seen.
  template <typename F>
  void for_columns(const ScoreTile& tile, F&& body) const {
    for_column_parts(tile, [&](int64_t c, int64_t end, int64_t row) {
      for (; c < end; ++c) body((c - tile.begin) * width_ + row, width_ - row);
    });
  }

  void make_scores(const ScoreTile& tile, const float* q) const {
    make_tile(tile, k_, q, factor_);
    if (cap_ == 0) return;
    for_columns(tile, [&](int64_t at, int64_t count) {
      kernels::softcap(tile.data + at, cap_, tile.data + at, count);
    });
  }

  float* capped_of(const ScoreTile& tile) const { return capped_ + tile.begin * width_; }

  // For uncap().
  void keep_scores(const ScoreTile& tile) const {
    if (cap_ == 0) return;
    for_columns(tile, [&](int64_t at, int64_t count) {
      std::copy_n(tile.data + at, count, capped_of(tile) + at);
    });
  }

  // The gradients of capped scores become those of scores.
  void uncap(const ScoreTile& grads) const {
    if (cap_ == 0) return;
    for_columns(grads, [&](int64_t at, int64_t count) {
      float* place = grads.data + at;
      kernels::softcap_grad(capped_of(grads) + at, place, cap_, place, count);
    });
  }

  // out (+)= factor * tile^T x, a row per row of the block. `x` has a row per column of the tile.
  void add_rows(const Tile& tile, const float* x, float* out, float factor) const {
    for_row_parts(tile, [&](int64_t row, int64_t end, int64_t columns) {
      gemm_tile({end - row,
                 row_,
                 columns,
                 {tile.data + row, width_, kTransposed},
                 {x + tile.begin * row_, row_},
                 out + row * row_,
                 row_,
                 factor,
                 tile.is_first ? 0.f : 1.f});
    });
  }

  // After add_rows() of all tiles.
  void correct(int64_t first, float* data, const float* x, float* out, float factor) const {
    if (!causal_) return;
    correct_rows(out, rows_from(first), row_, [&](int64_t i, float* row) {
      for_tiles_of(first, data, [&](const ScoreTile& tile) {
        const int64_t begin = std::max<int64_t>(tile.begin, tile.starts ? tile.starts[i] : 0),
                      end = std::min(tile.end, first + i + 1);
        if (begin >= end) return;
        gemm_tile({1,
                   row_,
                   end - begin,
                   {tile.data + (begin - tile.begin) * width_ + i, width_, kTransposed},
                   {x + begin * row_, row_},
                   row,
                   row_,
                   factor,
                   1});
      });
    });
  }

  // Whether columns take from `side` one by one, each only from the rows that see it.
  bool one_by_one(const float* side, int64_t rows) const {
    return causal_ && !finite(side, rows * row_);
  }

  // Calls body(c, end, row, end of the rows) for each column of the tile, with the rows that see
  // it.
  template <typename F>
  void for_each_column(const ScoreTile& t, F&& body) const {
    for (int64_t c = t.begin; c < t.end; ++c) {
      const int64_t row = std::max<int64_t>(0, c - t.first_row);
      int64_t end = rows_from(t.first_row);
      while (end > row && t.starts && t.starts[end - 1] > c) --end;
      if (row < end) body(c, c + 1, row, end);
    }
  }

  // out (+)= factor * tile side, a row per column of the tile. `side` has a row per row of the
  // block.
  void add_columns(const ScoreTile& tile, const float* side, bool by_column, float* out,
                   float factor, bool add) const {
    const auto add_part = [&](int64_t c, int64_t end, int64_t row, int64_t end_row) {
      gemm_tile({end - c,
                 s_.size,
                 end_row - row,
                 {tile.data + (c - tile.begin) * width_ + row, width_},
                 {side + row * row_, row_},
                 out + c * s_.key_step,
                 s_.key_step,
                 factor,
                 add ? 1.f : 0.f});
    };
    if (by_column) return for_each_column(tile, add_part);
    for_column_parts(tile, [&](int64_t c, int64_t end, int64_t row) {
      add_part(c, end, row, rows_from(tile.first_row));
    });
  }

  void forward_block(int64_t first) const {
    const int64_t rows = rows_from(first);
    float *q = first_side_, *sum = second_side_;
    PerRow top, sums{}, inverse;
    top.fill(-INFINITY);
    pack_block(h_.q + first * s_.step, rows, s_.step, q);
    for_tiles_of(first, scores_, [&](const ScoreTile& tile) {
      make_scores(tile, q);
      kernels::raise_tops(tile, top.data());
    });
    for_tiles_of(first, scores_, [&](const Tile& tile) {
      kernels::exponentials(tile, top.data(), sums.data());
      drop(tile);
      add_rows(tile, v_, sum, 1);
    });
    correct(first, scores_, v_, sum, 1);
    for (int64_t i = 0; i < rows; ++i) inverse[i] = 1 / sums[i];
    std::copy_n(top.data(), rows, h_.top + first);
    std::copy_n(inverse.data(), rows, h_.inverse + first);
    float* out = call_.out.f32() + h_.offset_out + first * s_.width;
    for (int64_t i = 0; i < rows; ++i)
      kernels::scale(sum + i * row_, inverse[i], out + i * s_.width, s_.size);
  }

  void backward_block(int64_t first, bool add) const {
    const int64_t rows = rows_from(first);
    const float *q = h_.q + first * s_.step,
                *dout = call_.dout.f32() + h_.offset_out + first * s_.width;
    const bool scores_need = h_.dq || h_.dk;
    make_probabilities(first, q);
    if (scores_need) make_score_grads(first, dout);
    if (h_.dq) {
      float* dq = second_side_;
      for_tiles_of(first, grads_, [&](const Tile& ds) { add_rows(ds, k_, dq, factor_); });
      correct(first, grads_, k_, dq, factor_);
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(dq + i * row_, s_.size, h_.dq + (first + i) * s_.step);
    }
    if (h_.dk) {
      copy_rows(q, rows, s_.size, s_.step, first_side_);
      const bool by_column = one_by_one(first_side_, rows);
      for_tiles_of(first, grads_, [&](const ScoreTile& ds) {
        add_columns(ds, first_side_, by_column, h_.dk, factor_, add);
      });
    }
    if (h_.dv) {
      copy_rows(dout, rows, s_.size, s_.width, first_side_);
      const bool by_column = one_by_one(first_side_, rows);
      for_tiles_of(first, scores_, [&](const ScoreTile& p) {
        drop(p);
        add_columns(p, first_side_, by_column, h_.dv, 1, add);
      });
    }
  }

  void make_probabilities(int64_t first, const float* q) const {
    const int64_t rows = rows_from(first);
    PerRow top{}, inverse{};
    std::copy_n(h_.top + first, rows, top.data());
    std::copy_n(h_.inverse + first, rows, inverse.data());
    pack_block(q, rows, s_.step, first_side_);
    for_tiles_of(first, scores_, [&](const ScoreTile& p) {
      make_scores(p, first_side_);
      keep_scores(p);
      kernels::probabilities(p, top.data(), inverse.data());
    });
  }

  void make_score_grads(int64_t first, const float* dout) const {
    PerRow most{}, sums{}, mean{};  // first the pivot, then the mean
    pack_block(dout, rows_from(first), s_.width, first_side_);
    const auto p = [&](const ScoreTile& tile) { return scores_ + tile.begin * width_; };
    for_tiles_of(first, grads_, [&](const ScoreTile& tile) {
      make_tile(tile, v_, first_side_, 1);
      drop(tile);
      kernels::raise_pivots(tile, p(tile), most.data(), mean.data());
    });
    for_tiles_of(first, grads_, [&](const ScoreTile& tile) {
      kernels::add_deviations(tile, p(tile), mean.data(), sums.data());
    });
    for (int64_t i = 0; i < width_; ++i) mean[i] += sums[i];
    for_tiles_of(first, grads_, [&](const ScoreTile& tile) {
      kernels::score_grads(tile, p(tile), mean.data());
      uncap(tile);
    });
  }

  // The order of the stream: heads, in a head columns, in a column rows.
  void drop(const ScoreTile& tile) const {
    if (!drops_) return;
    const Stream stream = dropout_stream(call_.key);
    const int64_t column = padded(s_.rows);  // rows of the stream per column
    for_columns(tile, [&](int64_t at, int64_t count) {
      const int64_t c = tile.begin + at / width_, row = tile.first_row + at % width_;
      float* place = tile.data + at;
      kernels::dropout(stream, call_.attrs->factor, (h_.index * s_.keys + c) * column + row, place,
                       std::min(count, column - row), place);
    });
  }

  const Call& call_;
  const Sizes& s_;
  const Head& h_;
  bool causal_, drops_;
  bool bounded_;         // rows do not see all columns, or all before them
  int64_t width_, row_;  // floats per column of a block of scores, and per row in scratch
  float *k_, *v_;  // the head's keys and values, dense: their rows would share sets of a cache
  float *scores_, *grads_, *first_side_, *second_side_;
  float* capped_;  // a block of scores; only with a cap
  float factor_, cap_;
  int64_t first_seen_ = 0, end_seen_ = s_.keys;  // of columns, without a causal mask
};

}  // namespace

void attend(const Call& call, const Sizes& sizes, const Head& head, float* scratch) {
  HeadKernel(call, sizes, head, scratch).forward();
}

void attention_grads(const Call& call, const Sizes& sizes, const Head& head, float* scratch) {
  HeadKernel(call, sizes, head, scratch).backward();
}

}  // namespace weft::attention
