// Makes a plan from a configuration, which may leave choices to weft.
#pragma once

#include "plan/plan.h"

namespace weft {

// Errors name the setting or node, what was expected and what was found.
Result<std::shared_ptr<const Plan>> make_plan(const std::shared_ptr<const Model>& model,
                                              PlanConfig config);

}  // namespace weft
