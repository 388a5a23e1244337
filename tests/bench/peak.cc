#include "bench/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: more than the multiply-adds that a core has in progress, fewer than it has
// registers. They begin apart and are summed at the end, so none can be left out; the numbers tend
// to 1.
double fma_burst(int64_t rounds, float& sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  auto x0 = hn::Iota(d, 1), x1 = hn::Iota(d, 2), x2 = hn::Iota(d, 3), x3 = hn::Iota(d, 4),
       x4 = hn::Iota(d, 5), x5 = hn::Iota(d, 6);
  auto y0 = hn::Iota(d, 7), y1 = hn::Iota(d, 8), y2 = hn::Iota(d, 9), y3 = hn::Iota(d, 10),
       y4 = hn::Iota(d, 11), y5 = hn::Iota(d, 12);
  for (int64_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, factor, term);
    x1 = hn::MulAdd(x1, factor, term);
    x2 = hn::MulAdd(x2, factor, term);
    x3 = hn::MulAdd(x3, factor, term);
    x4 = hn::MulAdd(x4, factor, term);
    x5 = hn::MulAdd(x5, factor, term);
    y0 = hn::MulAdd(y0, factor, term);
    y1 = hn::MulAdd(y1, factor, term);
    y2 = hn::MulAdd(y2, factor, term);
    y3 = hn::MulAdd(y3, factor, term);
    y4 = hn::MulAdd(y4, factor, term);
    y5 = hn::MulAdd(y5, factor, term);
  }
  const auto x = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
  const auto y = hn::Add(hn::Add(hn::Add(y0, y1), hn::Add(y2, y3)), hn::Add(y4, y5));
  sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(x, y)));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::bench {

HWY_EXPORT(fma_burst);

double fma_burst(int64_t rounds, float& sink) {
  return HWY_DYNAMIC_DISPATCH(fma_burst)(rounds, sink);
}

}  // namespace weft::bench
#endif
