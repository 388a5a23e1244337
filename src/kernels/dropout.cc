#include "kernels/dropout.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"
#include "kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

using WordTag = hn::RebindToUnsigned<FloatTag>;
constexpr int64_t kBlocks = 1;

HWY_INLINE void draw(uint64_t key, uint64_t high, uint64_t first, uint32_t* words) {
  const Philox block = philox({static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
                               static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)},
                              key);
  std::copy(block.begin(), block.end(), words);
}

#else

// Blocks first .. first + kBlocks - 1 of the stream, 4 kBlocks words.
HWY_INLINE void draw(uint64_t key, uint64_t high, uint64_t first, uint32_t* words) {
  const PairTag d;
  const auto [c0, c1, c2, c3] = philox_blocks(key, high, first).word;
  HWY_ALIGN uint64_t front[kBlocks], back[kBlocks];
  hn::Store(hn::Or(c0, hn::ShiftLeft<32>(c1)), d, front);
  hn::Store(hn::Or(c2, hn::ShiftLeft<32>(c3)), d, back);
  for (int64_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = static_cast<uint32_t>(front[i]);
    words[4 * i + 1] = static_cast<uint32_t>(front[i] >> 32);
    words[4 * i + 2] = static_cast<uint32_t>(back[i]);
    words[4 * i + 3] = static_cast<uint32_t>(back[i] >> 32);
  }
}

#endif

void dropout(uint64_t key, uint64_t high, uint32_t bound, float factor, int64_t first,
             const float* x, int64_t n, float* out) {
  const WordTag dw;
  const FloatVec scale = constant(factor);
  const auto least = hn::Set(dw, bound);
  HWY_ALIGN uint32_t words[4 * kBlocks];
  for (int64_t i = 0; i < n; i += 4 * kBlocks) {
    draw(key, high, static_cast<uint64_t>(first + i) / 4, words);
    for (int64_t j = 0; j < 4 * kBlocks && i + j < n; j += kLanes) {
      const int64_t count = std::min(kLanes, n - i - j);
      const auto drop = hn::RebindMask(FloatTag(), hn::Lt(hn::Load(dw, words + j), least));
      const FloatVec y = hn::IfThenZeroElse(drop, hn::Mul(load(x + i + j, count), scale));
      if (count == kLanes)
        hn::StoreU(y, FloatTag(), out + i + j);
      else
        store_tail(y, out + i + j, count);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(dropout);

void dropout(const Stream& stream, double probability, int64_t first, const float* x, int64_t n,
             float* out) {
  // Kept with chance 1 - probability, to 2^-32.
  const auto bound = static_cast<uint32_t>(probability * 0x1p32);
  const auto factor = static_cast<float>(1 / (1 - probability));
  if (const int64_t lead = first % 4; lead > 0) {  // the rest of a block of four
    const int64_t count = std::min(4 - lead, n);
    float block[4] = {};
    std::copy(x, x + count, block + lead);
    HWY_DYNAMIC_DISPATCH(dropout)
    (stream.key(), stream.high(), bound, factor, first - lead, block, lead + count, block);
    std::copy(block + lead, block + lead + count, out);
    x += count;
    out += count;
    first += count;
    n -= count;
  }
  HWY_DYNAMIC_DISPATCH(dropout)(stream.key(), stream.high(), bound, factor, first, x, n, out);
}

}  // namespace weft::kernels
#endif
