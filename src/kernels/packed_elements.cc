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
void write_elements(const PackedMatrix& matrix, int64_t first, std::span<const float> values) {
  (matrix.transposed ? write<T, true> : write<T, false>)(matrix, first, std::ssize(values),
                                                         values.data());
}

// Rows of the matrix from `row` on, whole strips.
void write_rows(const PackedMatrix& matrix, int64_t row, int64_t rows, const float* from) {
  auto* const data = static_cast<float*>(matrix.data);
  if (!matrix.transposed)
    return pack_rows(from, matrix.n, rows, matrix.k, matrix.n, data + row * kStrip);
  pack_columns(from, matrix.k, rows, matrix.k, matrix.n, data + row * matrix.k);
}

// The same, whole chunks or panels.
PackBf16<float> bf16_rows(const PackedMatrix& matrix, int64_t row, int64_t rows,
                          const float* from) {
  const bool transposed = matrix.transposed;
  auto* const data = static_cast<Bf16*>(matrix.data);
  return {.k = transposed ? matrix.k : rows,
          .n = transposed ? rows : matrix.n,
          .b = from,
          .stride = width_of(matrix),
          .transposed = transposed,
          .out = data + (transposed ? packed_bf16_index(matrix.k, 0, row)
                                    : packed_bf16_index(matrix.k, row, 0)),
          .whole_k = matrix.k,
          .whole_n = matrix.n};
}

// Calls rows(first row, count, from) for the rows that begin and end with a tile of `tile` rows,
// and elements(first element, values) for what is before and behind them.
template <typename Rows, typename Elements>
void by_tiles(const PackedMatrix& matrix, int64_t tile, int64_t first,
              std::span<const float> values, Rows&& rows, Elements&& elements) {
  const int64_t width = width_of(matrix), tile_size = tile * width;
  const auto count = static_cast<int64_t>(values.size());
  const int64_t head = std::min((tile_size - first % tile_size) % tile_size, count);
  const bool to_end = first + count == matrix.k * matrix.n;  // the last tile may be short
  const int64_t whole = to_end ? (count - head) / width : (count - head) / tile_size * tile;
  const int64_t end = head + whole * width;
  elements(first, values.first(static_cast<size_t>(head)));
  if (whole > 0) rows((first + head) / width, whole, values.data() + head);
  elements(first + end, values.subspan(static_cast<size_t>(end)));
}

// `other`: the same matrix in its other form, or null.
void write_bf16(const PackedMatrix& matrix, const PackedMatrix* other, int64_t first,
                std::span<const float> values) {
  by_tiles(
      matrix, kBf16Chunk, first, values,
      [&](int64_t row, int64_t rows, const float* from) {
        const PackBf16<float> part = bf16_rows(matrix, row, rows, from);
        if (other) return pack_both_bf16(part, bf16_rows(*other, row, rows, from));
        SerialTiles tiles;
        pack_bf16(part, tiles);
      },
      [&](int64_t at, std::span<const float> some) {
        write_elements<Bf16>(matrix, at, some);
        if (other) write_elements<Bf16>(*other, at, some);
      });
}

void write_f32(const PackedMatrix& matrix, int64_t first, std::span<const float> values) {
  by_tiles(
      matrix, kStrip, first, values,
      [&](int64_t row, int64_t rows, const float* from) { write_rows(matrix, row, rows, from); },
      [&](int64_t at, std::span<const float> some) { write_elements<float>(matrix, at, some); });
}

}  // namespace

void write_packed(const PackedMatrix& matrix, int64_t first, std::span<const float> values) {
  write_packed({&matrix, 1}, first, values);
}

void write_packed(std::span<const PackedMatrix> forms, int64_t first,
                  std::span<const float> values) {
  static_assert(kBf16Chunk == kPackedRows && kBf16Panel == kPackedRows);
  static_assert(kPackedRows % kStrip == 0);
  const PackedMatrix *straight = nullptr, *transposed = nullptr;
  for (const PackedMatrix& form : forms) {
    if (form.dtype == DType::bf16)
      (form.transposed ? transposed : straight) = &form;
    else
      write_f32(form, first, values);
  }
  if (straight)
    write_bf16(*straight, transposed, first, values);
  else if (transposed)
    write_bf16(*transposed, nullptr, first, values);
}

void read_packed(const PackedMatrix& matrix, int64_t first, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (matrix.dtype == DType::bf16)
    (matrix.transposed ? read<Bf16, true> : read<Bf16, false>)(matrix, first, count, out.data());
  else
    (matrix.transposed ? read<float, true> : read<float, false>)(matrix, first, count, out.data());
}

}  // namespace weft::kernels
