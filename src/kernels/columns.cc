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

template <typename T>
HWY_INLINE void add_sums(const T* x, int64_t rows, int64_t columns, int64_t stride, float* acc) {
  add_columns(rows, 0, columns, acc, [x, stride](int64_t r, int64_t c, int64_t count) HWY_ATTR {
    return load(x + r * stride + c, count);
  });
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
