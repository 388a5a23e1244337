// Softmax of single rows of scores. The arithmetic is that of softmax_block.h, so that a token has
// the same bits in a block and in a row of its own.
#pragma once

#include <cstdint>

namespace weft::kernels {

// Scores, of columns from `first` on, become exp(score - maximum). The result is their sum.
float exponentials_of_row(float* scores, int64_t first, int64_t n);

}  // namespace weft::kernels
