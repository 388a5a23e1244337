// The hash by which ranks that make the plan themselves compare their plans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace weft {

// Of each setting that ranks must have in common, with its name.
std::vector<std::pair<std::string, Digest>> setting_digests(const PlanConfig& config);
// Computes `hash` from all other fields.
void hash_plan(Plan& plan);

}  // namespace weft
