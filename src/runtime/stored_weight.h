// The memory of a parameter on a rank, in float32 or bf16: its elements in order, or only the
// packed forms that products read. Float32 elements can have a bf16 copy, which other ranks get.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/bf16.h"
#include "kernels/packed_elements.h"
#include "plan/plan.h"

namespace weft {

// The packed forms of a parameter on a rank, up to two of each type.
struct PackedForms {
  std::array<kernels::PackedMatrix, 4> forms = {};
  size_t count = 0;

  PackedForms() = default;
  // `arena`: the memory of the rank.
  PackedForms(const ResidentParam& param, const Shape& shape, std::byte* arena);
  std::span<const kernels::PackedMatrix> all() const { return std::span(forms).first(count); }
};

class StoredWeight {
 public:
  StoredWeight() = default;
  StoredWeight(const ResidentParam& param, const Shape& shape, std::byte* arena);

  // False: this rank does not store it.
  explicit operator bool() const { return elements_ || packed_.count > 0; }
  // The elements in order; null if they are not stored so.
  float* floats() const {
    return dtype_ == DType::f32 ? reinterpret_cast<float*>(elements_) : nullptr;
  }
  // The same, if they have no copy that write() writes, too.
  float* only_floats() const { return sent_ ? nullptr : floats(); }

  // The first packed form; its data are null if there is none.
  const kernels::PackedMatrix& packed() const { return packed_.forms.front(); }
  // The bf16 copy; null if there is none.
  kernels::Bf16* sent() const { return sent_; }

  // The elements from `first` on. Written to all forms; as bf16, rounded to nearest even.
  void write(int64_t first, std::span<const float> values) const;
  void read(int64_t first, std::span<float> out) const;

 private:
  DType dtype_ = DType::f32;
  std::byte* elements_ = nullptr;  // null: packed_
  PackedForms packed_ = {};
  kernels::Bf16* sent_ = nullptr;
};

}  // namespace weft
