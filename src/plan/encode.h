// A plan's configuration as bytes; with the model's bytes it makes the same plan anywhere.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace weft {

std::vector<std::byte> encode_config(const PlanConfig& config);
Result<PlanConfig> decode_config(std::span<const std::byte> bytes);

}  // namespace weft
