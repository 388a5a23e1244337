// The median of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace weft {

// The upper one of an even number. Changes the order of the values, of which there is at least one.
template <typename T>
T median(std::span<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace weft
