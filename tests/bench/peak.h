// What one core can do at most: multiply-adds that stay in registers, and reads of memory.
#pragma once

#include <cstdint>

namespace weft::bench {

// Runs `rounds` rounds and returns the floating-point operations done (a multiply-add is two).
// `sink` receives a number that depends on all of them; use it, or the compiler may leave them out.
double fma_burst(int64_t rounds, float& sink);

// Multiplies tiles of bf16 that stay in registers, on random numbers: the same number again would
// be faster. Returns the operations done; 0 if this process has no AMX.
double amx_burst(int64_t rounds);

// Reads n floats, and returns a number that depends on all of them.
float read_burst(const float* x, int64_t n);

}  // namespace weft::bench
