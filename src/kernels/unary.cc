#include "kernels/unary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/unary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// Each has the name that its row in unary.def has.
namespace functions {

struct exp {
  static HWY_INLINE FloatVec value(FloatVec x) { return vexp(x); }
  static HWY_INLINE FloatVec gradient(FloatVec y, FloatVec dy) { return hn::Mul(dy, y); }
};

struct log {
  static HWY_INLINE FloatVec value(FloatVec x) { return vlog(x); }
  static HWY_INLINE FloatVec gradient(FloatVec x, FloatVec dy) { return hn::Div(dy, x); }
};

struct neg {
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Neg(x); }
  static HWY_INLINE FloatVec gradient(FloatVec, FloatVec dy) { return hn::Neg(dy); }
};

// A comparison instead of a maximum: NaN and -0 stay what they are.
struct relu {
  static HWY_INLINE FloatVec value(FloatVec x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(FloatTag())), x);
  }
  static HWY_INLINE FloatVec gradient(FloatVec y, FloatVec dy) {
    return hn::IfThenZeroElse(hn::Le(y, hn::Zero(FloatTag())), dy);
  }
};

struct sigmoid {
  static HWY_INLINE FloatVec value(FloatVec x) { return vsigmoid(x); }
  static HWY_INLINE FloatVec gradient(FloatVec y, FloatVec dy) {
    return hn::Mul(dy, hn::Mul(y, hn::Sub(constant(1.0f), y)));
  }
};

// Beyond 105 the sigmoid is 0 or 1 exactly; without the bound its product with an infinite x would
// be NaN.
struct silu {
  static HWY_INLINE FloatVec bounded_below(FloatVec x) { return hn::Max(x, constant(-105.0f)); }
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Mul(bounded_below(x), vsigmoid(x)); }
  static HWY_INLINE FloatVec gradient(FloatVec x, FloatVec dy) {
    const FloatVec one = constant(1.0f), share = vsigmoid(x);
    const FloatVec near = hn::Min(bounded_below(x), constant(105.0f));
    const FloatVec slope = hn::Mul(share, hn::MulAdd(near, hn::Sub(one, share), one));
    return hn::Mul(dy, slope);
  }
};

// max(x, 0) + log(1 + exp(-|x|))
struct softplus {
  static HWY_INLINE FloatVec value(FloatVec x) { return vsoftplus(x); }
  static HWY_INLINE FloatVec gradient(FloatVec x, FloatVec dy) { return hn::Mul(dy, vsigmoid(x)); }
};

struct sqrt {
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Sqrt(x); }
  static HWY_INLINE FloatVec gradient(FloatVec y, FloatVec dy) {
    return hn::Div(hn::Mul(dy, constant(0.5f)), y);
  }
};

struct tanh {
  static HWY_INLINE FloatVec value(FloatVec x) { return vtanh(x); }
  static HWY_INLINE FloatVec gradient(FloatVec y, FloatVec dy) {
    return hn::Mul(dy, hn::NegMulAdd(y, y, constant(1.0f)));
  }
};

}  // namespace functions

template <typename Function>
HWY_INLINE void value_of(const float* x, float* out, int64_t n) {
  map1(x, out, n, [](FloatVec v) HWY_ATTR { return Function::value(v); });
}

template <typename Function>
HWY_INLINE void gradient_of(const float* saved, const float* dout, float* dx, int64_t n) {
  map2(saved, dout, dx, n,
       [](FloatVec v, FloatVec dy) HWY_ATTR { return Function::gradient(v, dy); });
}

#define WEFT_UNARY(name, saved, forward_flops, gradient_flops)                               \
  void name(const float* x, float* out, int64_t n) { value_of<functions::name>(x, out, n); } \
  void name##_grad(const float* saved, const float* dout, float* dx, int64_t n) {            \
    gradient_of<functions::name>(saved, dout, dx, n);                                        \
  }
#include "kernels/unary.def"
#undef WEFT_UNARY

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

#define WEFT_UNARY(name, saved, forward_flops, gradient_flops)                                \
  HWY_EXPORT(name);                                                                           \
  HWY_EXPORT(name##_grad);                                                                    \
  void name(const float* x, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(name)(x, out, n); } \
  void name##_grad(const float* saved, const float* dout, float* dx, int64_t n) {             \
    HWY_DYNAMIC_DISPATCH(name##_grad)(saved, dout, dx, n);                                    \
  }
#include "kernels/unary.def"
#undef WEFT_UNARY

}  // namespace weft::kernels
#endif
