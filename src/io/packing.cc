#include "io/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace weft {

std::vector<std::vector<size_t>> pack_windows(std::span<const size_t> lengths, size_t room) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [lengths](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> windows;
  std::multimap<size_t, size_t> rest;  // of windows that are not full
  for (const size_t sequence : order) {
    const size_t length = lengths[sequence];
    auto place = rest.lower_bound(length);
    if (place == rest.end()) {
      place = rest.emplace(room, windows.size());
      windows.emplace_back();
    }
    const auto [left, window] = *place;
    rest.erase(place);
    windows[window].push_back(sequence);
    if (left > length) rest.emplace(left - length, window);
  }
  return windows;
}

}  // namespace weft
