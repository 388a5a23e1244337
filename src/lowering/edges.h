// The tensors that are sent between stages of a mode.
#pragma once

#include <vector>

#include "lowering/stage_work.h"
#include "plan/plan.h"

namespace weft {

// Edges in canonical order (by tensor, then receiver); the numbers of slots are still 1. `plan` has
// its partition, `mode` its graph. A tensor for a stage of the same rank is not an edge: both
// stages use the same slot, and the program of the rank orders them.
std::vector<Edge> make_edges(const Plan& plan, const ModePlan& mode,
                             const std::vector<StageWork>& work);

// The input of the checker: an entry for each tensor from one stage to another; `edge_of`
// gives the index of its Edge, -1 within a rank.
std::vector<StageEdge> stage_edges(const Plan& plan, const ModePlan& mode,
                                   const std::vector<StageWork>& work,
                                   std::vector<int32_t>* edge_of);

// Stages other than its maker's that use a tensor, ascending, per tensor.
std::vector<std::vector<int32_t>> readers_of(const Plan& plan, const ModePlan& mode,
                                             const std::vector<StageWork>& work);

}  // namespace weft
