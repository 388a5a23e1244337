// Sine and cosine of vectors of doubles: the operations of plain_sincos_turn() in
// base/plain_math.cc in the same order, in each lane. Included once per SIMD target
// (foreach_target.h); empty for targets without vectors of doubles.
#if defined(WEFT_KERNELS_SINCOS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_SINCOS_INL_H
#undef WEFT_KERNELS_SINCOS_INL_H
#else
#define WEFT_KERNELS_SINCOS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/map-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_HAVE_FLOAT64

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

using DoubleTag = hn::Repartition<double, FloatTag>;
using DoubleVec = hn::Vec<DoubleTag>;

HWY_INLINE DoubleVec number(double value) { return hn::Set(DoubleTag(), value); }

// The Taylor series of sine and cosine by Horner's rule: 1 - x2 / (last (last - 1)) (1 - ...).
HWY_INLINE DoubleVec series(DoubleVec x2, int first, int last) {
  const DoubleVec factor = hn::Neg(x2);
  DoubleVec sum = hn::Zero(DoubleTag());
  for (int k = first; k >= last; k -= 2)
    sum = hn::Div(hn::Mul(hn::Add(sum, number(1)), factor), number(k * (k - 1)));
  return hn::Add(sum, number(1));
}

HWY_INLINE void sincos_turn(DoubleVec u, DoubleVec& sine, DoubleVec& cosine) {
  const DoubleVec scaled = hn::Mul(u, number(4)), quadrant = hn::Floor(scaled);
  const DoubleVec x = hn::Mul(hn::Sub(scaled, quadrant), number(1.57079632679489661923)),
                  x2 = hn::Mul(x, x);
  const DoubleVec s = hn::Mul(series(x2, 21, 3), x), c = series(x2, 22, 2);
  const auto first = hn::Eq(quadrant, number(1)), second = hn::Eq(quadrant, number(2)),
             third = hn::Eq(quadrant, number(3));
  const auto swapped = hn::Or(first, third);
  const DoubleVec a = hn::IfThenElse(swapped, c, s), b = hn::IfThenElse(swapped, s, c);
  sine = hn::IfThenElse(hn::Or(second, third), hn::Neg(a), a);
  cosine = hn::IfThenElse(hn::Or(first, second), hn::Neg(b), b);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif
#endif
