// A search over doubles.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

namespace weft {

// The smallest number from `from` to `most` that is good, if all larger ones are. Doubles that are
// not negative are in the order of their bits, so that some 64 trials find it. Small numbers, for
// which runs are short, are tried first.
template <typename Good>
std::optional<double> least_double(double from, double most, Good&& good) {
  const auto number = [](uint64_t bits) { return std::bit_cast<double>(bits); };
  uint64_t low = std::bit_cast<uint64_t>(from), high = low, step = uint64_t{1} << 46;  // 1.6 %
  const uint64_t top = std::bit_cast<uint64_t>(std::max(from, most));
  while (!good(number(high))) {
    if (high == top) return {};
    low = high + 1;
    high = top - high > step ? high + step : top;
    step *= 2;
  }
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (good(number(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return number(low);
}

}  // namespace weft
