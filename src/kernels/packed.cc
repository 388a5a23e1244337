#include "kernels/packed.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/pack-inl.h"
#include "kernels/ranges.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// Vectors bypass the caches if they lie as that requires: a packed factor is read later.
void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t k, int64_t n, float* out) {
  const int64_t strips = n / kStrip, rest = n % kStrip;
  const auto whole =
      reinterpret_cast<uintptr_t>(out) % kPackedAlign == 0 ? pack_whole<true> : pack_whole<false>;
  whole(x, stride, rows, strips, out, k * kStrip);
  if (rest > 0)
    pack_plain(x + strips * kStrip, stride, rows, rest, kStrip, out + strips * k * kStrip);
  hwy::FlushStream();
}

void pack_columns(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  pack_strips(b, 0, k, n, begin, end - begin, out + begin * kStrip * k, kStrip * k);
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

void columns(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(pack_columns)(b, k, n, begin, end, out);
}

}  // namespace
}  // namespace kernels

void pack(const Factor& b, int64_t k, int64_t n, float* out, Tiles& tiles) {
  if (!b.transposed)
    return for_ranges(tiles, k, (tile_rows(n) + 15) / 16 * 16, [&](int64_t begin, int64_t end) {
      pack_rows(b.data + begin * b.stride, b.stride, end - begin, k, n, out + begin * kStrip);
    });
  const int64_t strips = (n + kStrip - 1) / kStrip;
  for_ranges(tiles, strips, tile_rows(kStrip * k),
             [&](int64_t begin, int64_t end) { kernels::columns(b, k, n, begin, end, out); });
}

void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t k, int64_t n, float* out) {
  using namespace kernels;
  HWY_DYNAMIC_DISPATCH(pack_rows)(x, stride, rows, k, n, out);
}

}  // namespace weft
#endif
