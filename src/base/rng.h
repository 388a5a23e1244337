// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011). A number depends only on its purpose, not
// on how many were drawn before it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

using Philox = std::array<uint32_t, 4>;
Philox philox(const Philox& counter, uint64_t key);

// Each purpose has its own stream; draw(i) is the i-th block of four words.
class Stream {
 public:
  // Initial values: (seed, parameter name, element).
  static Stream initial(uint64_t seed, std::string_view parameter);
  // Data: (seed, step, sample).
  static Stream data(uint64_t seed, uint64_t step);
  // Dropout: (seed, step, micro-batch, node, element).
  static Stream dropout(uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t node);

  Philox draw(uint64_t index) const;
  // draw(index) is philox({index, high()}, key()), low words first: for kernels that make many
  // blocks at once.
  uint64_t key() const { return key_; }
  uint64_t high() const { return high_; }
  // Two independent standard normals, by IEEE arithmetic: the same bits on every machine.
  std::array<double, 2> normal(uint64_t index) const;
  // Uniform integer in [0, bound), bound > 0; bias below 2^-32 of a step.
  uint64_t below(uint64_t index, uint64_t bound) const;
  // The numbers 0 to count - 1 in a drawn order: that at `index`, which is less than `count`.
  uint64_t shuffled(uint64_t index, uint64_t count) const;

 private:
  Stream(uint64_t key, uint64_t high) : key_(key), high_(high) {}
  uint64_t key_, high_;
};

// Uniform in (0, 1] with 32 bits.
inline double unit(uint32_t word) { return (static_cast<double>(word) + 1.0) * 0x1p-32; }

}  // namespace weft
