// Softmax of attention scores and its gradient, in tiles of some rows and columns. A tile is stored
// transposed, so that a row is a lane of a vector and sums along it need no shuffles. Sums along a
// row are those of tiles, which begin at multiples of kTileColumns, in ascending order: the error
// grows slowly, and columns that are not seen affect no bit. Serial.
#pragma once

#include <cstdint>

namespace weft::kernels {

constexpr int64_t kTileColumns = 64;

// Row `first_row` + i and column c of the matrix of scores are at data[(c - begin) * width + i] for
// begin <= c < end. Width and `first_row` are multiples of 16; `begin` is one of kTileColumns, and
// there are at most as many columns. Rows of padding contain finite values. With a causal mask a
// row sees columns up to its own number, otherwise all; with `starts` it also sees none before the
// one that its element contains, with `seen` only columns c where seen[c] is not 0. Rows are taken
// in groups of 16; what lies behind all that a group sees is neither read nor written.
struct ScoreTile {
  float* data = nullptr;
  int64_t width = 0;
  int64_t begin = 0, end = 0;
  int64_t first_row = 0;
  bool causal = false;
  const int32_t* starts = nullptr;  // `width` columns; only with a causal mask
  const int32_t* seen = nullptr;    // `end` flags; only without a causal mask
};

// Per row, arrays of `width` floats.

// top becomes the maximum of itself and of the scores.
void raise_tops(const ScoreTile& scores, float* top);

// Scores become exp(score - top), and 0 where not seen. Their sums are added to `sums`.
void exponentials(const ScoreTile& scores, const float* top, float* sums);

// Scores become the probabilities exp(score - top) * inverse, and 0 where not seen.
void probabilities(const ScoreTile& scores, const float* top, const float* inverse);

// The gradient of a score is p * (d - mean), where d is that of the probability p, and the mean the
// row's sum of p d. The mean is taken as that of p (d - pivot) + pivot, since probabilities need
// not add to 1 exactly. The pivot is the gradient of the most probable column: the only one that
// counts where that has probability 1. So gradients are exactly 0 where they are 0 by mathematics:
// in a row that sees one column, or gives one all its weight, or has the same d for all.
//
// `p`: the probabilities of the tile `grads`, at the same places.
void raise_pivots(const ScoreTile& grads, const float* p, float* most, float* pivot);
void add_deviations(const ScoreTile& grads, const float* p, const float* pivot, float* sums);
void score_grads(const ScoreTile& grads, const float* p, const float* mean);

}  // namespace weft::kernels
