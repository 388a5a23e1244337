// Products of blocks too small for BLIS to pack, such as attention's of about 64 on each side.
// Serial.
#pragma once

#include <cstdint>

namespace weft::kernels {

// C[m,n] = factor * A[m,k] B[k,n], or that added to C. Element (i, p) of A lies at a + i * a_row +
// p * a_column, element (p, j) of B at b + p * b_row + j * b_column; rows of C are dense. Sums over
// p run in blocks of 64, ascending.
struct BlockProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_column = 1;
  const float* b = nullptr;
  int64_t b_row = 0, b_column = 1;
  float* c = nullptr;
  int64_t c_row = 0;
  float factor = 1;
  bool add = false;
};

void block_product(const BlockProduct& product);

// out[j * width + i] = x[i * row + j] for i < rows, j < columns; zeros for i up to width.
void transpose_block(const float* x, int64_t rows, int64_t columns, int64_t row, float* out,
                     int64_t width);

}  // namespace weft::kernels
