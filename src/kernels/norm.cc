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

// Elements that are added in float32. In a longer sum of equal numbers, many roundings have the
// same direction.
constexpr int64_t kSummed = 4096;

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

void rms_norm(const float* x, const float* gamma, float eps, int64_t rows, int64_t n, float* out,
              float* rstd) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float squares =
        sum2(x, x, n, [](FloatVec v, FloatVec w) HWY_ATTR { return hn::Mul(v, w); });
    rstd[r] = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
    const FloatVec spread = constant(rstd[r]);
    map2(x, gamma, out, n,
         [spread](FloatVec v, FloatVec g) HWY_ATTR { return hn::Mul(hn::Mul(v, spread), g); });
  }
}

// With h = (x - mean) rstd and g = dy gamma:  dx = rstd (g - mean(g) - h mean(g h)). Without a
// mean, mean and mean(g) are 0.
void norm_grad(const float* x, const float* gamma, const float* dy, const float* mean,
               const float* rstd, int64_t rows, int64_t n, float* dx) {
  const float width = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, dy += n, dx += n) {
    const FloatVec center = constant(mean ? mean[r] : 0.0f), spread = constant(rstd[r]);
    const float g = !mean ? 0.0f : sum(n, [dy, gamma](int64_t i, int64_t count) HWY_ATTR {
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

template <typename T>
HWY_INLINE void add_gamma(const T* x, const T* dy, const float* mean, const float* rstd,
                          int64_t rows, int64_t n, int64_t begin, int64_t end, float* acc) {
  add_columns(rows, begin, end, acc, [=](int64_t r, int64_t c, int64_t count) HWY_ATTR {
    const FloatVec center = constant(mean ? mean[r] : 0.0f), spread = constant(rstd[r]);
    const FloatVec h = hn::Mul(hn::Sub(load(x + r * n + c, count), center), spread);
    return hn::Mul(h, load(dy + r * n + c, count));
  });
}

void gamma_of_floats(const float* x, const float* dy, const float* mean, const float* rstd,
                     int64_t rows, int64_t n, int64_t begin, int64_t end, float* acc) {
  add_gamma(x, dy, mean, rstd, rows, n, begin, end, acc);
}
void gamma_of_bf16(const Bf16* x, const Bf16* dy, const float* mean, const float* rstd,
                   int64_t rows, int64_t n, int64_t begin, int64_t end, float* acc) {
  add_gamma(x, dy, mean, rstd, rows, n, begin, end, acc);
}

void row_sums(const float* x, int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    double whole = 0;
    for (int64_t begin = 0; begin < n; begin += kSummed) {
      whole += static_cast<double>(sum(HWY_MIN(kSummed, n - begin),
                                       [x](int64_t i, int64_t count)
                                           HWY_ATTR { return load(x + i, count); }));
      x += HWY_MIN(kSummed, n - begin);
    }
    out[r] = static_cast<float>(whole);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(layer_norm);
HWY_EXPORT(rms_norm);
HWY_EXPORT(norm_grad);
HWY_EXPORT(gamma_of_floats);
HWY_EXPORT(gamma_of_bf16);
HWY_EXPORT(row_sums);

void layer_norm(const float* x, const float* gamma, const float* beta, float eps, int64_t rows,
                int64_t n, float* out, float* mean, float* rstd) {
  HWY_DYNAMIC_DISPATCH(layer_norm)(x, gamma, beta, eps, rows, n, out, mean, rstd);
}
void rms_norm(const float* x, const float* gamma, float eps, int64_t rows, int64_t n, float* out,
              float* rstd) {
  HWY_DYNAMIC_DISPATCH(rms_norm)(x, gamma, eps, rows, n, out, rstd);
}
void norm_grad(const float* x, const float* gamma, const float* dy, const float* mean,
               const float* rstd, int64_t rows, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(norm_grad)(x, gamma, dy, mean, rstd, rows, n, dx);
}
void norm_gamma(const float* x, const float* dy, const float* mean, const float* rstd, int64_t rows,
                int64_t n, int64_t begin, int64_t end, float* acc) {
  HWY_DYNAMIC_DISPATCH(gamma_of_floats)(x, dy, mean, rstd, rows, n, begin, end, acc);
}
void norm_gamma(const Bf16* x, const Bf16* dy, const float* mean, const float* rstd, int64_t rows,
                int64_t n, int64_t begin, int64_t end, float* acc) {
  HWY_DYNAMIC_DISPATCH(gamma_of_bf16)(x, dy, mean, rstd, rows, n, begin, end, acc);
}
void row_sums(const float* x, int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(row_sums)(x, rows, n, out);
}

}  // namespace weft::kernels
#endif
