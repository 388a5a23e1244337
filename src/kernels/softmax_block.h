// What attention does to a block of rows of its scores. The block lies transposed, so that a row is a lane of a vector and sums
// along it need no shuffles. Serial; attention gives each of its tiles blocks of its own.
#pragma once

#include <cstdint>

namespace weft::kernels {

// Row i, column c lies at data[c * width + i]. Width is a multiple of 16; rows of padding hold what is finite. Under a causal
// mask row i sees columns up to first + i, otherwise all.
struct ScoreBlock {
  float* data = nullptr;
  int64_t width = 0, columns = 0;
  bool causal = false;
  int64_t first = 0;
};

// Scores become exp(score - the row's maximum), and 0 where not seen; inverse[i] = 1 / their sum, lse[i] = log of the sum of
// exp(score). Both have `width` elements.
void softmax_block(const ScoreBlock& scores, float* inverse, float* lse);

// Scores become probabilities exp(score - lse[i]), and 0 where not seen.
void probability_block(const ScoreBlock& scores, const float* lse);

// Gradients of the probabilities become those of the scores: p * (d - delta[i]).
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities, const float* delta);

// x[i] * y[i], summed.
float dot(const float* x, const float* y, int64_t n);

}  // namespace weft::kernels
