// The tensors of parameters on every rank.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace weft {

// `local`: per sum of uses, whether it is on the rank, which is one of `replicas`. Places are
// empty.
ResidentParam resident_param(const Model& model, const PlanConfig& config, ParamId param,
                             bool owned, const std::vector<bool>& local, int32_t replica = 0,
                             int32_t replicas = 1);

// The ranks that update a parameter: its owner and, if the optimizer state is not sharded, the rank
// of the first use in every other replica.
std::vector<int32_t> updaters_of(const Plan& plan, ParamId param);

// The rank that owns each parameter: of the ranks of its first use, the one that owns the fewest
// bytes so far. The largest parameters come first.
std::vector<int32_t> owners_of(const Plan& plan);

// Ring 0 of a rank: its weights, accumulators, optimizer state. Fills plan.resident and
// plan.permanent_bytes.
void place_parameters(Plan& plan);
// Of a rank, by a parameter that it uses.
const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param);
// The accumulator of a sum in a replica, on a rank that has it.
const ResidentTensor& accumulator_of(const Plan& plan, int32_t rank, ParamId param, int32_t sum,
                                     int32_t replica);

}  // namespace weft
