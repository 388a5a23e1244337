#include "kernels/columns.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// One column is one lane, so its sum has the same order wherever it lies in a vector.
template <typename T>
HWY_INLINE void add_sums(const T* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  const FloatTag d;
  int64_t j = 0;
  for (; j + 4 * kLanes <= columns; j += 4 * kLanes) {
    FloatVec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < rows; ++i) {
      const T* row = x + i * stride + j;
      s0 = hn::Add(s0, load(row, kLanes));
      s1 = hn::Add(s1, load(row + kLanes, kLanes));
      s2 = hn::Add(s2, load(row + 2 * kLanes, kLanes));
      s3 = hn::Add(s3, load(row + 3 * kLanes, kLanes));
    }
    hn::StoreU(hn::Add(hn::LoadU(d, acc + j), s0), d, acc + j);
    hn::StoreU(hn::Add(hn::LoadU(d, acc + j + kLanes), s1), d, acc + j + kLanes);
    hn::StoreU(hn::Add(hn::LoadU(d, acc + j + 2 * kLanes), s2), d, acc + j + 2 * kLanes);
    hn::StoreU(hn::Add(hn::LoadU(d, acc + j + 3 * kLanes), s3), d, acc + j + 3 * kLanes);
  }
  for (; j < columns; j += kLanes) {
    const int64_t count = HWY_MIN(kLanes, columns - j);
    FloatVec sum = hn::Zero(d);
    for (int64_t i = 0; i < rows; ++i) sum = hn::Add(sum, load(x + i * stride + j, count));
    store(hn::Add(load(acc + j, count), sum), acc + j, count);
  }
}

void add_sums_of_floats(const float* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  add_sums(x, rows, columns, stride, acc);
}
void add_sums_of_bf16(const Bf16* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  add_sums(x, rows, columns, stride, acc);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(add_sums_of_floats);
HWY_EXPORT(add_sums_of_bf16);

void add_column_sums(const float* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  HWY_DYNAMIC_DISPATCH(add_sums_of_floats)(x, rows, columns, stride, acc);
}
void add_column_sums(const Bf16* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  HWY_DYNAMIC_DISPATCH(add_sums_of_bf16)(x, rows, columns, stride, acc);
}

}  // namespace weft::kernels
#endif
