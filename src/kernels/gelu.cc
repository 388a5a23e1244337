#include "kernels/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr float kRootHalf = 0.707106781f;  // sqrt(1/2)
constexpr float kDensity = 0.398942280f;   // 1 / sqrt(2 pi)
constexpr float kSlope = 1.59576912f;      // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

constexpr float kFlat = 30.0f;  // beyond it a share is 0 or 1 exactly, and its slope 0

// Products of x with a share or slope that is 0 there would be NaN for an infinite x. NaN comes
// from the share.
HWY_INLINE FloatVec bounded_below(FloatVec x) { return hn::Max(x, constant(-kFlat)); }
HWY_INLINE FloatVec bounded(FloatVec x) { return hn::Min(bounded_below(x), constant(kFlat)); }

// (1 + erf(x / sqrt 2)) / 2
HWY_INLINE FloatVec normal_share(FloatVec x) {
  return hn::MulAdd(constant(0.5f), verf(hn::Mul(x, constant(kRootHalf))), constant(0.5f));
}

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), with 2u = slope (x + cubic x^3)
HWY_INLINE FloatVec tanh_share(FloatVec x) {
  const FloatVec twice = hn::Mul(hn::Mul(constant(kSlope), x),
                                 hn::MulAdd(constant(kCubic), hn::Mul(x, x), constant(1.0f)));
  return hn::Div(constant(1.0f), hn::Add(constant(1.0f), vexp(hn::Neg(twice))));
}

void gelu_erf(const float* x, float* out, int64_t n) {
  map1(x, out, n, [](FloatVec v) HWY_ATTR { return hn::Mul(bounded_below(v), normal_share(v)); });
}

void gelu_erf_grad(const float* x, const float* dout, float* dx, int64_t n) {
  map2(x, dout, dx, n, [](FloatVec v, FloatVec dy) HWY_ATTR {
    const FloatVec density =
        hn::Mul(constant(kDensity), vexp(hn::Mul(hn::Mul(v, v), constant(-0.5f))));
    return hn::Mul(dy, hn::MulAdd(bounded(v), density, normal_share(v)));
  });
}

void gelu_tanh(const float* x, float* out, int64_t n) {
  map1(x, out, n, [](FloatVec v) HWY_ATTR { return hn::Mul(bounded_below(v), tanh_share(v)); });
}

void gelu_tanh_grad(const float* x, const float* dout, float* dx, int64_t n) {
  map2(x, dout, dx, n, [](FloatVec v, FloatVec dy) HWY_ATTR {
    const FloatVec one = constant(1.0f), share = tanh_share(v), near = bounded(v);
    const FloatVec slope =
        hn::Mul(constant(kSlope), hn::MulAdd(constant(3 * kCubic), hn::Mul(near, near), one));
    const FloatVec share_slope = hn::Mul(hn::Mul(share, hn::Sub(one, share)), slope);
    return hn::Mul(dy, hn::MulAdd(near, share_slope, share));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(gelu_erf);
HWY_EXPORT(gelu_erf_grad);
HWY_EXPORT(gelu_tanh);
HWY_EXPORT(gelu_tanh_grad);

void gelu_erf(const float* x, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(gelu_erf)(x, out, n); }
void gelu_erf_grad(const float* x, const float* dout, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_erf_grad)(x, dout, dx, n);
}
void gelu_tanh(const float* x, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh)(x, out, n);
}
void gelu_tanh_grad(const float* x, const float* dout, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_grad)(x, dout, dx, n);
}

}  // namespace weft::kernels
#endif
