// The operations of Stream::normal() and of base/plain_math.cc in the same order, in each lane.
#include "kernels/normal.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/normal.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/philox-inl.h"
#include "kernels/sincos-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR || !HWY_HAVE_FLOAT64

constexpr int64_t kPairs = 0;  // no vectors
void draw_pairs(const Stream&, double, int64_t, int64_t, float*) {}

#else

constexpr int64_t kPairs = kBlocks;

// Exact, for whole numbers below 2^52.
HWY_INLINE DoubleVec to_double(PairVec whole) {
  const PairVec bits = hn::Or(whole, hn::BitCast(PairTag(), number(0x1p52)));
  return hn::Sub(hn::BitCast(DoubleTag(), bits), number(0x1p52));
}

HWY_INLINE DoubleVec log_of(DoubleVec x) {
  const PairTag d;
  const PairVec bits = hn::BitCast(d, x);
  DoubleVec exponent = hn::Sub(to_double(hn::ShiftRight<52>(bits)), number(1022));
  DoubleVec m = hn::BitCast(DoubleTag(), hn::Or(hn::And(bits, hn::Set(d, 0xfffffffffffffull)),
                                                hn::Set(d, 0x3fe0000000000000ull)));
  const auto small = hn::Lt(m, number(0.70710678118654752440));
  m = hn::IfThenElse(small, hn::Mul(m, number(2)), m);
  exponent = hn::IfThenElse(small, hn::Sub(exponent, number(1)), exponent);
  const DoubleVec t = hn::Div(hn::Sub(m, number(1)), hn::Add(m, number(1))), t2 = hn::Mul(t, t);
  DoubleVec sum = hn::Zero(DoubleTag());
  for (int k = 21; k >= 1; k -= 2) sum = hn::Add(hn::Mul(sum, t2), number(1.0 / k));
  return hn::Add(hn::Mul(hn::Mul(number(2), t), sum),
                 hn::Mul(exponent, number(0.69314718055994530942)));
}

// `pairs` is a multiple of kPairs.
void draw_pairs(const Stream& stream, double deviation, int64_t first, int64_t pairs, float* out) {
  const hn::Rebind<float, DoubleTag> d;
  for (int64_t i = 0; i < pairs; i += kPairs) {
    const PhiloxBlocks blocks =
        philox_blocks(stream.key(), stream.high(), static_cast<uint64_t>(first + i));
    const DoubleVec unit = hn::Mul(hn::Add(to_double(blocks.word[0]), number(1)), number(0x1p-32));
    const DoubleVec radius = hn::Sqrt(hn::Mul(number(-2), log_of(unit)));
    DoubleVec sine, cosine;
    sincos_turn(hn::Mul(to_double(blocks.word[1]), number(0x1p-32)), sine, cosine);
    const DoubleVec even = hn::Mul(number(deviation), hn::Mul(radius, cosine)),
                    odd = hn::Mul(number(deviation), hn::Mul(radius, sine));
    hn::StoreInterleaved2(hn::DemoteTo(d, even), hn::DemoteTo(d, odd), d, out + 2 * i);
  }
}

#endif

int64_t pairs_at_once() { return kPairs; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(draw_pairs);
HWY_EXPORT(pairs_at_once);

namespace {

void draw_one_by_one(const Stream& stream, double deviation, int64_t first, int64_t n, float* out) {
  for (int64_t i = first; i < first + n; ++i) {
    const auto pair = stream.normal(static_cast<uint64_t>(i / 2));
    *out++ = static_cast<float>(deviation * pair[static_cast<size_t>(i % 2)]);
  }
}

}  // namespace

void draw_normal(const Stream& stream, double deviation, int64_t first, int64_t n, float* out) {
  const int64_t lead = std::min(first % 2, n);
  draw_one_by_one(stream, deviation, first, lead, out);
  const int64_t at_once = HWY_DYNAMIC_DISPATCH(pairs_at_once)();
  const int64_t pairs = at_once ? (n - lead) / 2 / at_once * at_once : 0, drawn = lead + 2 * pairs;
  if (pairs)
    HWY_DYNAMIC_DISPATCH(draw_pairs)(stream, deviation, (first + lead) / 2, pairs, out + lead);
  draw_one_by_one(stream, deviation, first + drawn, n - drawn, out + drawn);
}

}  // namespace weft::kernels
#endif
