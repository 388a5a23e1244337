// Accumulators that are not kept. If each replica has one micro-batch of a step, a gradient is
// complete when the backward has made it. It can leave for its owner, which adds it to those of the
// other replicas, and its memory is free for another. The gradients of a position are therefore cut
// into runs in the order of the backward. Two of them are in progress at once, in two slots.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace weft {

// A gradient of a parameter that a stage makes.
struct StageSum {
  NodeId node;  // of the use
  ParamId param;
  int32_t sum;
};

// Whether training has such accumulators.
bool drops_gradients(const Model& model, const PlanConfig& config);

// Per stage, in the order of its backward. `graph`: of training. Parameters are omitted that are
// used elsewhere, too, for which the step makes no gradient, or whose sums take all of the
// backward.
std::vector<std::vector<StageSum>> sums_of_stages(const Model& model, const StepGraph& graph,
                                                  const std::vector<int32_t>& stage_of_node,
                                                  int32_t stages);

// The run of each sum that is not kept, by parameter and sum. A parameter is in runs only if all
// its uses are in one stage, so that they end from the last to the first.
using RunOfSum = std::map<std::pair<ParamId, int32_t>, int32_t>;
// Adds the runs of a stage of the pipeline to those of its position. `sums`: in the order of the
// backward.
void add_runs(const Model& model, const PlanConfig& config, const std::vector<StageSum>& sums,
              RunOfSum& runs);
// Per position.
std::vector<RunOfSum> gradient_runs(const Plan& plan);

}  // namespace weft
