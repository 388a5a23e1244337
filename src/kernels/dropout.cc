#include "kernels/dropout.h"

#include <algorithm>

namespace weft::kernels {

void dropout(const Stream& stream, double probability, const float* x, int64_t begin, int64_t end, float* out) {
  // Kept with chance 1 - probability, to 2^-32.
  const uint64_t bound = static_cast<uint64_t>(probability * 0x1p32);
  const float factor = static_cast<float>(1 / (1 - probability));
  for (int64_t i = begin; i < end; i += 4) {
    const Philox words = stream.draw(static_cast<uint64_t>(i) / 4);
    const int64_t count = std::min<int64_t>(4, end - i);
    for (int64_t j = 0; j < count; ++j) out[i + j] = words[static_cast<size_t>(j)] >= bound ? x[i + j] * factor : 0.0f;
  }
}

}  // namespace weft::kernels
