// Whether a plan can be made from a configuration.
#pragma once

#include "plan/plan.h"

namespace weft {

// Errors name the setting or node, what was expected and what was found.
Status check_config(const Model& model, const PlanConfig& config);
// The part that is also for replicas which a partitioner has chosen.
Status check_replicas(const Model& model, const PlanConfig& config);

}  // namespace weft
