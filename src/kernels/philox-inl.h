// Several blocks of Philox at once (philox() in base/rng.cc), each word in 64 bits of its own, so
// that products fit. Included once per SIMD target (foreach_target.h); not for HWY_SCALAR.
#include <cstdint>

#if defined(WEFT_KERNELS_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_PHILOX_INL_H
#undef WEFT_KERNELS_PHILOX_INL_H
#else
#define WEFT_KERNELS_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/map-inl.h"

#if HWY_TARGET != HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using PairTag = hn::Repartition<uint64_t, WordTag>;
using PairVec = hn::Vec<PairTag>;
constexpr int64_t kBlocks = kLanes / 2;  // per vector

struct PhiloxBlocks {
  PairVec word[4];
};

HWY_INLINE PairVec product(PairVec word, PairVec factor) {
  return hn::MulEven(hn::BitCast(WordTag(), word), hn::BitCast(WordTag(), factor));
}

// Blocks first .. first + kBlocks - 1 of a stream.
HWY_INLINE PhiloxBlocks philox_blocks(uint64_t key, uint64_t high, uint64_t first) {
  const PairTag d;
  const PairVec low = hn::Set(d, 0xffffffffull);
  const PairVec index = hn::Add(hn::Set(d, first), hn::Iota(d, 0));
  PairVec c0 = hn::And(index, low), c1 = hn::ShiftRight<32>(index);
  PairVec c2 = hn::Set(d, high & 0xffffffffull), c3 = hn::Set(d, high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const PairVec p0 = product(c0, hn::Set(d, 0xD2511F53ull)),
                  p1 = product(c2, hn::Set(d, 0xCD9E8D57ull));
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
    c1 = hn::And(p1, low);
    c3 = hn::And(p0, low);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // WEFT_KERNELS_PHILOX_INL_H
