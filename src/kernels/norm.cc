#include "kernels/norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void layer_norm(const float* x, const float* gamma, const float* beta, float eps, int64_t rows,
                int64_t n, float* out, float* mean, float* rstd) {
  const float width = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float first =
        sum(n, [x](int64_t i, int64_t count) HWY_ATTR { return load(x + i, count); }) / width;
    // What is left of the row's sum around the first mean: its rounding, which would be all there
    // is of a row of equal numbers.
    const FloatVec near = constant(first);
    const float rest = sum(n, [x, near](int64_t i, int64_t count)
                                  HWY_ATTR { return hn::Sub(load(x + i, count), near); }) /
                       width;
    mean[r] = first + rest;
    const FloatVec center = constant(mean[r]);
    const float squares = sum(n, [x, center](int64_t i, int64_t count) HWY_ATTR {
      const FloatVec off = hn::Sub(load(x + i, count), center);
      return hn::Mul(off, off);
    });
    rstd[r] = 1.0f / std::sqrt(squares / width + eps);
    const FloatVec spread = constant(rstd[r]);
    map3(x, gamma, beta, out, n, [center, spread](FloatVec v, FloatVec g, FloatVec b) HWY_ATTR {
      return hn::MulAdd(hn::Mul(hn::Sub(v, center), spread), g, b);
    });
  }
}

// With h = (x - mean) rstd and g = dy gamma:  dx = rstd (g - mean(g) - h mean(g h))
void layer_norm_grad(const float* x, const float* gamma, const float* dy, const float* mean,
                     const float* rstd, int64_t rows, int64_t n, float* dx) {
  const float width = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, dy += n, dx += n) {
    const FloatVec center = constant(mean[r]), spread = constant(rstd[r]);
    const float g = sum(n, [dy, gamma](int64_t i, int64_t count) HWY_ATTR {
      return hn::Mul(load(dy + i, count), load(gamma + i, count));
    });
    const float gh = sum(n, [x, dy, gamma, center, spread](int64_t i, int64_t count) HWY_ATTR {
      const FloatVec h = hn::Mul(hn::Sub(load(x + i, count), center), spread);
      return hn::Mul(hn::Mul(load(dy + i, count), load(gamma + i, count)), h);
    });
    const FloatVec mean_g = constant(g / width), mean_gh = constant(gh / width);
    map3(x, dy, gamma, dx, n, [=](FloatVec v, FloatVec dv, FloatVec w) HWY_ATTR {
      const FloatVec h = hn::Mul(hn::Sub(v, center), spread);
      return hn::Mul(spread, hn::NegMulAdd(h, mean_gh, hn::Sub(hn::Mul(dv, w), mean_g)));
    });
  }
}

void layer_norm_gamma(const float* x, const float* dy, const float* mean, const float* rstd,
                      int64_t rows, int64_t n, int64_t begin, int64_t end, float* acc) {
  for (int64_t c = begin; c < end; c += kLanes) {
    const int64_t count = HWY_MIN(kLanes, end - c);
    const FloatVec total = sum_rows(rows, [=](int64_t r) HWY_ATTR {
      const FloatVec h =
          hn::Mul(hn::Sub(load(x + r * n + c, count), constant(mean[r])), constant(rstd[r]));
      return hn::Mul(h, load(dy + r * n + c, count));
    });
    store_tail(hn::Add(load(acc + c, count), total), acc + c, count);
  }
}

void row_sums(const float* x, int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n)
    out[r] = sum(n, [x](int64_t i, int64_t count) HWY_ATTR { return load(x + i, count); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_grad);
HWY_EXPORT(layer_norm_gamma);
HWY_EXPORT(row_sums);

void layer_norm(const float* x, const float* gamma, const float* beta, float eps, int64_t rows,
                int64_t n, float* out, float* mean, float* rstd) {
  HWY_DYNAMIC_DISPATCH(layer_norm)(x, gamma, beta, eps, rows, n, out, mean, rstd);
}
void layer_norm_grad(const float* x, const float* gamma, const float* dy, const float* mean,
                     const float* rstd, int64_t rows, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(layer_norm_grad)(x, gamma, dy, mean, rstd, rows, n, dx);
}
void layer_norm_gamma(const float* x, const float* dy, const float* mean, const float* rstd,
                      int64_t rows, int64_t n, int64_t begin, int64_t end, float* acc) {
  HWY_DYNAMIC_DISPATCH(layer_norm_gamma)(x, dy, mean, rstd, rows, n, begin, end, acc);
}
void row_sums(const float* x, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(row_sums)(x, rows, n, out);
}

}  // namespace weft::kernels
#endif
