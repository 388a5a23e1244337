// What one core can do at most: multiply-adds that stay in registers.
#pragma once

#include <cstdint>

namespace weft::bench {

// Runs `rounds` rounds and returns the floating-point operations done (a multiply-add is two).
// `sink` receives a number that depends on all of them; use it, or the compiler may leave them out.
double fma_burst(int64_t rounds, float& sink);

}  // namespace weft::bench
