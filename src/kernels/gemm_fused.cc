// The loops around the register tile. C is cut into blocks of k, chunks of columns, groups of rows
// and tiles. The chunk of B stays in the L2 cache while all rows are multiplied by it; the group of
// A is packed, if that pays: once for all chunks if it is the only one.
#include "kernels/gemm_fused.h"

#include <algorithm>
#include <cstring>

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

// As many sums as there are registers for.
struct TileShape {
  int rows, strips;
};
#if HWY_TARGET == HWY_AVX3
constexpr TileShape kTile{8, 3}, kWide{6, 4};
#else
constexpr TileShape kTile{6, 1}, kWide = kTile;
#endif
constexpr int64_t kGroupRows = 48;      // of A: a multiple of the rows of tiles
constexpr int64_t kFewGroupRows = 128;  // of an A that is one group
static_assert(kFewGroupRows * kGemmDepth <= kGemmChunk);
// Strips of a B that is packed here would share few sets of the L1 cache if their distance were a
// multiple of 4096 bytes.
constexpr int64_t kPageRows = 64;
constexpr int64_t gap_of(int64_t depth) { return depth % kPageRows == 0 ? kStrip : 0; }
constexpr int64_t kBufferFloats = kGemmChunk + kGemmChunk / kPageRows;
constexpr int64_t kAheadRows = 8;  // of A as stored, fetched before they are packed

// The wide tile reads C and A less often, but is better only where it fits.
TileShape shape_for(int64_t strips) {
  return strips <= 32 && strips % kWide.strips == 0 ? kWide : kTile;
}

struct Buffers {
  float* a = nullptr;  // kGemmChunk
  float* b = nullptr;  // kBufferFloats
};

// [0, size) in pieces of at most `most`, as equal as multiples of `unit` can be.
struct Cut {
  int64_t size, unit, units, count = 1;
  Cut(int64_t size_, int64_t most, int64_t unit_ = 1) : size(size_), unit(unit_), units(0) {
    if (size <= most) return;
    const int64_t each = HWY_MAX(1, most / unit);
    units = (size + unit - 1) / unit;
    count = (units + each - 1) / each;
  }
  int64_t begin(int64_t i) const {
    if (count == 1) return i * size;
    return HWY_MIN(size, i * units / count * unit);
  }
  int64_t length(int64_t i) const { return begin(i + 1) - begin(i); }
};

constexpr int64_t strips_of(int64_t columns) { return (columns + kStrip - 1) / kStrip; }

TileFn tile_of(int64_t rows, int64_t strips) {
  constexpr auto kRows = std::make_integer_sequence<int, kTile.rows>();
  static constexpr std::array<TileFn, kTile.rows> kTiles[] = {
    tiles_of<1>(kRows),
#if HWY_TARGET == HWY_AVX3
    tiles_of<2>(kRows),
    tiles_of<3>(kRows),
    tiles_of<4>(kRows),
#endif
  };
  return kTiles[strips - 1][static_cast<size_t>(rows - 1)];
}

// Strips of one block of k of B.
struct Chunk {
  int64_t first = 0, strips = 0;
  const float* data = nullptr;
  int64_t row = kStrip, strip = 0;
};

// Deals what the next chunk reads evenly to the tiles of this one. If there are few tiles, the
// processor's own prefetching is faster.
class Fetch {
 public:
  Fetch() = default;
  // `rows` of `row` floats, `stride` floats apart. The tiles of this chunk fetch `pairs` addresses.
  Fetch(const float* data, int64_t rows, int64_t row, int64_t stride, int64_t pairs) {
    const int64_t step = (rows * row + pairs - 1) / pairs;
    if (step > kStrip) return;
    const int64_t run = (row + step - 1) / step;
    ahead_ = {data, step, run, run, stride - (run - 1) * step};
    left_ = rows * run;
  }

  void next(TileArgs& t) {
    if (left_ <= 0) ahead_ = {t.b, 0, 1, 1, 0};
    left_ -= t.depth / 2;
    t.ahead = &ahead_;
  }

 private:
  Ahead ahead_;
  int64_t left_ = 0;  // addresses
};

class Block {
 public:
  Block(const Gemm& g, const Buffers& buffers, int64_t from)
      : g_(g),
        buffers_(buffers),
        from_(from),
        depth_(HWY_MIN(kGemmDepth, g.k - from)),
        shape_(shape_for(strips_of(g.n))),
        chunks_(strips_of(g.n), chunk_strips(), shape_.strips),
        groups_(g.m, rows_of_group(), shape_.rows) {}

  void multiply() const {
    for (int64_t i = 0; i < chunks_.count; ++i) {
      const Chunk chunk = chunk_of(i);
      Fetch fetch = fetch_during(i);
      for (int64_t group = 0; group < groups_.count; ++group)
        rows(chunk, groups_.begin(group), groups_.length(group), fetch);
    }
  }

