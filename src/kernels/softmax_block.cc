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

// `yes` where the row of a lane sees the column of the vector, `no` elsewhere.
struct AllSeen {
  HWY_INLINE FloatVec choose(FloatVec yes, FloatVec) const { return yes; }
};
struct NoneSeen {
  HWY_INLINE FloatVec choose(FloatVec, FloatVec no) const { return no; }
};
struct SomeSeen {
  hn::Mask<FloatTag> mask;
  HWY_INLINE FloatVec choose(FloatVec yes, FloatVec no) const {
    return hn::IfThenElse(mask, yes, no);
  }
};

// Calls f(column, place of the vector in the tile, which lanes see it) for the columns that any of
// the rows from `lane` sees.
template <typename F>
HWY_INLINE void for_columns(const ScoreTile& tile, int64_t lane, const F& f) {
  const FloatTag d;
  const int64_t row = tile.first_row + lane, group = tile.first_row + lane / 16 * 16;
  const int64_t end = tile.causal ? HWY_MIN(tile.end, group + 16) : tile.end;
  const int64_t all = tile.starts ? tile.begin : tile.causal ? HWY_MIN(end, row + 1) : end;
  int64_t c = tile.begin, at = lane;
  if (tile.seen) {
    for (; c < end; ++c, at += tile.width) {
      if (tile.seen[c] != 0)
        f(c, at, AllSeen());
      else
        f(c, at, NoneSeen());
    }
    return;
  }
  for (; c < all; ++c, at += tile.width) f(c, at, AllSeen());
  const hn::RebindToSigned<FloatTag> whole;
  const auto rows = hn::Iota(whole, static_cast<int32_t>(row));
  const auto starts = tile.starts ? hn::LoadU(whole, tile.starts + lane) : hn::Zero(whole);
  for (; c < end; ++c, at += tile.width) {
    const auto column = hn::Set(whole, static_cast<int32_t>(c));
    const auto hidden = hn::Or(hn::Gt(column, rows), hn::Gt(starts, column));
    f(c, at, SomeSeen{hn::RebindMask(d, hn::Not(hidden))});
  }
}

void raise_tops(const ScoreTile& scores, float* top) {
  const FloatTag d;
  for (int64_t lane = 0; lane < scores.width; lane += kLanes) {
    FloatVec most = hn::LoadU(d, top + lane);
    for_columns(scores, lane, [&](int64_t, int64_t at, auto seen) HWY_ATTR {
      most = seen.choose(hn::Max(most, hn::LoadU(d, scores.data + at)), most);
    });
    hn::StoreU(most, d, top + lane);
  }
}

// Adds the sum of term(lane, place, which lanes see it, sum so far) over the columns to `sums`: two
// sums, half the error and half the wait.
template <typename F>
HWY_INLINE void add_to_sums(const ScoreTile& tile, float* sums, const F& term) {
  const FloatTag d;
  for (int64_t lane = 0; lane < tile.width; lane += kLanes) {
    FloatVec next = hn::Zero(d), other = next;
    for_columns(tile, lane, [&](int64_t, int64_t at, auto seen) HWY_ATTR {
      const FloatVec sum = term(lane, at, seen, next);
      next = other;
      other = sum;
    });
    hn::StoreU(hn::Add(hn::LoadU(d, sums + lane), hn::Add(next, other)), d, sums + lane);
  }
}

void exponentials(const ScoreTile& scores, const float* top, float* sums) {
  const FloatTag d;
  add_to_sums(scores, sums, [&](int64_t lane, int64_t at, auto seen, FloatVec sum) HWY_ATTR {
    const FloatVec shifted = hn::Sub(hn::LoadU(d, scores.data + at), hn::LoadU(d, top + lane));
    const FloatVec e = seen.choose(vexp(shifted), hn::Zero(d));
    hn::StoreU(e, d, scores.data + at);
    return hn::Add(sum, e);
  });
}

void probabilities(const ScoreTile& scores, const float* top, const float* inverse) {
  const FloatTag d;
  for (int64_t lane = 0; lane < scores.width; lane += kLanes) {
    const FloatVec shift = hn::LoadU(d, top + lane), factor = hn::LoadU(d, inverse + lane);
    for_columns(scores, lane, [&](int64_t, int64_t at, auto seen) HWY_ATTR {
      const FloatVec e = vexp(hn::Sub(hn::LoadU(d, scores.data + at), shift));
      hn::StoreU(seen.choose(hn::Mul(e, factor), hn::Zero(d)), d, scores.data + at);
    });
  }
}

// Of a column that is not seen the probability is 0.
void raise_pivots(const ScoreTile& grads, const float* p, float* most, float* pivot) {
  const FloatTag d;
  for (int64_t lane = 0; lane < grads.width; lane += kLanes) {
    FloatVec top = hn::LoadU(d, most + lane), there = hn::LoadU(d, pivot + lane);
    for_columns(grads, lane, [&](int64_t, int64_t at, auto) HWY_ATTR {
      const FloatVec probability = hn::LoadU(d, p + at);
      there = hn::IfThenElse(hn::Gt(probability, top), hn::LoadU(d, grads.data + at), there);
      top = hn::Max(top, probability);
    });
    hn::StoreU(top, d, most + lane);
    hn::StoreU(there, d, pivot + lane);
  }
}

void add_deviations(const ScoreTile& grads, const float* p, const float* pivot, float* sums) {
  const FloatTag d;
  add_to_sums(grads, sums, [&](int64_t lane, int64_t at, auto seen, FloatVec sum) HWY_ATTR {
    const FloatVec off = hn::Sub(hn::LoadU(d, grads.data + at), hn::LoadU(d, pivot + lane));
    return hn::MulAdd(hn::LoadU(d, p + at), seen.choose(off, hn::Zero(d)), sum);
  });
}

void score_grads(const ScoreTile& grads, const float* p, const float* mean) {
  const FloatTag d;
  for (int64_t lane = 0; lane < grads.width; lane += kLanes) {
    const FloatVec middle = hn::LoadU(d, mean + lane);
    for_columns(grads, lane, [&](int64_t, int64_t at, auto seen) HWY_ATTR {
      const FloatVec off = hn::Sub(hn::LoadU(d, grads.data + at), middle);
      hn::StoreU(seen.choose(hn::Mul(hn::LoadU(d, p + at), off), hn::Zero(d)), d, grads.data + at);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(raise_tops);
HWY_EXPORT(exponentials);
HWY_EXPORT(probabilities);
HWY_EXPORT(raise_pivots);
HWY_EXPORT(add_deviations);
HWY_EXPORT(score_grads);

void raise_tops(const ScoreTile& scores, float* top) {
  HWY_DYNAMIC_DISPATCH(raise_tops)(scores, top);
}
void exponentials(const ScoreTile& scores, const float* top, float* sums) {
  HWY_DYNAMIC_DISPATCH(exponentials)(scores, top, sums);
}
void probabilities(const ScoreTile& scores, const float* top, const float* inverse) {
  HWY_DYNAMIC_DISPATCH(probabilities)(scores, top, inverse);
}
void raise_pivots(const ScoreTile& grads, const float* p, float* most, float* pivot) {
  HWY_DYNAMIC_DISPATCH(raise_pivots)(grads, p, most, pivot);
}
void add_deviations(const ScoreTile& grads, const float* p, const float* pivot, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_deviations)(grads, p, pivot, sums);
}
void score_grads(const ScoreTile& grads, const float* p, const float* mean) {
  HWY_DYNAMIC_DISPATCH(score_grads)(grads, p, mean);
}

}  // namespace weft::kernels
#endif
