// From a configuration to a plan without programs, in two parts. A search within memory limits
// compares outlines, and makes the draft of one.
#pragma once

#include "lowering/mode_plans.h"
#include "partition/run_bytes.h"

namespace weft {

// The stages and the order of a plan.
struct Outline {
  Plan plan;
  Schedule train;                // of the pipeline
  RunBytes::Again again;         // with `recompute` auto and a limit: what is recomputed
  std::vector<RankBytes> bytes;  // per rank, if the configuration chooses by them
  ScheduleCosts costs;           // then, without a cap
};

struct Draft {
  std::shared_ptr<Plan> plan;
  PlanLayout layout;
};

// Limits affect what the configuration chooses by bytes, but are not checked.
// `known`: of the model.
Result<Outline> outline_of(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                           KnownRuns& known);
Result<Draft> draft_of(Outline outline);

}  // namespace weft
