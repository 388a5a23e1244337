// The memory of a parameter that a rank stores as bf16: its elements in order, packed forms for
// products, or both.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/bf16_elements.h"
#include "plan/plan.h"

namespace weft {

class Bf16Weight {
 public:
  Bf16Weight() = default;
  // `arena`: the memory of the rank.
  Bf16Weight(const ResidentParam& param, const Shape& shape, std::byte* arena);

  // False: this rank does not store it.
  explicit operator bool() const { return elements_ || packed_count_ > 0; }

  // The elements from `first` on. Written to all forms, rounded to nearest even.
  void write(int64_t first, std::span<const float> values) const;
  void read(int64_t first, std::span<float> out) const;

 private:
  kernels::Bf16* elements_ = nullptr;
  std::array<kernels::PackedBf16, 2> packed_ = {};
  size_t packed_count_ = 0;
};

}  // namespace weft
