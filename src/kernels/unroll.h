// Unrolls the loop that follows, whole. Loops over a register tile must be, or its sums do not stay
// in registers.
#pragma once

#if defined(__clang__)
#define WEFT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WEFT_UNROLL _Pragma("GCC unroll 16")
#endif
