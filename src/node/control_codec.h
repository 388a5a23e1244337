// Control messages of engine and controller as bytes: the payload of link messages of type
// kControlMessage.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/messages.h"

namespace weft {

// Replaces the content of `out` and keeps its capacity.
void encode_control(const Control& control, std::vector<std::byte>& out);

// Refuses bytes that encode_control does not write. `numbers` contains the numbers that the result
// borrows: squares or denominators.
Result<Control> decode_control(std::span<const std::byte> bytes, std::vector<double>& numbers);

}  // namespace weft
