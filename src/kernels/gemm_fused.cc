#include "kernels/gemm_fused.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_fused.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/gemm_tile-inl.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

bool has_fused() { return HWY_NATIVE_FMA; }

#if HWY_NATIVE_FMA

constexpr int64_t kDepth = kGemmDepth;
// Rows of A at a time: a packed block of them stays in the L2 cache.
constexpr int64_t kBlockRows = 120;

struct Shape {
  int rows, strips;
};
// As many sums as registers allow.
#if HWY_TARGET == HWY_AVX2
constexpr Shape kTile = {6, 1}, kWide = {6, 1};
#elif HWY_MAX_BYTES == 64
constexpr Shape kTile = {8, 3}, kWide = {6, 4};
#else
constexpr Shape kTile = {6, 1}, kWide = {6, 1};
#endif
constexpr int kMostStrips = kWide.strips;

template <int Strips>
TileFn tile_of(int rows) {
  static constexpr auto kTiles = tiles_of<Strips>(
      std::make_integer_sequence < int, Strips == kWide.strips ? kWide.rows : kTile.rows > ());
  return kTiles[static_cast<size_t>(rows - 1)];
}

TileFn tile_of(int rows, int64_t strips) {
  switch (strips) {
    case 1: return tile_of<1>(rows);
#if HWY_MAX_BYTES == 64
    case 2: return tile_of<2>(rows);
    case 3: return tile_of<3>(rows);
    default: return tile_of<4>(rows);
#else
    default: return tile_of<1>(rows);
#endif
  }
}

// [0, size) in pieces of at most `most`, as equal as possible.
struct Cut {
  int64_t size, count;
  Cut(int64_t size_, int64_t most) : size(size_), count((size_ + most - 1) / most) {}
  int64_t begin(int64_t i) const { return i * size / count; }
};

struct Buffers {
  float* a = nullptr;  // kBlockRows x kDepth, and 4
  float* b = nullptr;  // kDepth x kMostStrips x kStrip
};

void pack_rows(const Factor& a, const Cut& rows, int64_t from, int64_t depth, float* out) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t begin = rows.begin(i), width = rows.begin(i + 1) - begin;
    if (a.transposed)
      pack_plain(a.data + from * a.stride + begin, a.stride, depth, width, width,
                 out + begin * depth);
    else
      pack_transposed(a.data + begin * a.stride + from, a.stride, depth, width, width,
                      out + begin * depth);
  }
}

// The rows of `g` times one block of k.
void depth_block(const Gemm& g, const Buffers& buffers, const Shape& shape, int64_t from,
                 bool add) {
  const int64_t depth = HWY_MIN(kDepth, g.k - from), strips = (g.n + kStrip - 1) / kStrip;
  const Cut rows(g.m, shape.rows), panels(strips, shape.strips);
  TileArgs t{};
  t.depth = depth;
  t.c_row = g.stride;
  t.alpha = g.alpha;
  t.add = add;
  if (buffers.a) pack_rows(g.a, rows, from, depth, buffers.a);
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t strip = panels.begin(panel), count = panels.begin(panel + 1) - strip;
    const int64_t j = strip * kStrip;
    t.columns = HWY_MIN(count * kStrip, g.n - j);
    t.b_row = kStrip;
    if (g.packed_b) {
      t.b = g.packed_b + (strip * g.k + from) * kStrip;
      t.b_strip = g.k * kStrip;
    } else if (!buffers.b) {
      t.b = g.b.data + from * g.b.stride + j;
      t.b_row = g.b.stride;
      t.b_strip = kStrip;
    } else {
      for (int64_t s = 0; s < count; ++s)
        pack_strip(g.b, from, depth, j + s * kStrip, HWY_MIN(kStrip, t.columns - s * kStrip),
                   buffers.b + s * kStrip * depth);
      t.b = buffers.b;
      t.b_strip = depth * kStrip;
    }
    // The next panel
    const float* ahead = g.packed_b && panel + 1 < panels.count ? t.b + count * t.b_strip : nullptr;
    int64_t ahead_part = 0, ahead_strip = 0;
    for (int64_t i = 0; i < rows.count; ++i) {
      t.ahead = nullptr;
      if (ahead && ahead_strip < shape.strips) {
        t.ahead = ahead + ahead_strip * t.b_strip + ahead_part * (depth / 2) * kStrip;
        if (++ahead_part == 2) ahead_part = 0, ++ahead_strip;
      }
      const int64_t begin = rows.begin(i), height = rows.begin(i + 1) - begin;
      if (buffers.a) {
        t.a = buffers.a + begin * depth;
        t.a_row = 1;
        t.a_column = height;
      } else {
        t.a = g.a.data + begin * (g.a.transposed ? 1 : g.a.stride) +
              from * (g.a.transposed ? g.a.stride : 1);
        t.a_row = g.a.transposed ? 1 : g.a.stride;
        t.a_column = g.a.transposed ? g.a.stride : 1;
      }
      t.c = g.c + begin * g.stride + j;
      tile_of(static_cast<int>(height), count)(t);
    }
  }
}

void blocks(const Gemm& g, const Buffers& buffers) {
  const Shape shape = kWide;
  const Cut rows(g.m, kBlockRows);
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t begin = rows.begin(i);
    Gemm part = g;
    part.m = rows.begin(i + 1) - begin;
    part.a.data += begin * (g.a.transposed ? 1 : g.a.stride);
    part.c += begin * g.stride;
    for (int64_t from = 0; from < g.k; from += kDepth)
      depth_block(part, buffers, shape, from, from > 0 || g.beta != 0);
  }
}

HWY_NOINLINE void with_b(const Gemm& g) {
  HWY_ALIGN float b[kDepth * kMostStrips * kStrip];
  blocks(g, {nullptr, b});
}

HWY_NOINLINE void with_a(const Gemm& g) {
  HWY_ALIGN float a[kBlockRows * kDepth + 4];
  blocks(g, {a, nullptr});
}

HWY_NOINLINE void with_both(const Gemm& g) {
  HWY_ALIGN float a[kBlockRows * kDepth + 4];
  HWY_ALIGN float b[kDepth * kMostStrips * kStrip];
  blocks(g, {a, b});
}

void scale_rows(const Gemm& g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float& c = g.c[i * g.stride + j];
      c = g.beta == 0 ? 0 : g.beta * c;
    }
}

void fused_product(const Gemm& g) {
  if ((g.k == 0 && g.beta != 1) || (g.beta != 0 && g.beta != 1)) scale_rows(g);
  const bool pack_a = g.m > 16 && g.n >= 192;
  const bool pack_b = !g.packed_b && (g.b.transposed || g.n % kStrip != 0 || g.m > 64);
  if (pack_a && pack_b) return with_both(g);
  if (pack_a) return with_a(g);
  if (pack_b) return with_b(g);
  blocks(g, {});
}

#else

void fused_product(const Gemm&) {}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(has_fused);
HWY_EXPORT(fused_product);

bool has_fused() { return HWY_DYNAMIC_DISPATCH(has_fused)(); }
void fused_product(const Gemm& product) { HWY_DYNAMIC_DISPATCH(fused_product)(product); }

}  // namespace weft::kernels
#endif
