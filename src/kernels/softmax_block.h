// Softmax of a block of rows of attention scores. The block is stored transposed, so that a row is
// a lane of a vector and sums along it need no shuffles. Serial; each tile of attention has its own
// blocks.
#pragma once

#include <cstdint>

namespace weft::kernels {

// Row i, column c is at data[c * width + i]. Width is a multiple of 16; rows of padding contain
// finite values. With a causal mask row i sees columns up to first + i, otherwise all.
struct ScoreBlock {
  float* data = nullptr;
  int64_t width = 0, columns = 0;
  bool causal = false;
  int64_t first = 0;
};

// Scores become exp(score - top[i]), and 0 where not seen; top[i] is the row's maximum, inverse[i]
// = 1 / their sum. Both have `width` elements.
void softmax_block(const ScoreBlock& scores, float* top, float* inverse);

// Scores become the probabilities of that softmax: exp(score - top[i]) inverse[i], and 0 where not
// seen.
void probability_block(const ScoreBlock& scores, const float* top, const float* inverse);

// Gradients of the probabilities become those of the scores: p * (d - the row's sum of p d).
// Exactly 0 where that is 0 by mathematics: a row that sees one column, or gives one all its
// weight, or has the same d for all.
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities);

}  // namespace weft::kernels
