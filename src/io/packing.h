// Packs sequences into windows of a fixed length.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft {

// The sequences of each window, by their numbers. The longest comes first, each into the fullest
// window that has room for it. No length exceeds `room`.
std::vector<std::vector<size_t>> pack_windows(std::span<const size_t> lengths, size_t room);

}  // namespace weft
