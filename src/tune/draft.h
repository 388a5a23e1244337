// Plans without programs. A search for a plan within memory limits makes many drafts.
#pragma once

#include "lowering/mode_plans.h"
#include "plan/plan.h"

namespace weft {

// A plan without its programs, with the bytes of every rank.
struct Draft {
  std::shared_ptr<Plan> plan;
  PlanLayout layout;

  // The rank with the largest excess over its limit, and the excess; 0: no rank exceeds its limit.
  std::pair<size_t, int64_t> excess() const;
};

// The draft of the configuration, without limits.
Result<Draft> draft_of(const std::shared_ptr<const Model>& model, const PlanConfig& config);

}  // namespace weft
