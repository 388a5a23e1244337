#include "kernels/bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void to_bf16(const float* x, Bf16* out, int64_t n) { round_row(x, out, n); }
void from_bf16(const Bf16* x, float* out, int64_t n) { widen_row(x, out, n); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(to_bf16);
HWY_EXPORT(from_bf16);

void to_bf16(const float* x, Bf16* out, int64_t n) { HWY_DYNAMIC_DISPATCH(to_bf16)(x, out, n); }
void from_bf16(const Bf16* x, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(from_bf16)(x, out, n); }

}  // namespace weft::kernels
#endif
