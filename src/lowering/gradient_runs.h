// Accumulators that are not kept. If each replica has one micro-batch of a step, a gradient is
// complete when the backward has made it. It can leave for its owner, which adds it to those of the
// other replicas, and its place is free for another. The gradients of a position are therefore cut
// into runs in the order of the backward. Two of them are under way at once, in two slots.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace weft {

// The run of each sum that is not kept, by parameter and sum, per position. A parameter is in runs
// only if all its uses are in one stage, so that they end from the last to the first.
using RunOfSum = std::map<std::pair<ParamId, int32_t>, int32_t>;
std::vector<RunOfSum> gradient_runs(const Plan& plan);

}  // namespace weft
