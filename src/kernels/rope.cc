#include "kernels/rope.h"

#include <cmath>

#include "base/plain_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/sincos-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR || !HWY_HAVE_FLOAT64

int64_t rotations(float, const float*, int64_t, float, float*, float*) { return 0; }

#else

// Whole vectors; the result is the number of pairs in them.
int64_t rotations(float position, const float* frequencies, int64_t pairs, float factor,
                  float* cosine, float* sine) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = pairs / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
    const auto angle = hn::Mul(hn::Set(half, position), hn::LoadU(half, frequencies + i));
    const DoubleVec turns = hn::Mul(hn::PromoteTo(d, angle), number(kTurnsPerRadian));
    DoubleVec s, c;
    sincos_turn(hn::Sub(turns, hn::Floor(turns)), s, c);
    hn::StoreU(hn::DemoteTo(half, hn::Mul(c, number(double{factor}))), half, cosine + i);
    hn::StoreU(hn::DemoteTo(half, hn::Mul(s, number(double{factor}))), half, sine + i);
  }
  return whole;
}

#endif

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, bool back, float* out) {
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
      store(load(x + i, count), out + i, count);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(rotations);
HWY_EXPORT(rotate);

void rotation(float position, const float* frequencies, int64_t pairs, float factor, float* cosine,
              float* sine) {
  int64_t i = HWY_DYNAMIC_DISPATCH(rotations)(position, frequencies, pairs, factor, cosine, sine);
  for (; i < pairs; ++i) {
    const float angle = position * frequencies[i];
    const double turns = double{angle} * kTurnsPerRadian;
    double s = 0, c = 1;
    plain_sincos_turn(turns - std::floor(turns), s, c);
    cosine[i] = static_cast<float>(c * double{factor});
    sine[i] = static_cast<float>(s * double{factor});
  }
}

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t size,
            int64_t pairs, bool back, float* out) {
  HWY_DYNAMIC_DISPATCH(rotate)(x, cosine, sine, heads, size, pairs, back, out);
}

}  // namespace weft::kernels
#endif
