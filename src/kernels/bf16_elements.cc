#include "kernels/bf16_elements.h"

#include <algorithm>

namespace weft::kernels {

namespace {

constexpr int64_t kRun = 16;  // elements of a row of the matrix that lie in one block

// Where element i of a run lies, from the first one on.
template <bool transposed>
int64_t index_in_run(int64_t i) {
  return transposed ? i / 2 * 2 * kRun + i % 2 : i * 2;
}

// Calls visit(block, begin, end) for each run: elements begin .. end - 1 of that run.
template <typename Visit>
void each_run(const PackedBf16& matrix, int64_t first, int64_t count, Visit&& visit) {
  const int64_t width = matrix.transposed ? matrix.k : matrix.n;
  int64_t row = first / width, column = first % width;
  while (count > 0) {
    const int64_t begin = column % kRun, run = column - begin;
    const int64_t end = begin + std::min({kRun - begin, width - column, count});
    const int64_t index = matrix.transposed ? packed_bf16_index(matrix.k, run, row)
                                            : packed_bf16_index(matrix.k, row, run);
    visit(matrix.data + index, begin, end);
    count -= end - begin;
    column += end - begin;
    if (column < width) continue;
    column = 0;
    ++row;
  }
}

template <bool transposed>
void write(const PackedBf16& matrix, int64_t first, int64_t count, const Bf16* from) {
  each_run(matrix, first, count, [&from](Bf16* run, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run[index_in_run<transposed>(i)] = *from++;
  });
}

template <bool transposed>
void read(const PackedBf16& matrix, int64_t first, int64_t count, Bf16* out) {
  each_run(matrix, first, count, [&out](const Bf16* run, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) *out++ = run[index_in_run<transposed>(i)];
  });
}

void write_elements(const PackedBf16& matrix, int64_t first, int64_t count, const Bf16* from) {
  (matrix.transposed ? write<true> : write<false>)(matrix, first, count, from);
}

// Rows of the matrix from `row` on, whole chunks or panels.
void write_rows(const PackedBf16& matrix, int64_t row, int64_t rows, const Bf16* from) {
  SerialTiles tiles;
  if (matrix.transposed) {
    pack_bf16({.k = matrix.k,
               .n = rows,
               .b = from,
               .stride = matrix.k,
               .transposed = true,
               .out = matrix.data + packed_bf16_index(matrix.k, 0, row)},
              tiles);
    return;
  }
  for (int64_t column = 0; column < matrix.n; column += kBf16Panel)
    pack_bf16({.k = rows,
               .n = std::min(kBf16Panel, matrix.n - column),
               .b = from + column,
               .stride = matrix.n,
               .out = matrix.data + packed_bf16_index(matrix.k, row, column)},
              tiles);
}

}  // namespace

void write_packed(const PackedBf16& matrix, int64_t first, int64_t count, const Bf16* from) {
  static_assert(kBf16Chunk == kBf16Panel);
  const int64_t width = matrix.transposed ? matrix.k : matrix.n, tile = kBf16Chunk * width;
  const int64_t head = std::min((tile - first % tile) % tile, count);
  const int64_t rows = (count - head) / tile * kBf16Chunk, end = head + rows * width;
  write_elements(matrix, first, head, from);
  if (rows > 0) write_rows(matrix, (first + head) / width, rows, from + head);
  write_elements(matrix, first + end, count - end, from + end);
}

void read_packed(const PackedBf16& matrix, int64_t first, int64_t count, Bf16* out) {
  (matrix.transposed ? read<true> : read<false>)(matrix, first, count, out);
}

}  // namespace weft::kernels
