// Plans without programs. A search for a plan within limits of bytes makes many of them.
#pragma once

#include "lowering/mode_plans.h"
#include "plan/plan.h"

namespace weft {

// A plan without its programs: what every rank holds is known.
struct Draft {
  std::shared_ptr<Plan> plan;
  PlanLayout layout;

  // The rank with the most bytes beyond its limit, and how many; 0: all keep theirs.
  std::pair<size_t, int64_t> excess() const;
};

// What cuts stages and orders their actions knows: a replica, whose ranks that share a stage are
// one.
PlanConfig pipeline_config(const PlanConfig& config);

// By the configuration, whatever it comes to.
Result<Draft> draft_of(const std::shared_ptr<const Model>& model, const PlanConfig& config);

}  // namespace weft
