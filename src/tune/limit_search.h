// Plans within the memory limits; for zb-auto, a search for the order of actions.
#pragma once

#include "tune/draft.h"

namespace weft {

bool is_limited(const PlanConfig& config);
// The best draft within the limits of the configuration. Errors contain the rank, its bytes and its
// limit. `known`: of the model.
Result<Draft> draft_within(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                           KnownRuns& known);

}  // namespace weft
