#include "kernels/bf16_pack.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_pack.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"
#include "kernels/large.h"
#include "kernels/packed.h"
#include "kernels/ranges.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kSide = 32;   // of a chunk
constexpr int64_t kPairs = 16;  // in a column of a chunk, and columns in a block

// A chunk of the source: 32 rows of 32 bf16 values.
struct Square {
  alignas(64) Bf16 at[kSide][kSide];
};
// Sixteen rows of 32 pairs, or 32 rows of sixteen.
struct Pairs {
  alignas(64) uint32_t at[kPairs * kSide];
};

HWY_INLINE void read_row(const float* x, Bf16* out, int64_t n) { round_row(x, out, n); }
HWY_INLINE void read_row(const Bf16* x, Bf16* out, int64_t n) {
  std::memcpy(out, x, static_cast<size_t>(n) * sizeof(Bf16));
}

template <typename T>
HWY_INLINE void read_square(const T* x, int64_t stride, int64_t rows, int64_t columns,
                            Square& square) {
  if (rows < kSide || columns < kSide) square = {};
  for (int64_t i = 0; i < rows; ++i) read_row(x + i * stride, square.at[i], columns);
}

HWY_INLINE BitsVec read_bits(const float* x) { return round_bits(hn::LoadU(FloatTag(), x)); }
HWY_INLINE BitsVec read_bits(const Bf16* x) {
  return hn::PromoteTo(BitsTag(), hn::LoadU(HalfTag(), x));
}

// Columns j < 16 of the pairs of a chunk: pair (r, j) is made of elements (2r, j) and (2r + 1, j).
template <typename T>
HWY_INLINE void interleave(const T* x, int64_t stride, uint32_t* out) {
  for (int64_t r = 0; r < kPairs; ++r, x += 2 * stride)
    for (int64_t j = 0; j < kPairs; j += kLanes) {
      const BitsVec first = read_bits(x + j);
      const BitsVec second = read_bits(x + stride + j);
      hn::StoreU(hn::Or(hn::ShiftLeft<16>(second), first), BitsTag(), out + r * kPairs + j);
    }
}

// out[j][i] = x[i][j] for 4 rows of 4 pairs.
#if HWY_TARGET == HWY_SCALAR
template <typename T>
void transpose_four(const T* x, int64_t x_row, uint32_t* out) {
  constexpr int64_t kStep = sizeof(*out) / sizeof(T);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j)
      std::memcpy(out + j * kPairs + i, x + i * x_row + j * kStep, sizeof(*out));
}
#else
template <typename T>
HWY_INLINE void transpose_four(const T* x, int64_t x_row, uint32_t* out) {
  const hn::FixedTag<T, 16 / sizeof(T)> stored;
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> wide;
  const auto row = [&](int64_t i)
                       HWY_ATTR { return hn::BitCast(d, hn::LoadU(stored, x + i * x_row)); };
  const auto pair = [&](auto v) HWY_ATTR { return hn::BitCast(wide, v); };
  const auto a = row(0), b = row(1), c = row(2), e = row(3);
  const auto ab_lower = pair(hn::InterleaveLower(d, a, b));
  const auto ab_upper = pair(hn::InterleaveUpper(d, a, b));
  const auto ce_lower = pair(hn::InterleaveLower(d, c, e));
  const auto ce_upper = pair(hn::InterleaveUpper(d, c, e));
  const auto store = [&](auto v, int64_t at)
                         HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, out + at * kPairs); };
  store(hn::InterleaveLower(wide, ab_lower, ce_lower), 0);
  store(hn::InterleaveUpper(wide, ab_lower, ce_lower), 1);
  store(hn::InterleaveLower(wide, ab_upper, ce_upper), 2);
  store(hn::InterleaveUpper(wide, ab_upper, ce_upper), 3);
}
#endif

// 16 rows of 16 pairs, which may be stored as halves.
template <typename T>
HWY_INLINE void transpose_pairs(const T* x, int64_t x_row, uint32_t* out) {
  constexpr int64_t kStep = sizeof(*out) / sizeof(T);
  for (int64_t i = 0; i < kPairs; i += 4)
    for (int64_t j = 0; j < kPairs; j += 4)
      transpose_four(x + i * x_row + j * kStep, x_row, out + j * kPairs + i);
}

template <typename T>
HWY_INLINE void make_pairs(const T* x, int64_t stride, Pairs& pairs) {
  interleave(x, stride, pairs.at);
  interleave(x + kPairs, stride, pairs.at + kPairs * kPairs);
}

// Floats are a weight, which is read later: if it is large, its chunks bypass the caches, where
// they lie as that requires. A product may read halves at once.
template <typename T>
HWY_INLINE void write_chunk(const PackBf16<T>& g, const Pairs& pairs, Bf16* out) {
  if (std::is_same_v<T, Bf16> || !is_large(g.whole_k * g.whole_n) ||
      reinterpret_cast<uintptr_t>(out) % kPackedAlign != 0) {
    std::memcpy(out, pairs.at, sizeof(pairs));
    return;
  }
  const BitsTag d;
  auto* const to = reinterpret_cast<uint32_t*>(out);
  for (int64_t i = 0; i < kPairs * kSide; i += kLanes)
    hn::Stream(hn::Load(d, pairs.at + i), d, to + i);
}

template <typename T>
HWY_INLINE Bf16* chunk_at(const PackBf16<T>& g, int64_t panel, int64_t chunk) {
  return g.out + panel * bf16_panel_elements(g.whole_k) + chunk * kSide * kSide;
}

