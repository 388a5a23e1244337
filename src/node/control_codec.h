// Control messages of engine and controller as bytes: the payload of link messages of type
// kControlMessage.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/messages.h"

namespace weft {

// Replaces what `out` held; it keeps its capacity.
void encode_control(const Control& control, std::vector<std::byte>& out);

// Refuses what encode_control does not write. `numbers` holds those that the result borrows:
// squares, or denominators.
Result<Control> decode_control(std::span<const std::byte> bytes, std::vector<double>& numbers);

}  // namespace weft
