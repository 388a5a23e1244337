// The floating-point control register while weft computes. A host linked with -ffast-math, or one
// that chose another rounding mode, would change our bits; and weft must leave the host's choice as
// it was.
#pragma once

#include <cstdint>

namespace weft {

// Held by every function of the ABI and every thread of weft, for as long as it computes: rounds to
// nearest, keeps subnormal numbers, traps nothing. The destructor restores the register as it was.
// Belongs to one thread; nests.
class ComputeScope {
 public:
  ComputeScope();
  ~ComputeScope();
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace weft
