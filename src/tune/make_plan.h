// Makes a plan from a configuration, which may leave choices to weft.
#pragma once

#include "partition/run_terms.h"
#include "plan/plan.h"

namespace weft {

// Makes plans of a model whose configurations differ only in the schedule, limits and what is
// recomputed: what is found about runs of nodes for one plan serves the others.
class Planner {
 public:
  explicit Planner(std::shared_ptr<const Model> model) : whole_(std::move(model)) {}

  // Errors name the setting or node, what was expected and what was found.
  Result<std::shared_ptr<const Plan>> plan(PlanConfig config);

 private:
  Status make_model(const PlanConfig& config);

  std::shared_ptr<const Model> whole_;
  std::shared_ptr<const Model> model_;  // as the plans train it; null before the first one
  KnownRuns known_;
};

Result<std::shared_ptr<const Plan>> make_plan(const std::shared_ptr<const Model>& model,
                                              PlanConfig config);

}  // namespace weft
