// The packed form of the second factor of a product, which gemm() reads fastest. It is the same for
// every processor: strips of 16 columns, [ceil(n / 16)][k][16], the last one padded with zeros.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"

namespace weft {

constexpr int64_t kStrip = 16;        // columns of a strip
constexpr int64_t kPackedAlign = 64;  // bytes: packed factors begin at multiples of it

constexpr int64_t packed_floats(int64_t k, int64_t n) {
  return (n + kStrip - 1) / kStrip * kStrip * k;
}

// Whether a product packs B[k,n] for itself, unless it is packed. A B in whole strips is read where
// it lies if it is small, or for at most `few` rows: those of a tile.
constexpr int64_t kFewRows = 8;  // of the largest tile
constexpr bool gemm_packs(int64_t m, int64_t k, int64_t n, bool transposed,
                          int64_t few = kFewRows) {
  return transposed || n % kStrip != 0 || (m > few && k * n > 32768);
}

// Writes packed_floats(k, n) floats: B[k,n] for Gemm::packed_b. `out` is aligned and does not
// overlap B.
void pack(const Factor& b, int64_t k, int64_t n, float* out, Tiles& tiles);
// Some rows of B, `stride` floats apart. `out` is where the first one lies in the packed B.
void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t k, int64_t n, float* out);
// The same for columns, from the first one of a strip on.
void pack_columns(const float* x, int64_t stride, int64_t columns, int64_t k, int64_t n,
                  float* out);

}  // namespace weft
