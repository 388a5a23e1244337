#include "kernels/block_product.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

// The tile's loops must be unrolled for its sums to stay in registers.
#if defined(__clang__)
#define WEFT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WEFT_UNROLL _Pragma("GCC unroll 8")
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sixteen sums if there are 32 registers, eight if there are 16 (AVX2).
constexpr int kRows = kLanes == 8 ? 4 : 8;
constexpr int kVecs = 2;
constexpr int64_t kDepth =
    64;  // rows of B at a time, so that a tile's columns of them stay in the L1 cache

// Rows of B for one tile: `row` floats apart, whole vectors each.
struct Panel {
  const float* data;
  int64_t row, depth, columns;  // columns: of C, at most those of the tile
};

// Rows i .. i + Rows of C and Vecs vectors of its columns from j.
template <int Rows, int Vecs>
HWY_INLINE void tile(const BlockProduct& g, const Panel& panel, const float* a, int64_t i,
                     int64_t j, bool add) {
  const FloatTag d;
  FloatVec sums[Rows][Vecs];
  WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
    WEFT_UNROLL for (int v = 0; v < Vecs; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* b = panel.data;
  for (int64_t p = 0; p < panel.depth; ++p, a += g.a_column, b += panel.row) {
    FloatVec row[Vecs];
    WEFT_UNROLL for (int v = 0; v < Vecs; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
    WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
      const FloatVec x = hn::Set(d, a[r * g.a_row]);
      WEFT_UNROLL for (int v = 0; v < Vecs; ++v) sums[r][v] = hn::MulAdd(x, row[v], sums[r][v]);
    }
  }
  const FloatVec factor = hn::Set(d, g.factor);
  WEFT_UNROLL for (int r = 0; r < Rows; ++r) {
    WEFT_UNROLL for (int v = 0; v < Vecs; ++v) {
      float* c = g.c + (i + r) * g.c_row + j + v * kLanes;
      const int64_t count = panel.columns - v * kLanes;
      if (count >= kLanes) {
        hn::StoreU(hn::MulAdd(sums[r][v], factor, add ? hn::LoadU(d, c) : hn::Zero(d)), d, c);
      } else if (count > 0) {
        store_tail(hn::MulAdd(sums[r][v], factor, add ? load_tail(c, count) : hn::Zero(d)), c,
                   count);
      }
    }
  }
}

template <int Vecs>
HWY_INLINE void tiles(const BlockProduct& g, const Panel& panel, int64_t from, int64_t j,
                      bool add) {
  const float* a = g.a + from * g.a_column;
  int64_t i = 0;
  for (; i + kRows <= g.m; i += kRows) tile<kRows, Vecs>(g, panel, a + i * g.a_row, i, j, add);
  for (; i < g.m; ++i) tile<1, Vecs>(g, panel, a + i * g.a_row, i, j, add);
}

// Columns j and on of rows `from` and on of B; copied where they do not lie as a tile reads them.
HWY_INLINE Panel panel_of(const BlockProduct& g, int64_t from, int64_t j, float* copy) {
  constexpr int64_t kWidth = kVecs * kLanes;
  const int64_t depth = HWY_MIN(g.k - from, kDepth), columns = HWY_MIN(g.n - j, kWidth);
  const float* b = g.b + from * g.b_row + j * g.b_column;
  if (g.b_column == 1 && columns % kLanes == 0) return {b, g.b_row, depth, columns};
  for (int64_t p = 0; p < depth; ++p) {
    for (int64_t v = 0; v < columns; ++v) copy[p * kWidth + v] = b[p * g.b_row + v * g.b_column];
    for (int64_t v = columns; v < kWidth; ++v) copy[p * kWidth + v] = 0;
  }
  return {copy, kWidth, depth, columns};
}

void block_product(const BlockProduct& g) {
  if (g.k == 0) {  // nothing to add; the factors may be null
    for (int64_t i = 0; i < g.m && !g.add; ++i)
      std::memset(g.c + i * g.c_row, 0, static_cast<size_t>(g.n) * sizeof(float));
    return;
  }
  HWY_ALIGN float copy[kDepth * kVecs * kLanes];
  for (int64_t from = 0; from < g.k; from += kDepth)
    for (int64_t j = 0; j < g.n; j += kVecs * kLanes) {
      const Panel panel = panel_of(g, from, j, copy);
      const bool add = g.add || from > 0;
      if (panel.columns > kLanes)
        tiles<kVecs>(g, panel, from, j, add);
      else
        tiles<1>(g, panel, from, j, add);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(block_product);

void block_product(const BlockProduct& product) { HWY_DYNAMIC_DISPATCH(block_product)(product); }

void transpose_block(const float* x, int64_t rows, int64_t columns, int64_t row, float* out,
                     int64_t width) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) out[j * width + i] = x[i * row + j];
    std::fill(out + j * width + rows, out + (j + 1) * width, 0.0f);
  }
}

}  // namespace weft::kernels
#endif