 private:
  int64_t rows_of_group() const { return buffers_.a && g_.m > kFewGroupRows ? kGroupRows : g_.m; }

  // As many as stay in the L2 cache while their rows pass, and the next chunk is fetched.
  int64_t chunk_strips() const {
    if (buffers_.b) return kGemmChunk / (depth_ * kStrip);
    return g_.packed_b ? HWY_MAX(shape_.strips, 3) : strips_of(g_.n);
  }

  Chunk chunk_of(int64_t i) const {
    Chunk chunk{.first = chunks_.begin(i), .strips = chunks_.length(i)};
    if (g_.packed_b) {
      chunk.data = g_.packed_b + (chunk.first * g_.k + from_) * kStrip;
      chunk.strip = g_.k * kStrip;
    } else if (buffers_.b) {
      chunk.data = buffers_.b;
      chunk.strip = depth_ * kStrip + gap_of(depth_);
      pack_strips(g_.b, from_, depth_, g_.n, chunk.first, chunk.strips, buffers_.b, chunk.strip);
    } else {
      chunk.data = g_.b.data + from_ * g_.b.stride + chunk.first * kStrip;
      chunk.row = g_.b.stride;
      chunk.strip = kStrip;
    }
    return chunk;
  }

  // What the tiles of chunk i fetch: the next chunk, the first one of the next block, or the first
  // one of the columns after those of the product.
  Fetch fetch_during(int64_t i) const {
    const bool last = i + 1 == chunks_.count;
    const bool ends = last && from_ + depth_ >= g_.k;
    if (!(g_.packed_b || buffers_.b) || (ends && g_.columns_after == 0)) return {};
    const int64_t next = last ? 0 : i + 1;
    const int64_t column = ends ? g_.n : chunks_.begin(next) * kStrip;
    const int64_t columns =
        HWY_MIN(chunks_.length(next) * kStrip, g_.n + g_.columns_after - column);
    const int64_t from = ends ? 0 : last ? from_ + depth_ : from_;
    const int64_t depth = HWY_MIN(kGemmDepth, g_.k - from);
    const int64_t tiles =
        Cut(g_.m, shape_.rows).count * Cut(chunks_.length(i), shape_.strips).count;
    const int64_t pairs = tiles * HWY_MAX(1, depth_ / 2);
    if (g_.packed_b)
      return {g_.packed_b + column * g_.k + from * kStrip, strips_of(columns), depth * kStrip,
              g_.k * kStrip, pairs};
    if (g_.b.transposed)
      return {g_.b.data + column * g_.b.stride + from, columns, depth, g_.b.stride, pairs};
    return {g_.b.data + from * g_.b.stride + column, depth, columns, g_.b.stride, pairs};
  }

  // Rows begin .. begin + count of C, the columns of the chunk.
  void rows(const Chunk& chunk, int64_t begin, int64_t count, Fetch& fetch) const {
    const Cut tiles(count, shape_.rows);
    const int64_t row = g_.a.transposed ? 1 : g_.a.stride,
                  column = g_.a.transposed ? g_.a.stride : 1;
    const float* a = g_.a.data + begin * row + from_ * column;
    if (buffers_.a && (chunk.first == 0 || groups_.count > 1)) pack_group(a, tiles);
    for (int64_t i = 0; i < tiles.count; ++i) {
      const int64_t height = tiles.length(i);
      TileArgs t{};
      t.a = buffers_.a ? buffers_.a + tiles.begin(i) * depth_ : a + tiles.begin(i) * row;
      t.a_row = buffers_.a ? 1 : row;
      t.a_column = buffers_.a ? height : column;
      panels(t, chunk, begin + tiles.begin(i), height, fetch);
    }
  }

  // The tiles of a group of A, which is transposed. Row by row of A as stored, so that each of its
  // lines is read once.
  void pack_group(const float* a, const Cut& tiles) const {
    const int64_t height = tiles.length(0);
    if (tiles.size == height * tiles.count) {
      if (height == 8) return pack_tiles<8>(a, tiles.count);
      if (height == 6) return pack_tiles<6>(a, tiles.count);
    }
    pack_unequal_tiles(a, tiles);
  }

  template <int64_t Height>
  void pack_tiles(const float* a, int64_t count) const {
    for (int64_t p = 0; p < depth_; ++p, a += g_.a.stride) {
      float* out = buffers_.a + p * Height;
      for (int64_t i = 0; i < Height * count; i += kStrip)
        __builtin_prefetch(a + kAheadRows * g_.a.stride + i);
      for (int64_t i = 0; i < count; ++i, out += depth_ * Height)
        std::memcpy(out, a + i * Height, Height * sizeof(float));
    }
  }

