// Which SIMD target the kernels run on this processor: "AVX3_DL", "AVX2", ... Part of the numeric
// profile.
#pragma once

namespace weft {

const char* simd_target();

}  // namespace weft
