#include "kernels/packed.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/large.h"
#include "kernels/pack-inl.h"
#include "kernels/ranges.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

bool goes_past_caches(const float* out, int64_t k, int64_t n) {
  return is_large(packed_floats(k, n)) && reinterpret_cast<uintptr_t>(out) % kPackedAlign == 0;
}

void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t k, int64_t n, float* out) {
  const int64_t strips = n / kStrip, rest = n % kStrip;
  const bool past = goes_past_caches(out, k, n);
  (past ? pack_whole<true> : pack_whole<false>)(x, stride, rows, strips, out, k * kStrip);
  if (rest > 0)
    pack_plain(x + strips * kStrip, stride, rows, rest, kStrip, out + strips * k * kStrip);
  if (past) hwy::FlushStream();
}

// To a part of a strip that stays in the L1 cache, and from there past the caches.
void pack_strip_past(const float* x, int64_t stride, int64_t columns, int64_t k, float* out) {
  constexpr int64_t kDepth = 64;
  HWY_ALIGN float part[kDepth * kStrip];
  const FloatTag d;
  for (int64_t from = 0; from < k; from += kDepth) {
    const int64_t depth = HWY_MIN(kDepth, k - from);
    pack_transposed(x + from, stride, depth, columns, kStrip, part);
    for (int64_t i = 0; i < depth * kStrip; i += kLanes)
      hn::Stream(hn::Load(d, part + i), d, out + from * kStrip + i);
  }
}

void pack_columns(const float* x, int64_t stride, int64_t columns, int64_t k, int64_t n,
                  float* out) {
  const bool past = goes_past_caches(out, k, n);
  for (int64_t j = 0; j < columns; j += kStrip, x += kStrip * stride, out += kStrip * k) {
    const int64_t width = HWY_MIN(kStrip, columns - j);
    if (past)
      pack_strip_past(x, stride, width, k, out);
    else
      pack_transposed(x, stride, k, width, kStrip, out);
  }
  if (past) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

namespace kernels {
namespace {
HWY_EXPORT(pack_rows);
HWY_EXPORT(pack_columns);
}  // namespace
}  // namespace kernels

void pack(const Factor& b, int64_t k, int64_t n, float* out, Tiles& tiles) {
  if (k == 0) return;
  if (!b.transposed)
    return for_ranges(tiles, k, (tile_rows(n) + 15) / 16 * 16, [&](int64_t begin, int64_t end) {
      pack_rows(b.data + begin * b.stride, b.stride, end - begin, k, n, out + begin * kStrip);
    });
  const int64_t columns = (tile_rows(k) + kStrip - 1) / kStrip * kStrip;
  for_ranges(tiles, n, columns, [&](int64_t begin, int64_t end) {
    pack_columns(b.data + begin * b.stride, b.stride, end - begin, k, n, out + begin * k);
  });
}

void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t k, int64_t n, float* out) {
  using namespace kernels;
  HWY_DYNAMIC_DISPATCH(pack_rows)(x, stride, rows, k, n, out);
}

void pack_columns(const float* x, int64_t stride, int64_t columns, int64_t k, int64_t n,
                  float* out) {
  using namespace kernels;
  HWY_DYNAMIC_DISPATCH(pack_columns)(x, stride, columns, k, n, out);
}

}  // namespace weft
#endif
