#include "kernels/elementwise.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void add(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, [](FloatVec x, FloatVec y) HWY_ATTR { return hn::Add(x, y); });
}

void sub(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, [](FloatVec x, FloatVec y) HWY_ATTR { return hn::Sub(x, y); });
}

void mul(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, [](FloatVec x, FloatVec y) HWY_ATTR { return hn::Mul(x, y); });
}

void div(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, [](FloatVec x, FloatVec y) HWY_ATTR { return hn::Div(x, y); });
}

void scale(const float* x, float factor, float* out, int64_t n) {
  const FloatVec f = hn::Set(FloatTag(), factor);
  map1(x, out, n, [f](FloatVec v) HWY_ATTR { return hn::Mul(v, f); });
}

void add_zero(float* x, int64_t n) {
  const FloatTag d;
  const BitsTag bits;
  const auto negative = hn::Set(bits, 0x80000000u);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hwy::Prefetch(x + i + kFetchAhead);
    const FloatVec value = hn::LoadU(d, x + i);
    if (!hn::AllFalse(bits, hn::Eq(hn::BitCast(bits, value), negative)))
      hn::StoreU(hn::Add(value, hn::Zero(d)), d, x + i);
  }
  for (; i < n; ++i) x[i] += 0.0f;
}

void clear_past_caches(float* out, int64_t n) {
  const FloatTag d;
  int64_t i = 0;
  if (reinterpret_cast<uintptr_t>(out) % (kLanes * sizeof(float)) == 0)
    for (; i + kLanes <= n; i += kLanes) hn::Stream(hn::Zero(d), d, out + i);
  std::fill(out + i, out + n, 0.0f);
  hwy::FlushStream();
}

void scaled_difference(const float* a, const float* b, float factor, float* out, int64_t n) {
  const FloatVec f = hn::Set(FloatTag(), factor);
  map2(a, b, out, n, [f](FloatVec x, FloatVec y) HWY_ATTR { return hn::Mul(hn::Sub(x, y), f); });
}

void softcap(const float* x, float cap, float* out, int64_t n) {
  const FloatVec most = constant(cap), inverse = constant(1 / cap);
  map1(x, out, n,
       [most, inverse](FloatVec v) HWY_ATTR { return hn::Mul(most, vtanh(hn::Mul(v, inverse))); });
}

void softcap_grad(const float* y, const float* dout, float cap, float* dx, int64_t n) {
  const FloatVec inverse = constant(1 / cap), one = constant(1.0f);
  map2(y, dout, dx, n, [inverse, one](FloatVec v, FloatVec dy) HWY_ATTR {
    const FloatVec t = hn::Mul(v, inverse);
    const FloatVec dv = hn::Mul(dy, hn::NegMulAdd(t, t, one));
    return hn::IfThenElse(hn::Eq(dy, hn::Zero(FloatTag())), dy, dv);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(add);
HWY_EXPORT(sub);
HWY_EXPORT(mul);
HWY_EXPORT(div);
HWY_EXPORT(add_zero);
HWY_EXPORT(clear_past_caches);
HWY_EXPORT(scale);
HWY_EXPORT(scaled_difference);
HWY_EXPORT(softcap);
HWY_EXPORT(softcap_grad);

void add(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add)(a, b, out, n);
}
void mul(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(mul)(a, b, out, n);
}
void sub(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sub)(a, b, out, n);
}
void div(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(div)(a, b, out, n);
}
void add_zero(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(add_zero)(x, n); }
void clear_past_caches(float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(clear_past_caches)(out, n); }
void scale(const float* x, float factor, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(scale)(x, factor, out, n);
}
void scaled_difference(const float* a, const float* b, float factor, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(scaled_difference)(a, b, factor, out, n);
}
void softcap(const float* x, float cap, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(softcap)(x, cap, out, n);
}
void softcap_grad(const float* y, const float* dout, float cap, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(softcap_grad)(y, dout, cap, dx, n);
}

}  // namespace weft::kernels
#endif
