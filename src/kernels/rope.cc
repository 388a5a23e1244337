#include "kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, float factor, bool back, float* out) {
  for (int64_t head = 0; head < heads; ++head, x += size, out += size) {
    for (int64_t i = 0; i < pairs; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, pairs - i);
      const FloatVec a = load(x + i, count), b = load(x + pairs + i, count),
                     c = load(cosine + i, count);
      FloatVec s = load(sine + i, count);
      if (back) s = hn::Neg(s);
      store(hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i, count);
      store(hn::MulAdd(a, s, hn::Mul(b, c)), out + pairs + i, count);
    }
    for (int64_t i = 2 * pairs; i < size; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, size - i);
      store(hn::Mul(load(x + i, count), constant(factor)), out + i, count);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(rotate);

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, float factor, bool back, float* out) {
  HWY_DYNAMIC_DISPATCH(rotate)(x, cosine, sine, heads, size, pairs, factor, back, out);
}

}  // namespace weft::kernels
#endif
