// What follows from a step and a plan together.
#pragma once

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

// Bytes from a weight's place to the version of it that a micro-batch uses. Without updates of its
// own, a step uses the one that is there.
inline int64_t weights_at(const WeightVersions& versions, const StepDescriptor& step,
                          int32_t micro_batch) {
  if (step.per_update == 0) return 0;
  return versions.offset(versions.of_update[static_cast<size_t>(micro_batch / versions.round)]);
}

// Updates that a rank with these versions makes in the step.
inline int32_t updates_at(const WeightVersions& versions, const StepDescriptor& step) {
  if (step.per_update == 0) return updates_of(step);
  return (step.micro_batches + versions.round - 1) / versions.round;
}

// The largest step that the plan has, with nothing yet of what comes with data.
inline StepDescriptor largest_step(const Plan& plan, Mode mode) {
  StepDescriptor step;
  step.mode = mode;
  step.micro_batches = plan.micro_batches(mode);
  step.per_update = plan.per_update(mode, step.update);
  return step;
}

}  // namespace weft
