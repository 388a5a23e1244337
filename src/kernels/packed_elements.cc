#include "kernels/packed_elements.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/bf16_pack.h"
#include "kernels/packed.h"

namespace weft::kernels {

namespace {

constexpr int64_t kRun = 16;  // elements of a row of the matrix that lie in one block

// Where element (p, j) of B lies.
template <typename T>
int64_t packed_index(int64_t k, int64_t p, int64_t j) {
  if constexpr (std::is_same_v<T, Bf16>) return packed_bf16_index(k, p, j);
  return j / kStrip * kStrip * k + p * kStrip + j % kStrip;
}

// Where element i of a run lies, from the first one on.
template <typename T, bool transposed>
int64_t index_in_run(int64_t i) {
  if constexpr (std::is_same_v<T, Bf16>) return transposed ? i / 2 * 2 * kRun + i % 2 : i * 2;
  return transposed ? i * kStrip : i;
}

// Calls visit(block, begin, end) for each run: elements begin .. end - 1 of that run.
template <typename T, typename Visit>
void each_run(const PackedMatrix& matrix, int64_t first, int64_t count, Visit&& visit) {
  const int64_t width = width_of(matrix);
  int64_t row = first / width, column = first % width;
  while (count > 0) {
    const int64_t begin = column % kRun, run = column - begin;
    const int64_t end = begin + std::min({kRun - begin, width - column, count});
    const int64_t index = matrix.transposed ? packed_index<T>(matrix.k, run, row)
                                            : packed_index<T>(matrix.k, row, run);
    visit(static_cast<T*>(matrix.data) + index, begin, end);
    count -= end - begin;
    column += end - begin;
    if (column < width) continue;
    column = 0;
    ++row;
  }
}

void rounded(const float* from, int64_t count, float* out) {
  std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
}
void rounded(const float* from, int64_t count, Bf16* out) { to_bf16(from, out, count); }
void widened(const float* from, int64_t count, float* out) {
  std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
}
void widened(const Bf16* from, int64_t count, float* out) { from_bf16(from, out, count); }

template <typename T, bool transposed>
void write(const PackedMatrix& matrix, int64_t first, int64_t count, const float* from) {
  each_run<T>(matrix, first, count, [&from](T* run, int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float> && !transposed) {
      rounded(from, end - begin, run + begin);
    } else {
      std::array<T, kRun> values;
      rounded(from, end - begin, values.data() + begin);
      for (int64_t i = begin; i < end; ++i)
        run[index_in_run<T, transposed>(i)] = values[static_cast<size_t>(i)];
    }
    from += end - begin;
  });
}

template <typename T, bool transposed>
void read(const PackedMatrix& matrix, int64_t first, int64_t count, float* out) {
  each_run<T>(matrix, first, count, [&out](const T* run, int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float> && !transposed) {
      widened(run + begin, end - begin, out);
    } else {
      std::array<T, kRun> values;
      for (int64_t i = begin; i < end; ++i)
        values[static_cast<size_t>(i)] = run[index_in_run<T, transposed>(i)];
      widened(values.data() + begin, end - begin, out);
    }
    out += end - begin;
  });
}

template <typename T>
void write_elements(const PackedMatrix& matrix, int64_t first, int64_t count, const float* from) {
  (matrix.transposed ? write<T, true> : write<T, false>)(matrix, first, count, from);
}

// Rows of the matrix from `row` on, whole strips.
void write_rows(const PackedMatrix& matrix, float* data, int64_t row, int64_t rows,
                const float* from) {
  if (!matrix.transposed)
    return pack_rows(from, matrix.n, rows, matrix.k, matrix.n, data + row * kStrip);
  pack_columns(from, matrix.k, rows, matrix.k, matrix.n, data + row * matrix.k);
}

// The same, whole chunks or panels.
void write_rows(const PackedMatrix& matrix, Bf16* data, int64_t row, int64_t rows,
                const float* from) {
  const bool transposed = matrix.transposed;
  SerialTiles tiles;
  pack_bf16(PackBf16<float>{.k = transposed ? matrix.k : rows,
                            .n = transposed ? rows : matrix.n,
                            .b = from,
                            .stride = width_of(matrix),
                            .transposed = transposed,
                            .out = data + (transposed ? packed_bf16_index(matrix.k, 0, row)
                                                      : packed_bf16_index(matrix.k, row, 0)),
                            .whole_k = matrix.k,
                            .whole_n = matrix.n},
            tiles);
}

// `tile`: rows of the matrix that are packed together.
template <typename T>
void write_all(const PackedMatrix& matrix, int64_t tile, int64_t first,
               std::span<const float> values) {
  const int64_t width = width_of(matrix), tile_size = tile * width;
  const auto count = static_cast<int64_t>(values.size());
  const int64_t head = std::min((tile_size - first % tile_size) % tile_size, count);
  const bool to_end = first + count == matrix.k * matrix.n;  // the last tile may be short
  const int64_t rows = to_end ? (count - head) / width : (count - head) / tile_size * tile;
  const int64_t end = head + rows * width;
  const float* const from = values.data();
  write_elements<T>(matrix, first, head, from);
  if (rows > 0)
    write_rows(matrix, static_cast<T*>(matrix.data), (first + head) / width, rows, from + head);
  write_elements<T>(matrix, first + end, count - end, from + end);
}

}  // namespace

void write_packed(const PackedMatrix& matrix, int64_t first, std::span<const float> values) {
  static_assert(kBf16Chunk == kPackedRows && kBf16Panel == kPackedRows);
  static_assert(kPackedRows % kStrip == 0);
  if (matrix.dtype == DType::bf16) return write_all<Bf16>(matrix, kBf16Chunk, first, values);
  write_all<float>(matrix, kStrip, first, values);
}

void read_packed(const PackedMatrix& matrix, int64_t first, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (matrix.dtype == DType::bf16)
    (matrix.transposed ? read<Bf16, true> : read<Bf16, false>)(matrix, first, count, out.data());
  else
    (matrix.transposed ? read<float, true> : read<float, false>)(matrix, first, count, out.data());
}

}  // namespace weft::kernels
