#include "kernels/bf16_strip.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_strip.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void end_strip(const Bf16Product& g, const Bf16Strip& s) {
  for (int64_t i = 0; i < s.rows; ++i) {
    float* sums = s.sums + i * s.row;
    if (g.bias)
      map2(sums, g.bias + s.j, sums, s.columns,
           [](FloatVec x, FloatVec y) HWY_ATTR { return hn::Add(x, y); });
    const int64_t at = (s.i + i) * g.c_row + s.j;
    if (g.rounded)
      round_row(sums, g.rounded + at, s.columns);
    else
      std::memcpy(g.c + at, sums, static_cast<size_t>(s.columns) * sizeof(float));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(end_strip);

void begin_strip(const Bf16Product& g, const Bf16Strip& s) {
  const int64_t width = bf16_panels(s.columns) * kBf16Panel;
  for (int64_t i = 0; i < s.rows; ++i) {
    float* sums = s.sums + i * s.row;
    const int64_t kept = g.add ? s.columns : 0;
    if (g.add)
      std::memcpy(sums, g.c + (s.i + i) * g.c_row + s.j, static_cast<size_t>(kept) * sizeof(float));
    std::memset(sums + kept, 0, static_cast<size_t>(width - kept) * sizeof(float));
  }
}

void end_strip(const Bf16Product& product, const Bf16Strip& strip) {
  HWY_DYNAMIC_DISPATCH(end_strip)(product, strip);
}

}  // namespace weft::kernels
#endif
