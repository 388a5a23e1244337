// Schedules without a flush (PipeDream): weights change while micro-batches are in the pipeline.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace weft {

// PipeDream's numbers for stages that several ranks can replicate, in the order of the stages. With
// N ranks in all and R_i replicas: stage s runs floor((N - 1 - sum of R_i before s) / R_s) forwards
// before its first backward, and keeps one version of its weights more than that. The recommended
// number of minibatches in flight (NOAM) is ceil(N / R_0).
struct PipedreamNumbers {
  std::vector<int32_t> warm_up, versions;  // per stage
  int32_t noam = 1;
};
PipedreamNumbers pipedream_numbers(std::span<const int32_t> replicas);

// The list of PlanConfig::stage_replicas; empty if every stage is on one rank.
Result<std::vector<int32_t>> replicas_of(const PlanConfig& config);

// Checks the settings that require a synchronous schedule, or an asynchronous one.
Status check_asynchronous(const Plan& plan, const Schedule& train);
// With an asynchronous schedule, the stages that a parameter is tied across must use the same
// version of it for the same micro-batch. The first one makes it, after the backwards of the
// others.
Status check_tied_versions(const Plan& plan);

}  // namespace weft
