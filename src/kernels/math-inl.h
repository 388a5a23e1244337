// exp, log, erf, sigmoid, softplus and tanh of vectors of floats, compiled once per SIMD target. No
// libm: its results differ between versions. exp, log and erf are good to 1.5 ulp, the others to 3
// (tests/unit/math_test.cc measures). Each keeps NaN, infinities, signed zeros and subnormal
// numbers, and treats an element alike whatever lane it is in. The polynomials are minimax fits;
// all multiply-adds are written out.
#if defined(WEFT_KERNELS_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_MATH_INL_H
#undef WEFT_KERNELS_MATH_INL_H
#else
#define WEFT_KERNELS_MATH_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

// Horner's rule; the highest coefficient comes first.
HWY_INLINE FloatVec polynomial(FloatVec, FloatVec sum) { return sum; }
template <typename... Rest>
HWY_INLINE FloatVec polynomial(FloatVec x, FloatVec sum, float next, Rest... rest) {
  return polynomial(x, hn::MulAdd(sum, x, constant(next)), rest...);
}

// 2^k for k in [-126, 127].
HWY_INLINE FloatVec power_of_two(IntVec k) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(k, hn::Set(IntTag(), 127))));
}

// x = k ln 2 + r; the power is applied in two halves, so that results from the largest float to the
// smallest subnormal come out.
HWY_INLINE FloatVec vexp(FloatVec x) {
  const FloatTag d;
  const FloatVec bounded = hn::Min(hn::Max(x, constant(-105.0f)), constant(90.0f));
  const IntVec k = hn::NearestInt(hn::Mul(bounded, constant(1.44269504f)));
  const FloatVec kf = hn::ConvertTo(d, k);
  // ln 2 in two parts; the product with the first is exact.
  FloatVec r = hn::NegMulAdd(kf, constant(0.693359375f), bounded);
  r = hn::NegMulAdd(kf, constant(-2.12194440e-4f), r);
  const FloatVec tail = polynomial(r, constant(0.000197898131f), 0.00139451993f, 0.00833350047f,
                                   0.0416662879f, 0.166666657f, 0.5f);
  const FloatVec mantissa = hn::Add(hn::MulAdd(hn::Mul(r, r), tail, r), constant(1.0f));
  const IntVec half = hn::ShiftRight<1>(k);
  const FloatVec y = hn::Mul(hn::Mul(mantissa, power_of_two(half)), power_of_two(hn::Sub(k, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m from a polynomial in m - 1.
HWY_INLINE FloatVec vlog(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const auto subnormal = hn::Lt(x, constant(1.17549435e-38f));
  const FloatVec scaled = hn::IfThenElse(subnormal, hn::Mul(x, constant(8388608.0f)), x);
  const IntVec bits = hn::BitCast(di, scaled);
  // Counted from the bits of sqrt(1/2), so that the exponent steps there.
  const IntVec from_root = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const IntVec e = hn::ShiftRight<23>(from_root);
  const FloatVec m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const FloatVec ef = hn::Sub(hn::ConvertTo(d, e), hn::IfThenElseZero(subnormal, constant(23.0f)));
  const FloatVec f = hn::Sub(m, constant(1.0f)), f2 = hn::Mul(f, f);
  const FloatVec p =
      polynomial(f, constant(0.0674660131f), -0.116756409f, 0.118881747f, -0.124055915f,
                 0.142195508f, -0.166679963f, 0.200021192f, -0.250000089f, 0.333333135f);
  FloatVec y = hn::Mul(hn::Mul(f, f2), p);
  y = hn::MulAdd(ef, constant(-2.12194440e-4f), y);
  y = hn::NegMulAdd(constant(0.5f), f2, y);
  y = hn::MulAdd(ef, constant(0.693359375f), hn::Add(f, y));
  const FloatVec infinity = hn::Inf(d);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::NaN(d), y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Near 0 an odd polynomial; elsewhere 1 - exp(-(t + t p(t))) with t = |x|, where the polynomial
// fits the logarithm of erfc.
HWY_INLINE FloatVec verf(FloatVec x) {
  const FloatVec a = hn::Abs(x), z = hn::Mul(x, x);
  const FloatVec q = polynomial(z, constant(8.31692669e-05f), -0.00081300555f, 0.00519991154f,
                                -0.0268589444f, 0.112836875f, -0.376126319f, 0.128379166f);
  const FloatVec near = hn::MulAdd(a, q, a);
  const FloatVec t = hn::Min(a, constant(4.0f));
  const FloatVec p = polynomial(t, constant(1.14234799e-05f), -0.000324727822f, 0.00365028391f,
                                -0.0237786174f, 0.106256105f, 0.635139704f, 0.128651351f);
  const FloatVec far = hn::Sub(constant(1.0f), vexp(hn::Neg(hn::MulAdd(t, p, t))));
  const FloatVec y = hn::CopySign(hn::IfThenElse(hn::Lt(a, constant(0.925f)), near, far), x);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// 1 / (1 + exp(-x))
HWY_INLINE FloatVec vsigmoid(FloatVec x) {
  const FloatVec one = constant(1.0f);
  return hn::Div(one, hn::Add(one, vexp(hn::Neg(x))));
}

// log(1 + x) for x in [0, 1]: the rounding of 1 + x is corrected by x / ((1 + x) - 1).
HWY_INLINE FloatVec vlog1p(FloatVec x) {
  const FloatVec one = constant(1.0f), sum = hn::Add(one, x), rounded = hn::Sub(sum, one);
  const auto lost = hn::Eq(rounded, hn::Zero(FloatTag()));
  const FloatVec divisor = hn::IfThenElse(lost, one, rounded);
  return hn::IfThenElse(lost, x, hn::Mul(vlog(sum), hn::Div(x, divisor)));
}

// max(x, 0) + log(1 + exp(-|x|)). NaN comes from the logarithm.
HWY_INLINE FloatVec vsoftplus(FloatVec x) {
  const FloatVec positive = hn::IfThenElseZero(hn::Gt(x, hn::Zero(FloatTag())), x);
  return hn::Add(positive, vlog1p(vexp(hn::Neg(hn::Abs(x)))));
}

// Near 0 an odd polynomial; elsewhere 1 - 2 / (exp(2 |x|) + 1).
HWY_INLINE FloatVec vtanh(FloatVec x) {
  const FloatVec a = hn::Abs(x), z = hn::Mul(x, x), one = constant(1.0f);
  const FloatVec q = polynomial(z, constant(-5.70498872745e-3f), 2.06390887954e-2f,
                                -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  const FloatVec near = hn::MulAdd(hn::Mul(a, z), q, a);
  const FloatVec far = hn::Sub(one, hn::Div(constant(2.0f), hn::Add(vexp(hn::Add(a, a)), one)));
  const FloatVec y = hn::CopySign(hn::IfThenElse(hn::Lt(a, constant(0.625f)), near, far), x);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // WEFT_KERNELS_MATH_INL_H
