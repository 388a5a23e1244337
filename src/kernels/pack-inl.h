// Copies parts of a factor into the order in which a tile reads them. Included once per SIMD target
// (foreach_target.h). Transposes use vectors of four floats, which suffice for the speed of memory.
#include <cstdint>
#include <cstring>

#if defined(WEFT_KERNELS_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_PACK_INL_H
#undef WEFT_KERNELS_PACK_INL_H
#else
#define WEFT_KERNELS_PACK_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/packed.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using FourTag = hn::CappedTag<float, 4>;
using Four = hn::Vec<FourTag>;

// x[i * row + j] for i, j < 4 becomes out[j][i].
HWY_INLINE void transpose_four(const float* x, int64_t row, Four* out) {
  const FourTag d;
  const Four x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + row), x2 = hn::LoadU(d, x + 2 * row),
             x3 = hn::LoadU(d, x + 3 * row);
  const Four low02 = hn::InterleaveLower(d, x0, x2), low13 = hn::InterleaveLower(d, x1, x3);
  const Four high02 = hn::InterleaveUpper(d, x0, x2), high13 = hn::InterleaveUpper(d, x1, x3);
  out[0] = hn::InterleaveLower(d, low02, low13);
  out[1] = hn::InterleaveUpper(d, low02, low13);
  out[2] = hn::InterleaveLower(d, high02, high13);
  out[3] = hn::InterleaveUpper(d, high02, high13);
}

// Writes [depth][width] from the first `count` and `depth` of x that are multiples of four.
HWY_INLINE void pack_fours(const float* x, int64_t row, int64_t depth, int64_t count, int64_t width,
                           float* out) {
  for (int64_t p = 0; p < depth; p += 4)
    for (int64_t i = 0; i < count; i += 4) {
      Four columns[4];
      transpose_four(x + i * row + p, row, columns);
      for (int64_t u = 0; u < 4; ++u) hn::StoreU(columns[u], FourTag(), out + (p + u) * width + i);
    }
}

constexpr int64_t kFour = 4;

#else

HWY_INLINE void pack_fours(const float*, int64_t, int64_t, int64_t, int64_t, float*) {}
constexpr int64_t kFour = 1 << 30;

#endif

// out[p * width + i] = x[i * row + p] for p < depth, i < count; zeros for i from count to width.
HWY_INLINE void pack_transposed(const float* x, int64_t row, int64_t depth, int64_t count,
                                int64_t width, float* out) {
  const int64_t fours = count / kFour * kFour, deep = depth / kFour * kFour;
  pack_fours(x, row, deep, fours, width, out);
  for (int64_t p = 0; p < depth; ++p) {
    float* to = out + p * width;
    for (int64_t i = p < deep ? fours : 0; i < count; ++i) to[i] = x[i * row + p];
    for (int64_t i = count; i < width; ++i) to[i] = 0;
  }
}

// Copies `count` floats, at most eight: four or more as two fours, which may overlap.
HWY_INLINE void copy_few(const float* x, int64_t count, float* out) {
  if (count >= 4) {
    std::memcpy(out, x, 4 * sizeof(float));
    std::memcpy(out + count - 4, x + count - 4, 4 * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = x[i];
}

// out[p * width + j] = x[p * row + j] for p < depth, j < count; zeros for j from count to width.
HWY_INLINE void pack_plain(const float* x, int64_t row, int64_t depth, int64_t count, int64_t width,
                           float* out) {
  constexpr int64_t kAhead = 16;  // rows, which are too far for the processor to guess
  for (int64_t p = 0; p < depth; ++p) {
    __builtin_prefetch(x + (p + kAhead) * row);
    std::memcpy(out + p * width, x + p * row, static_cast<size_t>(count) * sizeof(float));
    for (int64_t j = count; j < width; ++j) out[p * width + j] = 0;
  }
}

// Rows p < depth of `strips` whole strips at x, `strip` floats apart in `out`. Row by row, which is
// the order of x in memory. The lines of a row that comes later are fetched: it is too far for the
// processor to guess. With kPast, four strips at a time: each strip is on a page of its own, and
// the processor has few entries for pages that are written.
template <bool kPast>
HWY_INLINE void pack_whole(const float* x, int64_t row, int64_t depth, int64_t strips, float* out,
                           int64_t strip) {
  constexpr int64_t kAhead = 8;
  const int64_t at_once = kPast ? 4 : strips;
  const FloatTag d;
  for (int64_t begin = 0; begin < strips; begin += at_once) {
    const int64_t end = HWY_MIN(begin + at_once, strips);
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t s = begin; s < end; ++s) {
        const float* from = x + p * row + s * kStrip;
        float* to = out + p * kStrip + s * strip;
        __builtin_prefetch(from + kAhead * row);
        for (int64_t v = 0; v < kStrip; v += kLanes) {
          const FloatVec lanes = hn::LoadU(d, from + v);
          if (kPast)
            hn::Stream(lanes, d, to + v);
          else
            hn::StoreU(lanes, d, to + v);
        }
      }
  }
}

// Rows `from` and on of the strips `first` and on of B, which has n columns.
HWY_INLINE void pack_strips(const Factor& b, int64_t from, int64_t depth, int64_t n, int64_t first,
                            int64_t strips, float* out, int64_t strip) {
  int64_t s = 0;
  if (!b.transposed) {
    s = HWY_MIN(strips, n / kStrip - first);
    pack_whole<false>(b.data + from * b.stride + first * kStrip, b.stride, depth, s, out, strip);
  }
  for (; s < strips; ++s) {
    const int64_t column = (first + s) * kStrip, columns = HWY_MIN(kStrip, n - column);
    if (b.transposed)
      pack_transposed(b.data + column * b.stride + from, b.stride, depth, columns, kStrip,
                      out + s * strip);
    else
      pack_plain(b.data + from * b.stride + column, b.stride, depth, columns, kStrip,
                 out + s * strip);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // WEFT_KERNELS_PACK_INL_H
