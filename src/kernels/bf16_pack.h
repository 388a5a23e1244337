// The packed form of the right factor of a bf16 product. It depends only on the shape, not on the
// processor, and is what AMX reads.
//
// B[k,n] is cut into panels of 32 columns, and a panel into chunks of 32 rows, ascending. A chunk
// has two blocks of 16 columns (1 KiB each), a block has 16 rows of pairs: row r holds, for each of
// its columns, elements 2r and 2r + 1 of the chunk. Zeros fill the last chunk and the last panel.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/tiles.h"

namespace weft::kernels {

constexpr int64_t kBf16Chunk = 32;  // rows of B
constexpr int64_t kBf16Panel = 32;  // columns of B

constexpr int64_t bf16_chunks(int64_t k) { return (k + kBf16Chunk - 1) / kBf16Chunk; }
constexpr int64_t bf16_panels(int64_t n) { return (n + kBf16Panel - 1) / kBf16Panel; }

// Elements from a panel to the next one.
constexpr int64_t bf16_panel_elements(int64_t k) {
  return bf16_chunks(k) * kBf16Chunk * kBf16Panel;
}

// The memory is aligned to 4 bytes; the kernels are faster if it is aligned to 64.
constexpr int64_t packed_bf16_bytes(int64_t k, int64_t n) {
  return bf16_panels(n) * bf16_panel_elements(k) * static_cast<int64_t>(sizeof(Bf16));
}

// Where element (p, j) of B[k,n] lies.
constexpr int64_t packed_bf16_index(int64_t k, int64_t p, int64_t j) {
  const int64_t chunk = j / kBf16Panel * bf16_chunks(k) + p / kBf16Chunk;
  return chunk * kBf16Chunk * kBf16Panel + j % kBf16Panel / 16 * 512 + p % kBf16Chunk / 2 * 32 +
         j % 16 * 2 + p % 2;
}

// What to pack: B[k,n], as stored. Its rows are `stride` elements apart; of a transposed one, its
// columns.
template <typename T>
struct PackBf16 {
  int64_t k = 0, n = 0;
  const T* b = nullptr;
  int64_t stride = 0;
  bool transposed = false;
  Bf16* out = nullptr;               // packed_bf16_bytes(k, n)
  int64_t whole_k = k, whole_n = n;  // of the matrix that B is a part of, if `out` is a part, too
};

void pack_bf16(const PackBf16<float>& pack, Tiles& tiles);  // rounds as to_bf16() does
void pack_bf16(const PackBf16<Bf16>& pack, Tiles& tiles);
// Packs a matrix as B and as its transpose, and rounds each element once. Serial.
void pack_both_bf16(const PackBf16<float>& straight, const PackBf16<float>& transposed);

// out[j * out_stride + i] = x[i * stride + j] for i < rows, j < columns; zeros for i >= rows, up to
// the end of the chunk.
void transpose_bf16(int64_t rows, int64_t columns, const Bf16* x, int64_t stride, Bf16* out,
                    int64_t out_stride, Tiles& tiles);

}  // namespace weft::kernels
