// Loops over vectors, compiled once per SIMD target (no include guard in the usual sense: see
// foreach_target.h).
//
// An element's result never depends on where it lies: the last, short vector is copied to a full
// one and goes through the same code, and memory is read unaligned. A reduction has kFolds partial
// sums whatever the width of a vector, so targets that have fused multiply-add give the same bits.
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(WEFT_KERNELS_MAP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_MAP_INL_H
#undef WEFT_KERNELS_MAP_INL_H
#else
#define WEFT_KERNELS_MAP_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/bf16.h"
#include "kernels/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<Bf16, FloatTag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
constexpr int64_t kFolds = 32;
constexpr int64_t kFoldVecs = kFolds / kLanes;
// Floats between what is used and what is fetched, of large tensors: the processor itself fetches
// too late.
constexpr int64_t kFetchAhead = 512;

HWY_INLINE FloatVec constant(float value) { return hn::Set(FloatTag(), value); }

// The first `count` < kLanes floats at p, then zeros.
HWY_INLINE FloatVec load_tail(const float* p, int64_t count) {
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(FloatTag(), lanes);
}

HWY_INLINE void store_tail(FloatVec v, float* p, int64_t count) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, FloatTag(), lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(float));
}

// out[i] = f(a[i])
template <typename F>
HWY_INLINE void map1(const float* a, float* out, int64_t n, const F& f) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(f(hn::LoadU(d, a + i)), d, out + i);
  if (i < n) store_tail(f(load_tail(a + i, n - i)), out + i, n - i);
}

// out[i] = f(a[i], b[i])
template <typename F>
HWY_INLINE void map2(const float* a, const float* b, float* out, int64_t n, const F& f) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  if (i < n) store_tail(f(load_tail(a + i, n - i), load_tail(b + i, n - i)), out + i, n - i);
}

// out[i] = f(a[i], b[i], c[i])
template <typename F>
HWY_INLINE void map3(const float* a, const float* b, const float* c, float* out, int64_t n,
                     const F& f) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i)), d, out + i);
  if (i < n)
    store_tail(f(load_tail(a + i, n - i), load_tail(b + i, n - i), load_tail(c + i, n - i)),
               out + i, n - i);
}

// The partial sums of a reduction: partial j holds elements j, j + kFolds, j + 2 kFolds, ..
struct Folds {
  FloatVec part[kFoldVecs];

  HWY_INLINE Folds() {
    for (auto& p : part) p = hn::Zero(FloatTag());
  }
  // Folded by halves: j += j + 16, then 8, 4, 2, 1.
  HWY_INLINE float total() const {
    HWY_ALIGN float lanes[kFolds];
    for (int64_t v = 0; v < kFoldVecs; ++v) hn::Store(part[v], FloatTag(), lanes + v * kLanes);
    for (int64_t half = kFolds / 2; half > 0; half /= 2)
      for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    return lanes[0];
  }
};

// To `count` floats at p: a whole vector, or a tail.
HWY_INLINE void store(FloatVec v, float* p, int64_t count) {
  if (count < kLanes) return store_tail(v, p, count);
  hn::StoreU(v, FloatTag(), p);
}

// `count` floats at p.
HWY_INLINE FloatVec load(const float* p, int64_t count) {
  return count == kLanes ? hn::LoadU(FloatTag(), p) : load_tail(p, count);
}

HWY_INLINE FloatVec widen(hn::Vec<HalfTag> v) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), v)));
}

// `count` bf16 numbers at p, exactly.
HWY_INLINE FloatVec load(const Bf16* p, int64_t count) {
  if (count == kLanes) return widen(hn::LoadU(HalfTag(), p));
  HWY_ALIGN Bf16 lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(Bf16));
  return widen(hn::Load(HalfTag(), lanes));
}

