// The costs of each value of --shard, for weft plan.
#pragma once

#include <string>
#include <vector>

#include "cli/build.h"

namespace weft::cli {

struct ShardCost {
  std::string shard;
  std::string refused;     // why there is no plan; empty: there is one
  int64_t step_ns = 0;     // duration of a step
  int64_t peak_bytes = 0;  // of the largest rank
  int64_t bytes = 0;       // over all links, of a step
};

// Predicts the plan of these options with each value; `chosen` is the prediction for the given one.
// The list is empty for one replica, and for a saved plan.
Outcome shard_costs(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps,
                    const Built& built, const weft_prediction& chosen, std::vector<ShardCost>& out);

}  // namespace weft::cli
