// The configuration of a plan as bytes; with those of the model they make the same plan anywhere.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace weft {

std::vector<std::byte> encode_config(const PlanConfig& config);
Result<PlanConfig> decode_config(std::span<const std::byte> bytes);

}  // namespace weft