  void pack_unequal_tiles(const float* a, const Cut& tiles) const {
    int64_t begins[kFewGroupRows + 1];
    for (int64_t i = 0; i <= tiles.count; ++i) begins[i] = tiles.begin(i);
    for (int64_t p = 0; p < depth_; ++p, a += g_.a.stride) {
      for (int64_t i = 0; i < begins[tiles.count]; i += kStrip)
        __builtin_prefetch(a + kAheadRows * g_.a.stride + i);
      for (int64_t i = 0; i < tiles.count; ++i) {
        const int64_t height = begins[i + 1] - begins[i];
        copy_few(a + begins[i], height, buffers_.a + begins[i] * depth_ + p * height);
      }
    }
  }

  void panels(TileArgs& t, const Chunk& chunk, int64_t row, int64_t height, Fetch& fetch) const {
    const Cut panels(chunk.strips, shape_.strips);
    t.b_row = chunk.row;
    t.b_strip = chunk.strip;
    t.depth = depth_;
    t.c_row = g_.stride;
    t.alpha = g_.alpha;
    t.past_caches = g_.past_caches;
    float* c = g_.c + row * g_.stride;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t strip = chunk.first + panels.begin(i), strips = panels.length(i);
      t.b = chunk.data + panels.begin(i) * chunk.strip;
      t.c = c + strip * kStrip;
      begin_from(t, strip);
      t.c_next = i + 1 < panels.count ? t.c + strips * kStrip
                                      : c + height * g_.stride + chunk.first * kStrip;
      fetch.next(t);
      const TileFn tile = tile_of(height, strips);
      const int64_t columns = HWY_MIN(strips * kStrip, g_.n - strip * kStrip);
      if (columns == strips * kStrip)
        tile(t);
      else
        narrow(tile, t, height, columns);
    }
  }

  void begin_from(TileArgs& t, int64_t strip) const {
    if (from_ > 0 || g_.beta != 0) {
      t.start = t.c;
      t.start_row = t.c_row;
    } else if (g_.bias) {
      t.start = g_.bias + strip * kStrip;
    }
  }

  // A tile at the edge of C, which has only these columns of it: multiplies in a copy.
  static void narrow(TileFn tile, const TileArgs& t, int64_t height, int64_t columns) {
    constexpr int64_t kRow = HWY_MAX(kTile.strips, kWide.strips) * kStrip;
    HWY_ALIGN float whole[kTile.rows * kRow] = {};
    const auto copy = [&](const float* from, int64_t from_row, float* to, int64_t to_row) {
      for (int64_t r = 0; r < height; ++r)
        std::copy_n(from + r * from_row, columns, to + r * to_row);
    };
    TileArgs of_whole = t;
    if (t.start) {
      copy(t.start, t.start_row, whole, kRow);
      of_whole.start = whole;
      of_whole.start_row = kRow;
    }
    of_whole.c = whole;
    of_whole.c_row = kRow;
    of_whole.past_caches = false;
    tile(of_whole);
    copy(whole, kRow, t.c, t.c_row);
  }

  const Gemm& g_;
  const Buffers& buffers_;
  const int64_t from_, depth_;
  const TileShape shape_;
  const Cut chunks_, groups_;
};

void blocks(const Gemm& g, const Buffers& buffers) {
  for (int64_t from = 0; from < g.k; from += kGemmDepth) Block(g, buffers, from).multiply();
}

// Separate functions, so that a product without buffers does not touch their pages.
HWY_NOINLINE void with_a(const Gemm& g) {
  HWY_ALIGN float a[kGemmChunk];
  blocks(g, {a, nullptr});
}

HWY_NOINLINE void with_b(const Gemm& g) {
  HWY_ALIGN float b[kBufferFloats];
  blocks(g, {nullptr, b});
}

HWY_NOINLINE void with_both(const Gemm& g) {
  HWY_ALIGN float a[kGemmChunk];
  HWY_ALIGN float b[kBufferFloats];
  blocks(g, {a, b});
}

// C = beta C; the bias or +0 if beta is 0.
void scale_c(const Gemm& g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float& c = g.c[i * g.stride + j];
      if (g.beta != 0)
        c *= g.beta;
      else
        c = g.bias ? g.bias[j] : 0;
    }
}

void compute(const Gemm& g) {
  if (g.beta != 1 && (g.beta != 0 || g.k == 0)) scale_c(g);
  static_assert(kTile.rows <= kFewRows);
  const bool pack_a = g.a.transposed && g.m > 16 && g.n >= 96;
  const bool pack_b = !g.packed_b && gemm_packs(g.m, g.k, g.n, g.b.transposed, kTile.rows);
  if (pack_a && pack_b) return with_both(g);
  if (pack_a) return with_a(g);
  if (pack_b) return with_b(g);
  blocks(g, {});
}

// Vectors bypass the caches if C lies as that requires, and is written once.
void fused_product(const Gemm& g) {
  constexpr int64_t kVector = kLanes * static_cast<int64_t>(sizeof(float));
  Gemm product = g;
  if (g.k > kGemmDepth || g.stride % kLanes != 0 || reinterpret_cast<uintptr_t>(g.c) % kVector != 0)
    product.past_caches = false;
  compute(product);
  if (product.past_caches) hwy::FlushStream();
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
