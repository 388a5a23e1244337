#include "runtime/stored_weight.h"

#include <algorithm>

namespace weft {

PackedForms::PackedForms(const ResidentParam& param, const Shape& shape, std::byte* arena) {
  for (const ResidentTensor& t : param.of(ResidentTensor::Role::packed))
    forms[count++] = {.dtype = t.desc.dtype,
                      .k = shape[t.transposed ? 1 : 0],
                      .n = shape[t.transposed ? 0 : 1],
                      .transposed = t.transposed,
                      .data = arena + t.place.offset};
}

StoredWeight::StoredWeight(const ResidentParam& param, const Shape& shape, std::byte* arena)
    : dtype_(param.dtype) {
  if (param.only_packed())
    packed_ = PackedForms(param, shape, arena);
  else if (param.value())
    elements_ = arena + param.value().offset;
  for (const ResidentTensor& t : param.of(ResidentTensor::Role::sent))
    sent_ = reinterpret_cast<kernels::Bf16*>(arena + t.place.offset);
}

void StoredWeight::write(int64_t first, std::span<const float> values) const {
  if (float* const elements = floats())
    std::copy(values.begin(), values.end(), elements + first);
  else if (elements_)
    kernels::to_bf16(values.data(), reinterpret_cast<kernels::Bf16*>(elements_) + first,
                     static_cast<int64_t>(values.size()));
  write_packed(packed_.all(), first, values);
  if (sent_) kernels::to_bf16(values.data(), sent_ + first, std::ssize(values));
}

void StoredWeight::read(int64_t first, std::span<float> out) const {
  if (const float* const elements = floats())
    std::copy_n(elements + first, out.size(), out.begin());
  else if (elements_)
    kernels::from_bf16(reinterpret_cast<const kernels::Bf16*>(elements_) + first, out.data(),
                       static_cast<int64_t>(out.size()));
  else
    kernels::read_packed(packed(), first, out);
}

}  // namespace weft
