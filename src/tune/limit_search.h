// Searches among drafts for one that keeps the limits of bytes.
#pragma once

#include "tune/draft.h"

namespace weft {

// The best that keeps the limits of the configuration. Errors name the rank, its bytes and its
// limit.
Result<Draft> draft_within(const std::shared_ptr<const Model>& model, const PlanConfig& config);

}  // namespace weft
