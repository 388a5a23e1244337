// Searches for a draft within the memory limits.
#pragma once

#include "tune/draft.h"

namespace weft {

// The best draft within the limits of the configuration. Errors contain the rank, its bytes and its
// limit.
Result<Draft> draft_within(const std::shared_ptr<const Model>& model, const PlanConfig& config);

}  // namespace weft
