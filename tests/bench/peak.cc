#include "bench/peak.h"

#include "kernels/amx.h"
#include "kernels/bf16_product.h"

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

float read_burst(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Xor(a, hn::LoadU(d, x + i));
    b = hn::Xor(b, hn::LoadU(d, x + i + lanes));
    c = hn::Xor(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Xor(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
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

HWY_EXPORT(read_burst);

float read_burst(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(read_burst)(x, n); }

#if WEFT_AMX

double amx_burst(int64_t rounds) {
  using namespace kernels;
  if (!bf16_has_amx()) return 0;
  amx::Config config;
  for (int tile = 0; tile < amx::kTiles; ++tile) {
    config.row_bytes[tile] = amx::kTileBytes;
    config.rows[tile] = amx::kTileRows;
  }
  constexpr int kFactors = 4, kElements = 512;
  alignas(64) uint16_t factors[kFactors][kElements];
  uint32_t random = 1;
  for (auto& factor : factors)
    for (uint16_t& x : factor) {
      random = random * 1664525 + 1013904223;
      x = static_cast<uint16_t>((random >> 16 & 0x80ff) | 0x3f00);  // 1/2 to 2, and negative ones
    }
  const amx::Scope tiles(config);
  amx::load<4>(factors[0], amx::kTileBytes);
  amx::load<5>(factors[1], amx::kTileBytes);
  amx::load<6>(factors[2], amx::kTileBytes);
  amx::load<7>(factors[3], amx::kTileBytes);
  for (int64_t i = 0; i < rounds; ++i) {
    amx::multiply<0, 4, 6>();
    amx::multiply<1, 4, 7>();
    amx::multiply<2, 5, 6>();
    amx::multiply<3, 5, 7>();
  }
  return static_cast<double>(rounds) * 4 * 2 * 16 * 16 * 32;
}

#else

double amx_burst(int64_t) { return 0; }

#endif

}  // namespace weft::bench
#endif
