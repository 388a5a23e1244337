#include "kernels/bf16_strip.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_strip.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// store(j, sums) for each whole vector of a row, with the bias added; the columns that are left.
template <typename F>
HWY_INLINE int64_t each_vector(const Bf16Product& g, const Bf16Strip& s, const float* sums,
                               const F& store) {
  const FloatTag d;
  const float* bias = g.bias ? g.bias + s.j : nullptr;
  int64_t j = 0;
  for (; j + kLanes <= s.columns; j += kLanes) {
    const FloatVec sum = hn::LoadU(d, sums + j);
    store(j, bias ? hn::Add(sum, hn::LoadU(d, bias + j)) : sum);
  }
  return j;
}

// Columns j and on of a row, fewer than a vector.
HWY_INLINE FloatVec last_vector(const Bf16Product& g, const Bf16Strip& s, const float* sums,
                                int64_t j) {
  const FloatVec sum = load_tail(sums + j, s.columns - j);
  return g.bias ? hn::Add(sum, load_tail(g.bias + s.j + j, s.columns - j)) : sum;
}

void round_strip(const Bf16Product& g, const Bf16Strip& s) {
  for (int64_t i = 0; i < s.rows; ++i) {
    const float* sums = s.sums + i * s.row;
    Bf16* out = g.rounded + (s.i + i) * g.c_row + s.j;
    const int64_t j = each_vector(g, s, sums, [&](int64_t at, FloatVec v) HWY_ATTR {
      hn::StoreU(round_vector(v), HalfTag(), out + at);
    });
    if (j < s.columns)
      store_half_tail(round_vector(last_vector(g, s, sums, j)), out + j, s.columns - j);
  }
}

template <bool kPast>
HWY_INLINE void store_strip(const Bf16Product& g, const Bf16Strip& s) {
  const FloatTag d;
  for (int64_t i = 0; i < s.rows; ++i) {
    const float* sums = s.sums + i * s.row;
    float* out = g.c + (s.i + i) * g.c_row + s.j;
    const int64_t j = each_vector(g, s, sums, [&](int64_t at, FloatVec v) HWY_ATTR {
      if (kPast)
        hn::Stream(v, d, out + at);
      else
        hn::StoreU(v, d, out + at);
    });
    if (j < s.columns) store_tail(last_vector(g, s, sums, j), out + j, s.columns - j);
  }
}

void end_strip(const Bf16Product& g, const Bf16Strip& s) {
  if (g.rounded) return round_strip(g, s);
  if (g.past_caches) return store_strip<true>(g, s);
  store_strip<false>(g, s);
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
