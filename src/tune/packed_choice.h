// The weights that ranks keep packed within the memory limits.
#pragma once

#include <string>

#include "plan/plan.h"

namespace weft {

// PlanConfig::packed, from the same plan with none and with all of them packed: first those that
// need no more memory so, then the largest of those for which each of their ranks has room.
std::string packed_within_limits(const Plan& none, const Plan& all);

}  // namespace weft
