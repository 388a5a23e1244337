#include "kernels/softmax_block.h"

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

using Mask = hn::Mask<FloatTag>;

// Calls f(vector at column c, which of its rows see column c) for all columns of the vector of rows
// from `lane`.
template <typename F>
HWY_INLINE void for_columns(const ScoreBlock& block, int64_t lane, const F& f) {
  const FloatTag d;
  // Columns before `all` are seen by every row; later ones by those rows that lie at or after them.
  const int64_t all = block.causal ? HWY_MIN(block.columns, block.first + lane + 1) : block.columns;
  int64_t c = 0;
  for (; c < all; ++c)
    f(c, block.data + c * block.width + lane, hn::FirstN(d, static_cast<size_t>(kLanes)));
  const FloatVec row = hn::Iota(d, static_cast<float>(lane));
  for (; c < block.columns; ++c)
    f(c, block.data + c * block.width + lane,
      hn::Ge(row, hn::Set(d, static_cast<float>(c - block.first))));
}

void softmax_block(const ScoreBlock& scores, float* top, float* inverse) {
  const FloatTag d;
  for (int64_t lane = 0; lane < scores.width; lane += kLanes) {
    FloatVec most = hn::LoadU(d, scores.data + lane);  // every row sees column 0
    for_columns(scores, lane, [&](int64_t, float* at, Mask seen) HWY_ATTR {
      most = hn::IfThenElse(seen, hn::Max(most, hn::LoadU(d, at)), most);
    });
    FloatVec even = hn::Zero(d), odd = hn::Zero(d);  // two sums: half the error, half the wait
    for_columns(scores, lane, [&](int64_t, float* at, Mask seen) HWY_ATTR {
      const FloatVec e = hn::IfThenElseZero(seen, vexp(hn::Sub(hn::LoadU(d, at), most)));
      hn::StoreU(e, d, at);
      odd = hn::Add(odd, e);
      const FloatVec swap = even;
      even = odd;
      odd = swap;
    });
    const FloatVec sum = hn::Add(even, odd);
    hn::StoreU(hn::Div(hn::Set(d, 1.0f), sum), d, inverse + lane);
    hn::StoreU(most, d, top + lane);
  }
}

void probability_block(const ScoreBlock& scores, const float* top, const float* inverse) {
  const FloatTag d;
  for (int64_t lane = 0; lane < scores.width; lane += kLanes) {
    const FloatVec shift = hn::LoadU(d, top + lane), factor = hn::LoadU(d, inverse + lane);
    for_columns(scores, lane, [&](int64_t, float* at, Mask seen) HWY_ATTR {
      hn::StoreU(hn::IfThenElseZero(seen, hn::Mul(vexp(hn::Sub(hn::LoadU(d, at), shift)), factor)),
                 d, at);
    });
  }
}

// The sum of p d is taken as that of p (d - pivot) + pivot, since the probabilities need not add to
// 1 exactly. The pivot is the gradient of the most probable column: the only one that counts where
// that has probability 1.
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities) {
  const FloatTag d;
  for (int64_t lane = 0; lane < grads.width; lane += kLanes) {
    const auto probability = [&](int64_t c) HWY_ATTR {
      return hn::LoadU(d, probabilities.data + c * probabilities.width + lane);
    };
    FloatVec most = hn::Zero(d), pivot = hn::Zero(d);
    for_columns(grads, lane,
                [&](int64_t c, float* at, Mask)
                    HWY_ATTR {  // of a column that is not seen the probability is 0
                      const FloatVec p = probability(c);
                      pivot = hn::IfThenElse(hn::Gt(p, most), hn::LoadU(d, at), pivot);
                      most = hn::Max(most, p);
                    });
    FloatVec even = hn::Zero(d), odd = hn::Zero(d);
    for_columns(grads, lane, [&](int64_t c, float* at, Mask seen) HWY_ATTR {
      const FloatVec off = hn::IfThenElseZero(seen, hn::Sub(hn::LoadU(d, at), pivot));
      odd = hn::MulAdd(probability(c), off, odd);
      const FloatVec swap = even;
      even = odd;
      odd = swap;
    });
    const FloatVec mean = hn::Add(pivot, hn::Add(even, odd));
    for_columns(grads, lane, [&](int64_t c, float* at, Mask seen) HWY_ATTR {
      hn::StoreU(hn::IfThenElseZero(seen, hn::Mul(probability(c), hn::Sub(hn::LoadU(d, at), mean))),
                 d, at);
    });
  }
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

void softmax_block(const ScoreBlock& scores, float* top, float* inverse) {
  HWY_DYNAMIC_DISPATCH(softmax_block)(scores, top, inverse);
}
void probability_block(const ScoreBlock& scores, const float* top, const float* inverse) {
  HWY_DYNAMIC_DISPATCH(probability_block)(scores, top, inverse);
}
void score_grad_block(const ScoreBlock& grads, const ScoreBlock& probabilities) {
  HWY_DYNAMIC_DISPATCH(score_grad_block)(grads, probabilities);
}

}  // namespace weft::kernels
#endif
