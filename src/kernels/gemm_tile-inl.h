// The register tile of a product: some rows and some strips of 16 columns of C, over one block of
// k. Included once per SIMD target (foreach_target.h).
#include <array>
#include <cstdint>
#include <utility>

#if defined(WEFT_KERNELS_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_GEMM_TILE_INL_H
#undef WEFT_KERNELS_GEMM_TILE_INL_H
#else
#define WEFT_KERNELS_GEMM_TILE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/packed.h"
#include "kernels/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

constexpr int kStripVecs = static_cast<int>(kStrip / kLanes);

// Rows that later tiles read, fetched into the L2 cache, one address per two of k. Each tile
// continues where the one before it ended.
struct Ahead {
  const float* at = nullptr;  // the next address
  int64_t step = 0;           // floats between addresses in a row
  int64_t left = 1;           // addresses left in this row,
  int64_t run = 1;            // and those of a whole row
  int64_t jump = 0;           // floats from the last address of a row to the next row
};

// Element (r, p) of A lies at a + r * a_row + p * a_column, element (p, j) of B at b + p * b_row +
// j / 16 * b_strip + j % 16.
struct TileArgs {
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row, b_strip;
  int64_t depth;
  float* c;  // C = fma(alpha, sum, start)
  int64_t c_row;
  const float* start;  // C, or a bias with rows of 0; null: zeros, with rows of 0
  int64_t start_row;
  const float* c_next;  // the C of the next tile, which is fetched; any address
  bool past_caches;     // C is aligned to vectors, and is not fetched
  float alpha;
  Ahead* ahead;
};

template <int Rows, int Strips>
void tile(const TileArgs& t) {
  constexpr int kVecs = Strips * kStripVecs, kFours = (Rows + 3) / 4;
  const FloatTag d;
  FloatVec sums[Rows][kVecs];
  WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
    WEFT_UNROLL for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* b = t.b;
  const float* a[kFours];  // of every fourth row; the rows between are one, two or three rows on
  WEFT_UNROLL for (int q = 0; q < kFours; ++q) a[q] = t.a + 4 * q * t.a_row;
  const int64_t rows[4] = {0, t.a_row, 2 * t.a_row, 3 * t.a_row};
  const auto step = [&]() HWY_ATTR {
    FloatVec row[kVecs];
    WEFT_UNROLL for (int v = 0; v < kVecs; ++v) {
      row[v] = hn::LoadU(d, b + v / kStripVecs * t.b_strip + v % kStripVecs * kLanes);
    }
    WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
      const FloatVec x = hn::Set(d, a[r / 4][rows[r % 4]]);
      WEFT_UNROLL for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(x, row[v], sums[r][v]);
    }
    WEFT_UNROLL for (int q = 0; q < kFours; ++q) a[q] += t.a_column;
    b += t.b_row;
  };
  const int64_t pairs = t.depth / 2;
  const float* c_next = t.c_next;
  const int64_t fetched_rows = t.past_caches ? 0 : Rows;
  Ahead ahead = *t.ahead;
  for (int64_t i = 0; i < pairs; ++i) {
    if (i < fetched_rows) {
      WEFT_UNROLL for (int s = 0; s < Strips; ++s) __builtin_prefetch(c_next + s * kStrip, 1, 3);
      c_next += t.c_row;
    }
    __builtin_prefetch(ahead.at, 0, 2);
    const bool ends = --ahead.left == 0;
    ahead.at += ends ? ahead.jump : ahead.step;
    ahead.left = ends ? ahead.run : ahead.left;
    step();
    step();
  }
  *t.ahead = ahead;
  if (t.depth % 2 != 0) step();
  const FloatVec alpha = hn::Set(d, t.alpha);
  const float* start = t.start;
  float* c = t.c;
  WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
    WEFT_UNROLL for (int v = 0; v < kVecs; ++v) {
      const FloatVec from = start ? hn::LoadU(d, start + v * kLanes) : hn::Zero(d);
      const FloatVec y = hn::MulAdd(alpha, sums[r][v], from);
      if (t.past_caches)
        hn::Stream(y, d, c + v * kLanes);
      else
        hn::StoreU(y, d, c + v * kLanes);
    }
    start += t.start_row;
    c += t.c_row;
  }
}

using TileFn = void (*)(const TileArgs&);

// tile<1, Strips> to tile<Rows, Strips>
template <int Strips, int... Row>
constexpr std::array<TileFn, sizeof...(Row)> tiles_of(std::integer_sequence<int, Row...>) {
  return {&tile<Row + 1, Strips>...};
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // WEFT_KERNELS_GEMM_TILE_INL_H
