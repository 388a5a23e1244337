#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/update.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVec set(float value) { return hn::Set(FloatTag(), value); }

// The bits of a parameter that its decay reads. Without decay it is the sign, because 0 times an
// infinite parameter is NaN.
HWY_INLINE FloatVec bits_for_decay(float l2) {
  return hn::BitCast(FloatTag(), hn::Set(BitsTag(), l2 == 0 ? 0x80000000u : 0xffffffffu));
}

void sgd(float* w, const float* grad, int64_t n, float scale, float l2, float rate) {
  const FloatVec s = set(scale), l = set(l2), bits = bits_for_decay(l2), r = set(rate);
  map2(w, grad, w, n, [=](FloatVec x, FloatVec g) HWY_ATTR {
    return hn::NegMulAdd(r, hn::MulAdd(l, hn::And(x, bits), hn::Mul(g, s)), x);
  });
}

void sgd_momentum(float* w, const float* grad, float* slot, int64_t n, float scale, float l2,
                  float rate, float momentum) {
  const FloatVec s = set(scale), l = set(l2), bits = bits_for_decay(l2), r = set(rate),
                 mu = set(momentum);
  map3(w, grad, slot, slot, n, [=](FloatVec x, FloatVec g, FloatVec old) HWY_ATTR {
    return hn::MulAdd(mu, old, hn::MulAdd(l, hn::And(x, bits), hn::Mul(g, s)));
  });
  map2(w, slot, w, n, [=](FloatVec x, FloatVec g) HWY_ATTR { return hn::NegMulAdd(r, g, x); });
}

struct AdamVecs {
  FloatVec w, m, v;
};

// As torch's single-tensor implementation: m by lerp, the root divided before eps is added.
HWY_INLINE AdamVecs adam_vector(AdamVecs x, FloatVec grad, const AdamStep& step) {
  const FloatVec g = hn::MulAdd(set(step.l2), hn::And(x.w, bits_for_decay(step.l2)),
                                hn::Mul(grad, set(step.scale)));
  const FloatVec m = hn::MulAdd(set(step.rest1), hn::Sub(g, x.m), x.m);
  const FloatVec v = hn::MulAdd(hn::Mul(set(step.rest2), g), g, hn::Mul(set(step.beta2), x.v));
  const FloatVec denominator = hn::MulAdd(hn::Sqrt(v), set(step.inverse_root2), set(step.eps));
  return {hn::NegMulAdd(set(step.size), hn::Div(m, denominator), hn::Mul(x.w, set(step.keep))), m,
          v};
}

void adam(float* w, const float* grad, float* m, float* v, int64_t n, const AdamStep& shared) {
  const FloatTag d;
  const AdamStep step = shared;
  const float* const read[] = {w, grad, m, v};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (const float* x : read) __builtin_prefetch(x + i + kFetchAhead, 0, 2);
    const AdamVecs y = adam_vector({hn::LoadU(d, w + i), hn::LoadU(d, m + i), hn::LoadU(d, v + i)},
                                   hn::LoadU(d, grad + i), step);
    hn::StoreU(y.w, d, w + i);
    hn::StoreU(y.m, d, m + i);
    hn::StoreU(y.v, d, v + i);
  }
  if (i == n) return;
  const int64_t rest = n - i;
  const AdamVecs y =
      adam_vector({load_tail(w + i, rest), load_tail(m + i, rest), load_tail(v + i, rest)},
                  load_tail(grad + i, rest), step);
  store_tail(y.w, w + i, rest);
  store_tail(y.m, m + i, rest);
  store_tail(y.v, v + i, rest);
}

// Partial j holds elements j, j + 16, .. whatever the width of a vector; a product of floats is
// exact in double, so all targets agree.
constexpr int64_t kPartials = 16;

double sum_of_squares(const float* x, int64_t n) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> half;
  constexpr int64_t kDoubles = static_cast<int64_t>(hn::MaxLanes(d));
  hn::Vec<decltype(d)> part[kPartials / kDoubles];
  for (auto& p : part) p = hn::Zero(d);
  const auto take = [&](const float* from) HWY_ATTR {
    for (int64_t j = 0; j < kPartials / kDoubles; ++j) {
      const auto wide = hn::PromoteTo(d, hn::LoadU(half, from + j * kDoubles));
      part[j] = hn::MulAdd(wide, wide, part[j]);
    }
  };
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
    hwy::Prefetch(x + i + kFetchAhead);
    take(x + i);
  }
  if (i < n) {
    float rest[kPartials] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
    take(rest);
  }
  HWY_ALIGN double lanes[kPartials];
  for (int64_t j = 0; j < kPartials / kDoubles; ++j) hn::Store(part[j], d, lanes + j * kDoubles);
  for (int64_t width = kPartials / 2; width > 0; width /= 2)
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(sgd);
HWY_EXPORT(sgd_momentum);
HWY_EXPORT(adam);
HWY_EXPORT(sum_of_squares);

void sgd(float* w, const float* grad, int64_t n, float scale, float l2, float rate) {
  HWY_DYNAMIC_DISPATCH(sgd)(w, grad, n, scale, l2, rate);
}
void sgd_momentum(float* w, const float* grad, float* slot, int64_t n, float scale, float l2,
                  float rate, float momentum) {
  HWY_DYNAMIC_DISPATCH(sgd_momentum)(w, grad, slot, n, scale, l2, rate, momentum);
}
void adam(float* w, const float* grad, float* m, float* v, int64_t n, const AdamStep& step) {
  HWY_DYNAMIC_DISPATCH(adam)(w, grad, m, v, n, step);
}
double sum_of_squares(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares)(x, n);
}

}  // namespace weft::kernels
#endif
