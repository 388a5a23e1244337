#include "kernels/packed.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/pack-inl.h"
#include "kernels/ranges.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void pack_strips(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  for (int64_t strip = begin; strip < end; ++strip)
    pack_strip(b, 0, k, strip * kStrip, HWY_MIN(kStrip, n - strip * kStrip),
               out + strip * kStrip * k);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

namespace kernels {
namespace {
HWY_EXPORT(pack_strips);
void strips(const Factor& b, int64_t k, int64_t n, int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(pack_strips)(b, k, n, begin, end, out);
}
}  // namespace
}  // namespace kernels

void pack(const Factor& b, int64_t k, int64_t n, float* out, Tiles& tiles) {
  const int64_t strips = (n + kStrip - 1) / kStrip;
  const int64_t each = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, kStrip * k));
  for_ranges(tiles, strips, each,
             [&](int64_t begin, int64_t end) { kernels::strips(b, k, n, begin, end, out); });
}

}  // namespace weft
#endif
