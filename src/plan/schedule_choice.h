// The schedule of a configuration, by name or as text.
#pragma once

#include "plan/plan.h"

namespace weft {

struct ScheduleChoice {
  const ScheduleKind* kind = nullptr;  // null: `written`
  Schedule written;
  int32_t stages = 1;
};

// The number of stages, which is needed before the model is cut. Errors name the setting that is
// not valid.
Result<ScheduleChoice> choose_schedule(const PlanConfig& config);

// The training schedule itself; `costs` are those of the stages.
Result<Schedule> make_schedule(const ScheduleChoice& choice, const PlanConfig& config,
                               ScheduleCosts costs);

}  // namespace weft
