#include "kernels/fpenv.h"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace weft {

namespace {

#if defined(__x86_64__) || defined(__i386__)
// MXCSR: all exceptions masked, round to nearest, no flush to zero, subnormal operands kept; its
// value after reset.
constexpr uint64_t kCompute = 0x1f80;
constexpr uint64_t kFlush = 0x8040;  // flush to zero, denormals are zeros
uint64_t read_control() { return _mm_getcsr(); }
void write_control(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
// FPCR: round to nearest, no flush to zero, default NaN off, nothing trapped.
constexpr uint64_t kCompute = 0;
constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ
uint64_t read_control() {
  uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_control(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#else
#error "weft does not know the floating-point control register of this processor"
#endif

}  // namespace

ComputeScope::ComputeScope() : ComputeScope(kCompute) {}
ComputeScope::ComputeScope(uint64_t control) : saved_(read_control()) { write_control(control); }
ComputeScope::~ComputeScope() { write_control(saved_); }
FlushScope::FlushScope() : ComputeScope(kCompute | kFlush) {}

}  // namespace weft
