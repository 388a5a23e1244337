#include "kernels/softmax_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_row.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

float exponentials_of_row(float* scores, int64_t n) {
  const FloatTag d;
  const FloatVec top = hn::Set(d, maximum(scores, n));
  map1(scores, scores, n, [top](FloatVec x) HWY_ATTR { return vexp(hn::Sub(x, top)); });
  float even = 0, odd = 0;
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    even += scores[i];
    odd += scores[i + 1];
  }
  if (i < n) even += scores[i];
  return even + odd;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(exponentials_of_row);

float exponentials_of_row(float* scores, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(exponentials_of_row)(scores, n);
}

}  // namespace weft::kernels
#endif
