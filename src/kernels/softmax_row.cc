#include "kernels/softmax_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_row.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/math-inl.h"
#include "kernels/softmax_block.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

float exponentials_of_row(float* scores, int64_t first, int64_t n) {
  const FloatTag d;
  const FloatVec top = hn::Set(d, maximum(scores, n));
  map1(scores, scores, n, [top](FloatVec x) HWY_ATTR { return vexp(hn::Sub(x, top)); });
  float total = 0;
  for (int64_t i = 0, end = kTileColumns - first % kTileColumns; i < n; end += kTileColumns) {
    float even = 0, odd = 0;
    for (; i + 2 <= HWY_MIN(n, end); i += 2) {
      even += scores[i];
      odd += scores[i + 1];
    }
    if (i < HWY_MIN(n, end)) even += scores[i++];
    total += even + odd;
  }
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(exponentials_of_row);

float exponentials_of_row(float* scores, int64_t first, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(exponentials_of_row)(scores, first, n);
}

}  // namespace weft::kernels
#endif
