// How presets rotate positions: the keys, and what the op rope gets.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/preset_builder.h"

namespace weft {

// theta, rotary (the part of a head that rotates), and how rotations are scaled to a context that
// is longer than the original one, rope_context:
//   linear    rope_factor divides all of them
//   llama3    with rope_low and rope_high: those that make few turns in the original context
//   yarn      with rope_fast and rope_slow: so, between two columns; Peng et al. 2023
//   longrope  with rope_short and rope_long: each by its own divisor, of the list that belongs to
//             the length; Ding et al. 2024
// rope_attention multiplies the rotated columns.
std::vector<Key> rotation_keys(double theta, double rotary);

// Of heads of `size` columns, and sequences of so many tokens.
Result<Rotation> rotation_of(std::string_view name, const std::vector<Key>& keys, int64_t size,
                             int64_t length);

}  // namespace weft
