#include "kernels/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/batch_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// The sum over rows of term(row).
template <typename F>
HWY_INLINE FloatVec sum_of_rows(int64_t rows, const F& term) {
  return sum_rows<1>(rows, [&term](int64_t r, int) HWY_ATTR { return term(r); }).part[0];
}

void column_moments(const float* x, int64_t rows, int64_t n, int64_t begin, int64_t end,
                    float* mean, float* variance) {
  const FloatVec share = constant(1.0f / static_cast<float>(rows));
  for (int64_t c = begin; c < end; c += kLanes) {
    const int64_t count = HWY_MIN(kLanes, end - c);
    const FloatVec near = hn::Mul(
        sum_of_rows(rows, [&](int64_t r) HWY_ATTR { return load(x + r * n + c, count); }), share);
    // What is left of the sum around the first mean: its rounding.
    const FloatVec rest = hn::Mul(
        sum_of_rows(rows,
                    [&](int64_t r) HWY_ATTR { return hn::Sub(load(x + r * n + c, count), near); }),
        share);
    const FloatVec center = hn::Add(near, rest);
    const FloatVec squares = sum_of_rows(rows, [&](int64_t r) HWY_ATTR {
      const FloatVec off = hn::Sub(load(x + r * n + c, count), center);
      return hn::Mul(off, off);
    });
    store(center, mean + c, count);
    store(hn::Mul(squares, share), variance + c, count);
  }
}

void column_products(const float* x, const float* mean, const float* dy, int64_t rows, int64_t n,
                     int64_t begin, int64_t end, float* out) {
  for (int64_t c = begin; c < end; c += kLanes) {
    const int64_t count = HWY_MIN(kLanes, end - c);
    const FloatVec center = load(mean + c, count);
    const FloatVec products = sum_of_rows(rows, [&](int64_t r) HWY_ATTR {
      const int64_t at = r * n + c;
      return hn::Mul(load(dy + at, count), hn::Sub(load(x + at, count), center));
    });
    store(products, out + c, count);
  }
}

void scale_columns(const float* x, const float* mean, const float* scale, const float* shift,
                   int64_t rows, int64_t n, float* out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += kLanes) {
      const int64_t count = HWY_MIN(kLanes, n - c), at = r * n + c;
      const FloatVec off = hn::Sub(load(x + at, count), load(mean + c, count));
      store(hn::MulAdd(off, load(scale + c, count), load(shift + c, count)), out + at, count);
    }
}

void scale_columns_grad(const float* x, const float* dy, const float* mean, const float* scale,
                        const float* g, const float* h, int64_t rows, int64_t n, float* dx) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += kLanes) {
      const int64_t count = HWY_MIN(kLanes, n - c), at = r * n + c;
      const FloatVec off = hn::Sub(load(x + at, count), load(mean + c, count));
      const FloatVec rest = hn::Sub(load(dy + at, count), load(g + c, count));
      store(hn::Mul(load(scale + c, count), hn::NegMulAdd(off, load(h + c, count), rest)), dx + at,
            count);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(column_moments);
HWY_EXPORT(column_products);
HWY_EXPORT(scale_columns);
HWY_EXPORT(scale_columns_grad);

void column_moments(const float* x, int64_t rows, int64_t n, int64_t begin, int64_t end,
                    float* mean, float* variance) {
  HWY_DYNAMIC_DISPATCH(column_moments)(x, rows, n, begin, end, mean, variance);
}
void column_products(const float* x, const float* mean, const float* dy, int64_t rows, int64_t n,
                     int64_t begin, int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(column_products)(x, mean, dy, rows, n, begin, end, out);
}
void scale_columns(const float* x, const float* mean, const float* scale, const float* shift,
                   int64_t rows, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(scale_columns)(x, mean, scale, shift, rows, n, out);
}
void scale_columns_grad(const float* x, const float* dy, const float* mean, const float* scale,
                        const float* g, const float* h, int64_t rows, int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(scale_columns_grad)(x, dy, mean, scale, g, h, rows, n, dx);
}

}  // namespace weft::kernels
#endif
