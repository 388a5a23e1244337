#include "kernels/loss.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/loss.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// max(x, 0) - x target, which is exact for targets 0 and 1, and log(1 + exp(-|x|)).
void binary_cross_entropy_terms(const float* x, const float* target, float* out, int64_t n) {
  map2(x, target, out, n, [](FloatVec v, FloatVec t) HWY_ATTR {
    const FloatVec positive = hn::IfThenElseZero(hn::Gt(v, hn::Zero(FloatTag())), v);
    return hn::Add(hn::NegMulAdd(v, t, positive), vlog1p(vexp(hn::Neg(hn::Abs(v)))));
  });
}

void binary_cross_entropy_grad(const float* x, const float* target, float factor, float* dx,
                               int64_t n) {
  const FloatVec f = constant(factor);
  map2(x, target, dx, n,
       [f](FloatVec v, FloatVec t) HWY_ATTR { return hn::Mul(hn::Sub(vsigmoid(v), t), f); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(binary_cross_entropy_terms);
HWY_EXPORT(binary_cross_entropy_grad);

namespace {

// Plain code: the partial sums are written out, so no compiler may reorder them and all machines
// agree.
template <typename F>
double sum(int64_t n, F&& term) {
  double part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) part[j] += term(i + j);
  for (int j = 0; i < n; ++i, ++j) part[j] += term(i);
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

}  // namespace

double squared_error(const float* a, const float* b, int64_t n) {
  return sum(n, [a, b](int64_t i) {
    const double difference = double{a[i]} - double{b[i]};
    return difference * difference;
  });
}

double binary_cross_entropy(const float* x, const float* target, int64_t n) {
  constexpr int64_t kChunk = 256;
  float terms[kChunk];
  double out = 0;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t count = std::min(kChunk, n - first);
    HWY_DYNAMIC_DISPATCH(binary_cross_entropy_terms)(x + first, target + first, terms, count);
    out += sum(count, [&terms](int64_t i) { return double{terms[i]}; });
  }
  return out;
}

void binary_cross_entropy_grad(const float* x, const float* target, float factor, float* dx,
                               int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_cross_entropy_grad)(x, target, factor, dx, n);
}

double sum_below(const float* x, float top, int64_t n) {
  return sum(n, [x, top](int64_t i) { return double{top} - double{x[i]}; });
}
double sum_below(const Bf16* x, float top, int64_t n) {
  return sum(n, [x, top](int64_t i) { return double{top} - double{to_float(x[i])}; });
}

}  // namespace weft::kernels
#endif
