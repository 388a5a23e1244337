#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/target.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft::HWY_NAMESPACE {
const char* target_name() {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return "AVX-512";
#else
  return hwy::TargetName(HWY_TARGET);
#endif
}
}  // namespace weft::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {
HWY_EXPORT(target_name);
const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }
}  // namespace weft
#endif
