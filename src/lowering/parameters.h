// What every rank keeps of the parameters.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace weft {

// `local`: per use, whether it is on the rank. Places are empty.
ResidentParam resident_param(const Model& model, const PlanConfig& config, ParamId param,
                             bool owned, const std::vector<bool>& local);

// Ring 0 of a rank: its weights, accumulators, optimizer state. Fills plan.resident and
// plan.permanent_bytes.
void place_parameters(Plan& plan);
// Of a rank, by a parameter that it uses.
const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param);

}  // namespace weft
