// Vectors of bf16, compiled once per SIMD target (see map-inl.h).
#include <cstdint>

#if defined(WEFT_KERNELS_BF16_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_BF16_INL_H
#undef WEFT_KERNELS_BF16_INL_H
#else
#define WEFT_KERNELS_BF16_INL_H
#endif

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

using BitsVec = hn::Vec<BitsTag>;
using HalfVec = hn::Vec<HalfTag>;

// v rounded to bf16, still in 32 bits. Computed with integers, so the mode does not matter.
HWY_INLINE BitsVec round_bits(FloatVec v) {
  const BitsTag d;
  const BitsVec bits = hn::BitCast(d, v);
  const BitsVec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
  const BitsVec rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu))));
  const auto nan = hn::RebindMask(d, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Set(d, 0x7fc0u), rounded);
}

HWY_INLINE HalfVec round_vector(FloatVec v) {
  return hn::DemoteTo(HalfTag(), hn::BitCast(hn::RebindToSigned<FloatTag>(), round_bits(v)));
}

// The first `count` < kLanes elements.
HWY_INLINE void store_half_tail(HalfVec v, Bf16* p, int64_t count) {
  HWY_ALIGN Bf16 lanes[kLanes];
  hn::Store(v, HalfTag(), lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(Bf16));
}

// out[i] = x[i], rounded, for i < n.
HWY_INLINE void round_row(const float* x, Bf16* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(round_vector(hn::LoadU(FloatTag(), x + i)), HalfTag(), out + i);
  if (i < n) store_half_tail(round_vector(load_tail(x + i, n - i)), out + i, n - i);
}

// out[i] = x[i], exactly, for i < n.
HWY_INLINE void widen_row(const Bf16* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load(x + i, kLanes), FloatTag(), out + i);
  if (i < n) store_tail(load(x + i, n - i), out + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // WEFT_KERNELS_BF16_INL_H
