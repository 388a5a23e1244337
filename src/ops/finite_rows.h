// Rows of attention whose sums are not finite, though what they see may be: 0 times what is not
// finite is not 0.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/columns.h"

namespace weft::attention {

// Whether n numbers and their sums are finite.
inline bool finite(const float* x, int64_t n) {
  constexpr int64_t kSums = 64;
  std::array<float, kSums> sums{};
  kernels::add_column_sums(x, n / kSums, kSums, kSums, sums.data());
  kernels::add_column_sums(x + n / kSums * kSums, 1, n % kSums, kSums, sums.data());
  return std::all_of(sums.begin(), sums.end(), [](float sum) { return std::isfinite(sum); });
}

// After a product over all that any of the rows sees: computes those rows of `width` floats again
// that are not finite. add(i, row) adds what row i sees to zeros. Finite rows keep their bits.
template <typename F>
void correct_rows(float* out, int64_t rows, int64_t width, F&& add) {
  if (finite(out, rows * width)) return;
  for (int64_t i = 0; i < rows; ++i, out += width) {
    if (finite(out, width)) continue;
    std::fill_n(out, width, 0.0f);
    add(i, out);
  }
}

}  // namespace weft::attention
