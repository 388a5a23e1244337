// The times of a model's nodes from a profile.
#pragma once

#include <vector>

#include "io/profile.h"
#include "plan/plan.h"

namespace weft {

// Per node of the model. Refuses a profile of another precision or micro-batch size, of other nodes
// (which it lists), or of other shapes.
Result<std::vector<NodeTimes>> times_of(const Profile& profile, const Model& model,
                                        const PlanConfig& config);

}  // namespace weft
