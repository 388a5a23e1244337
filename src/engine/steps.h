// Properties of a step of a plan.
#pragma once

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

// Offset in bytes from the place of a weight to the version that a micro-batch uses. A step without
// updates uses the current version.
inline int64_t weights_at(const WeightVersions& versions, const StepDescriptor& step,
                          int32_t micro_batch) {
  if (step.per_update == 0) return 0;
  return versions.offset(versions.of_update[static_cast<size_t>(micro_batch / versions.round)]);
}

// Offset in bytes from the place of an edge at its sender or receiver to the tensor of a message.
// In a segment, an update writes the new value to its own version of the weights, and sums of
// another stage land one behind the other.
inline int64_t offset_of_message(const Plan& plan, int32_t rank, const Edge& edge, int32_t update) {
  if (!plan.asynchronous()) return 0;
  if (edge.kind == EdgeKind::tie_value)
    return plan.versions[static_cast<size_t>(rank)].offset(update + 1);
  if (edge.kind != EdgeKind::tie_grad || edge.to_rank != rank) return 0;
  return update % edge.landing_slots * padded_bytes(edge.desc[0]);
}

// Number of updates of a rank with these versions in the step.
inline int32_t updates_at(const WeightVersions& versions, const StepDescriptor& step) {
  if (step.per_update == 0) return updates_of(step);
  return (step.micro_batches + versions.round - 1) / versions.round;
}

// The learning rate of an update of the step; `number` counts the updates of the run.
inline double rate_of(const StepDescriptor& step, const OptimSettings& optim, uint64_t number) {
  return step.rate < 0 ? rate_at(optim, number) : step.rate;
}

// The largest step of the plan, without the fields that depend on data.
inline StepDescriptor largest_step(const Plan& plan, Mode mode) {
  StepDescriptor step;
  step.mode = mode;
  step.micro_batches = plan.micro_batches(mode);
  step.per_update = plan.per_update(mode, step.update);
  return step;
}

// The number of steps of which a rank can have grants before it has begun them, besides those for
// edges whose messages all need one. In a step that does not overlap, the receiver of several
// replicas of a stage grants one the slot that another one has left.
inline size_t steps_granted_early(const PlanConfig& config, Mode mode) {
  if (config.can_overlap(mode)) return kStepsAtOnce;
  return config.stage_replicas.empty() ? 0 : 1;
}

}  // namespace weft