// The transpose of a chunk of the source.
HWY_INLINE void turn(const Square& square, Pairs& pairs) {
  transpose_pairs(square.at[0], kSide, pairs.at);
  transpose_pairs(square.at[kPairs], kSide, pairs.at + kPairs * kPairs);
}

// One chunk of one panel.
template <typename T>
HWY_INLINE void pack_chunk(const PackBf16<T>& g, int64_t panel, int64_t chunk) {
  const int64_t p = chunk * kSide, j = panel * kSide;
  const int64_t depth = HWY_MIN(kSide, g.k - p), columns = HWY_MIN(kSide, g.n - j);
  Square square;
  Pairs pairs;
  if (g.transposed) {
    read_square(g.b + j * g.stride + p, g.stride, columns, depth, square);
    turn(square, pairs);
  } else if (depth == kSide && columns == kSide) {
    make_pairs(g.b + p * g.stride + j, g.stride, pairs);
  } else {
    read_square(g.b + p * g.stride + j, g.stride, depth, columns, square);
    make_pairs(square.at[0], kSide, pairs);
  }
  write_chunk(g, pairs, chunk_at(g, panel, chunk));
}

// Reads along the rows of the source, so that each is read once from memory.
template <typename T>
HWY_INLINE void pack_panels(const PackBf16<T>& g, int64_t begin, int64_t end) {
  const int64_t chunks = bf16_chunks(g.k);
  if (g.transposed) {
    for (int64_t panel = begin; panel < end; ++panel)
      for (int64_t chunk = 0; chunk < chunks; ++chunk) pack_chunk(g, panel, chunk);
  } else {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t panel = begin; panel < end; ++panel) pack_chunk(g, panel, chunk);
  }
}

void pack_floats(const PackBf16<float>& g, int64_t begin, int64_t end) {
  pack_panels(g, begin, end);
  hwy::FlushStream();
}
void pack_halves(const PackBf16<Bf16>& g, int64_t begin, int64_t end) {
  pack_panels(g, begin, end);
}

void pack_both(const PackBf16<float>& straight, const PackBf16<float>& transposed) {
  Square square;
  Pairs as_stored, turned;
  for (int64_t i = 0; i < straight.k; i += kSide)
    for (int64_t j = 0; j < straight.n; j += kSide) {
      read_square(straight.b + i * straight.stride + j, straight.stride,
                  HWY_MIN(kSide, straight.k - i), HWY_MIN(kSide, straight.n - j), square);
      turn(square, turned);
      make_pairs(square.at[0], kSide, as_stored);
      write_chunk(straight, as_stored, chunk_at(straight, j / kSide, i / kSide));
      write_chunk(transposed, turned, chunk_at(transposed, i / kSide, j / kSide));
    }
  hwy::FlushStream();
}

// A chunk of x. What is read two chunks later in the same rows is fetched.
HWY_INLINE void transpose_chunk(const Bf16* x, int64_t stride, int64_t rows, int64_t columns,
                                Bf16* out, int64_t out_stride) {
  constexpr int64_t kAhead = 2 * kSide;
  Square square;
  Pairs pairs, turned;
  for (int64_t r = 0; r < rows; ++r) __builtin_prefetch(x + r * stride + kAhead, 0, 2);
  read_square(x, stride, rows, columns, square);
  for (int64_t half = 0; half < kSide; half += kPairs) {
    interleave(square.at[0] + half, kSide, pairs.at);
    transpose_pairs(pairs.at, kPairs, turned.at + half * kPairs);
  }
  for (int64_t c = 0; c < columns; ++c)
    std::memcpy(out + c * out_stride, turned.at + c * kPairs, kPairs * sizeof(uint32_t));
}

// Panels begin .. end - 1 of x.
void transpose_columns(int64_t rows, int64_t columns, const Bf16* x, int64_t stride, Bf16* out,
                       int64_t out_stride, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < rows; i += kSide)
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t j = panel * kSide;
      transpose_chunk(x + i * stride + j, stride, HWY_MIN(kSide, rows - i),
                      HWY_MIN(kSide, columns - j), out + j * out_stride + i, out_stride);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(pack_floats);
HWY_EXPORT(pack_halves);
HWY_EXPORT(pack_both);
HWY_EXPORT(transpose_columns);

namespace {

constexpr int64_t kPanelsPerTile = 8;

}  // namespace

void pack_bf16(const PackBf16<float>& pack, Tiles& tiles) {
  for_ranges(tiles, bf16_panels(pack.n), kPanelsPerTile, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(pack_floats)(pack, begin, end);
  });
}

void pack_bf16(const PackBf16<Bf16>& pack, Tiles& tiles) {
  for_ranges(tiles, bf16_panels(pack.n), kPanelsPerTile, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(pack_halves)(pack, begin, end);
  });
}

void pack_both_bf16(const PackBf16<float>& straight, const PackBf16<float>& transposed) {
  HWY_DYNAMIC_DISPATCH(pack_both)(straight, transposed);
}

void transpose_bf16(int64_t rows, int64_t columns, const Bf16* x, int64_t stride, Bf16* out,
                    int64_t out_stride, Tiles& tiles) {
  for_ranges(tiles, bf16_panels(columns), kPanelsPerTile, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(transpose_columns)(rows, columns, x, stride, out, out_stride, begin, end);
  });
}

}  // namespace weft::kernels
#endif
