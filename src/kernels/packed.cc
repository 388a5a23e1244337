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

// Rows begin .. end of the whole strips. Vectors bypass the caches if they lie as that requires: a
// packed factor is read later.
void pack_rows(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  const float* from = b.data + begin * b.stride;
  float* to = out + begin * kStrip;
  const auto whole =
      reinterpret_cast<uintptr_t>(out) % kPackedAlign == 0 ? pack_whole<true> : pack_whole<false>;
  whole(from, b.stride, end - begin, n / kStrip, to, k * kStrip);
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

void rows(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(pack_rows)(b, k, n, begin, end, out);
}
void columns(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(pack_columns)(b, k, n, begin, end, out);
}

}  // namespace
}  // namespace kernels

void pack(const Factor& b, int64_t k, int64_t n, float* out, Tiles& tiles) {
  const int64_t strips = (n + kStrip - 1) / kStrip, whole = b.transposed ? 0 : n / kStrip;
  if (whole > 0)
    for_ranges(tiles, k, (tile_rows(n) + 15) / 16 * 16,
               [&](int64_t begin, int64_t end) { kernels::rows(b, k, n, begin, end, out); });
  for_ranges(tiles, strips - whole, tile_rows(kStrip * k), [&](int64_t begin, int64_t end) {
    kernels::columns(b, k, n, whole + begin, whole + end, out);
  });
}

}  // namespace weft
#endif
