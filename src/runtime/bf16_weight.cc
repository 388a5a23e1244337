#include "runtime/bf16_weight.h"

#include <algorithm>
#include <vector>

namespace weft {

namespace {

constexpr size_t kBlock = 2048;  // elements that are converted together

}  // namespace

Bf16Weight::Bf16Weight(const ResidentParam& param, const Shape& shape, std::byte* arena) {
  const auto at = [arena](const ResidentTensor& t) {
    return reinterpret_cast<kernels::Bf16*>(arena + t.place.offset);
  };
  for (const ResidentTensor& t : param.of(ResidentTensor::Role::value)) elements_ = at(t);
  for (const ResidentTensor& t : param.of(ResidentTensor::Role::packed))
    packed_[packed_count_++] = {.k = shape[t.transposed ? 1 : 0],
                                .n = shape[t.transposed ? 0 : 1],
                                .transposed = t.transposed,
                                .data = at(t)};
}

void Bf16Weight::write(int64_t first, std::span<const float> values) const {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<kernels::Bf16> buffer(elements_ ? 0 : values.size());
  kernels::Bf16* const rounded = elements_ ? elements_ + first : buffer.data();
  kernels::to_bf16(values.data(), rounded, count);
  for (size_t form = 0; form < packed_count_; ++form)
    kernels::write_packed(packed_[form], first, count, rounded);
}

void Bf16Weight::read(int64_t first, std::span<float> out) const {
  if (elements_) {
    kernels::from_bf16(elements_ + first, out.data(), static_cast<int64_t>(out.size()));
    return;
  }
  std::array<kernels::Bf16, kBlock> block;
  while (!out.empty()) {
    const size_t n = std::min(kBlock, out.size());
    const auto count = static_cast<int64_t>(n);
    kernels::read_packed(packed_.front(), first, count, block.data());
    kernels::from_bf16(block.data(), out.data(), count);
    out = out.subspan(n);
    first += count;
  }
}

}  // namespace weft
