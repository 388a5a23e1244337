#include "kernels/softmax_block.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_block.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE float row_maximum(const float* x, int64_t n) {
  const FloatTag d;
  FloatVec most = hn::Set(d, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = hn::Max(most, hn::LoadU(d, x + i));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

HWY_INLINE void clear_hidden(const ScoreBlock& block, int64_t i) {
  const int64_t visible = block.visible(i);
  std::memset(block.row(i) + visible, 0, static_cast<size_t>(block.columns - visible) * sizeof(float));
}

HWY_INLINE void exp_minus(float* x, float shift, int64_t n) {
  const FloatVec s = hn::Set(FloatTag(), shift);
  map1(x, x, n, [s](FloatVec v) HWY_ATTR { return vexp(hn::Sub(v, s)); });
}

void softmax_block(const ScoreBlock& scores, float* inverse, float* lse) {
  for (int64_t i = 0; i < scores.rows; ++i) {
    float* row = scores.row(i);
    const int64_t visible = scores.visible(i);
    const float maximum = row_maximum(row, visible);
    exp_minus(row, maximum, visible);
    const float sum = sum2(row, row, visible, [](FloatVec v, FloatVec) HWY_ATTR { return v; });
    clear_hidden(scores, i);
    inverse[i] = 1 / sum;
    lse[i] = maximum + hn::GetLane(vlog(hn::Set(FloatTag(), sum)));
  }
}

void probability_block(const ScoreBlock& scores, const float* lse) {
  for (int64_t i = 0; i < scores.rows; ++i) {
    exp_minus(scores.row(i), lse[i], scores.visible(i));
    clear_hidden(scores, i);
  }
}

void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities, const float* delta) {
  for (int64_t i = 0; i < grads.rows; ++i) {
    const FloatVec shift = hn::Set(FloatTag(), delta[i]);
    map2(grads.row(i), probabilities.row(i), grads.row(i), grads.visible(i),
         [shift](FloatVec g, FloatVec p) HWY_ATTR { return hn::Mul(p, hn::Sub(g, shift)); });
    clear_hidden(grads, i);
  }
}

float dot(const float* x, const float* y, int64_t n) {
  return sum2(x, y, n, [](FloatVec a, FloatVec b) HWY_ATTR { return hn::Mul(a, b); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(softmax_block);
HWY_EXPORT(probability_block);
HWY_EXPORT(score_grad_block);
HWY_EXPORT(dot);

void softmax_block(const ScoreBlock& scores, float* inverse, float* lse) {
  HWY_DYNAMIC_DISPATCH(softmax_block)(scores, inverse, lse);
}
void probability_block(const ScoreBlock& scores, const float* lse) { HWY_DYNAMIC_DISPATCH(probability_block)(scores, lse); }
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities, const float* delta) {
  HWY_DYNAMIC_DISPATCH(score_grad_block)(grads, probabilities, delta);
}
float dot(const float* x, const float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(dot)(x, y, n); }

}  // namespace weft::kernels
#endif