// Sum over i < n of term(i, count), where term makes the vector of elements i .. i + count - 1
// (load() reads them).
template <typename F>
HWY_INLINE float sum(int64_t n, const F& term) {
  Folds folds;
  int64_t i = 0;
  for (; i + kFolds <= n; i += kFolds)
    for (int64_t v = 0; v < kFoldVecs; ++v)
      folds.part[v] = hn::Add(folds.part[v], term(i + v * kLanes, kLanes));
  for (int64_t v = 0; i < n; i += kLanes, ++v) {
    const int64_t count = HWY_MIN(kLanes, n - i);
    const auto mask = hn::FirstN(FloatTag(), static_cast<size_t>(count));
    folds.part[v] = hn::Add(folds.part[v], hn::IfThenElseZero(mask, term(i, count)));
  }
  return folds.total();
}

// Sum over i < n of f(a[i], b[i]).
template <typename F>
HWY_INLINE float sum2(const float* a, const float* b, int64_t n, const F& f) {
  return sum(n, [a, b, &f](int64_t i, int64_t count)
                    HWY_ATTR { return f(load(a + i, count), load(b + i, count)); });
}

template <int Vecs>
struct RowSums {
  FloatVec part[Vecs];

  HWY_INLINE RowSums() {
    WEFT_UNROLL
    for (auto& p : part) p = hn::Zero(FloatTag());
  }
};

// Vector v is the sum over rows of term(row, v). Rows are summed in about as many blocks as a block
// has rows, so that the error grows slowly.
template <int Vecs, typename F>
HWY_INLINE RowSums<Vecs> sum_rows(int64_t rows, const F& term) {
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(rows)));
  const int64_t block = HWY_MAX(int64_t{32}, root);
  RowSums<Vecs> total;
  for (int64_t begin = 0; begin < rows; begin += block) {
    RowSums<Vecs> sums;
    for (int64_t r = begin; r < HWY_MIN(rows, begin + block); ++r) {
      WEFT_UNROLL
      for (int v = 0; v < Vecs; ++v) sums.part[v] = hn::Add(sums.part[v], term(r, v));
    }
    WEFT_UNROLL
    for (int v = 0; v < Vecs; ++v) total.part[v] = hn::Add(total.part[v], sums.part[v]);
  }
  return total;
}

template <int Vecs, typename F>
HWY_INLINE void add_some_columns(int64_t rows, int64_t first, int64_t count, float* acc,
                                 const F& term) {
  const auto sums = sum_rows<Vecs>(rows, [first, count, &term](int64_t r, int v) HWY_ATTR {
    return term(r, first + v * kLanes, count);
  });
  WEFT_UNROLL
  for (int v = 0; v < Vecs; ++v) {
    float* const at = acc + first + v * kLanes;
    store(hn::Add(load(at, count), sums.part[v]), at, count);
  }
}

// acc[c] += the sum over rows of column c, begin <= c < end. term(row, c, count) makes the vector
// of the columns c .. c + count - 1. A column is a lane, so its sum has the same order wherever it
// lies in a vector.
template <typename F>
HWY_INLINE void add_columns(int64_t rows, int64_t begin, int64_t end, float* acc, const F& term) {
  constexpr int kVecs = 4;
  int64_t c = begin;
  for (; c + kVecs * kLanes <= end; c += kVecs * kLanes)
    add_some_columns<kVecs>(rows, c, kLanes, acc, term);
  for (; c < end; c += kLanes) add_some_columns<1>(rows, c, HWY_MIN(kLanes, end - c), acc, term);
}

// The greatest of n numbers; -infinity when there is none, NaN if one of them is.
template <typename T>
HWY_INLINE float maximum(const T* x, int64_t n) {
  const FloatTag d;
  const FloatVec least = hn::Neg(hn::Inf(d));
  FloatVec top = least;
  auto nan = hn::IsNaN(least);  // hn::Max() may return the other number
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const FloatVec v = load(x + i, kLanes);
    top = hn::Max(top, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  if (i < n) {
    const FloatVec v = load(x + i, n - i);
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    top = hn::Max(top, hn::IfThenElse(mask, v, least));
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  return hn::GetLane(hn::AllFalse(d, nan) ? hn::MaxOfLanes(d, top) : hn::NaN(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // WEFT_KERNELS_MAP_INL_H
