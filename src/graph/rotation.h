// How presets rotate positions: the keys, and the frequencies of the op rope.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/preset_builder.h"

namespace weft {

// theta, rope_factor, rope_low, rope_high, rope_context and rotary, the part of a head that
// rotates. The factor slows all rotations; with low and high, only those that make few turns in the
// original context, as in Llama 3.1.
std::vector<Key> rotation_keys(double theta, double rotary);

// Of heads of `size` columns.
Result<std::vector<float>> frequencies_of(std::string_view name, const std::vector<Key>& keys,
                                          int64_t size);

}  // namespace weft
