#include "kernels/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// exp(x - top) for each element of a row to out; returns their sum.
HWY_INLINE float shifted_exponentials(const float* x, float top, int64_t n, float* out) {
  const FloatVec shift = constant(top);
  map1(x, out, n, [shift](FloatVec v) HWY_ATTR { return vexp(hn::Sub(v, shift)); });
  return sum(n, [out](int64_t i, int64_t count) HWY_ATTR { return load(out + i, count); });
}

void softmax(const float* x, int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float total = shifted_exponentials(x, maximum(x, n), n, out);
    const FloatVec factor = constant(1.0f / total);
    map1(out, out, n, [factor](FloatVec v) HWY_ATTR { return hn::Mul(v, factor); });
  }
}

// dx = y (dy - sum of dy y)
void softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    const FloatVec dot = constant(sum(n, [y, dy](int64_t i, int64_t count) HWY_ATTR {
      return hn::Mul(load(y + i, count), load(dy + i, count));
    }));
    map2(y, dy, dx, n,
         [dot](FloatVec v, FloatVec dv) HWY_ATTR { return hn::Mul(v, hn::Sub(dv, dot)); });
  }
}

template <typename T>
HWY_INLINE void logs(const T* x, int64_t rows, int64_t n, float* top, float* log) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    top[r] = maximum(x, n);
    const FloatVec shift = constant(top[r]);
    const float total = sum(n, [x, shift](int64_t i, int64_t count)
                                   HWY_ATTR { return vexp(hn::Sub(load(x + i, count), shift)); });
    log[r] = hn::GetLane(vlog(constant(total)));
  }
}

void logs_of_floats(const float* x, int64_t rows, int64_t n, float* top, float* log) {
  logs(x, rows, n, top, log);
}
void logs_of_bf16(const Bf16* x, int64_t rows, int64_t n, float* top, float* log) {
  logs(x, rows, n, top, log);
}

// x - top is exact near the maximum, however large that is.
void log_softmax(const float* x, int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    float top = 0, log = 0;
    logs(x, 1, n, &top, &log);
    const FloatVec shift = constant(top), rest = constant(log);
    map1(x, out, n,
         [shift, rest](FloatVec v) HWY_ATTR { return hn::Sub(hn::Sub(v, shift), rest); });
  }
}

// dx = dy - exp(y) (sum of dy)
void log_softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    const FloatVec total =
        constant(sum(n, [dy](int64_t i, int64_t count) HWY_ATTR { return load(dy + i, count); }));
    map2(y, dy, dx, n,
         [total](FloatVec v, FloatVec dv) HWY_ATTR { return hn::NegMulAdd(vexp(v), total, dv); });
  }
}

void log_sum_exp_grad(const float* x, float top, float log, float factor, int64_t n, float* dx) {
  const FloatVec shift = constant(top);
  const FloatVec weight = hn::Mul(vexp(constant(-log)), constant(factor));
  map1(x, dx, n,
       [shift, weight](FloatVec v) HWY_ATTR { return hn::Mul(vexp(hn::Sub(v, shift)), weight); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_grad);
HWY_EXPORT(log_softmax);
HWY_EXPORT(log_softmax_grad);
HWY_EXPORT(logs_of_floats);
HWY_EXPORT(logs_of_bf16);
HWY_EXPORT(log_sum_exp_grad);

void softmax(const float* x, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(softmax)(x, rows, n, out);
}
void softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(softmax_grad)(y, dy, rows, n, dx);
}
void log_softmax(const float* x, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(log_softmax)(x, rows, n, out);
}
void log_softmax_grad(const float* y, const float* dy, int64_t rows, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(log_softmax_grad)(y, dy, rows, n, dx);
}
void log_sum_exp(const float* x, int64_t rows, int64_t n, float* top, float* log) {
  HWY_DYNAMIC_DISPATCH(logs_of_floats)(x, rows, n, top, log);
}
void log_sum_exp(const Bf16* x, int64_t rows, int64_t n, float* top, float* log) {
  HWY_DYNAMIC_DISPATCH(logs_of_bf16)(x, rows, n, top, log);
}
void log_sum_exp_grad(const float* x, float top, float log, float factor, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(log_sum_exp_grad)(x, top, log, factor, n, dx);
}

}  // namespace weft::kernels
#endif
