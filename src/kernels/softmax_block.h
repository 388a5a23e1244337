// What attention does to a block of rows of its scores. Serial; attention gives each of its tiles blocks of its own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::kernels {

// Row i lies at data + i * stride and sees its first visible(i) of `columns`; under a causal mask each row sees one more.
struct ScoreBlock {
  float* data = nullptr;
  int64_t stride = 0, rows = 0, columns = 0;
  bool causal = false;
  int64_t first = 0;  // the position of row 0, when causal

  float* row(int64_t i) const { return data + i * stride; }
  int64_t visible(int64_t i) const { return causal ? std::min(columns, first + i + 1) : columns; }
};

// Scores become exp(score - the row's maximum), and 0 where not visible; inverse[i] = 1 / their sum, lse[i] = log of the sum of
// exp(score).
void softmax_block(const ScoreBlock& scores, float* inverse, float* lse);

// Scores become probabilities exp(score - lse[i]), and 0 where not visible.
void probability_block(const ScoreBlock& scores, const float* lse);

// Gradients of the probabilities become those of the scores: p * (d - delta[i]).
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities, const float* delta);

// x[i] * y[i], summed.
float dot(const float* x, const float* y, int64_t n);

}  // namespace weft::kernels
