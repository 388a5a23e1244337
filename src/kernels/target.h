// The instruction set of the kernels on this processor: "AVX-512", "AVX2", "NEON", ...
#pragma once

namespace weft {

const char* simd_target();

}  // namespace weft
