// Sets the floating-point control register while weft computes. A host that was linked with
// -ffast-math, or that set another rounding mode, would change weft's results; and weft must not
// change the mode of the host.
#pragma once

#include <cstdint>

namespace weft {

// Every function of the ABI and every thread of weft has one while it computes: rounds to nearest,
// keeps subnormal numbers, traps nothing. The destructor restores the register. For one thread; may
// be nested.
class ComputeScope {
 public:
  ComputeScope();
  ~ComputeScope();
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 protected:
  explicit ComputeScope(uint64_t control);

 private:
  uint64_t saved_;
};

// The same, but subnormal operands and results are zeros, as in AMX. For products of bf16.
class FlushScope : public ComputeScope {
 public:
  FlushScope();
};

}  // namespace weft
