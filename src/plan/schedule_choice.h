// The schedule that a configuration asks for, by name or written out.
#pragma once

#include "plan/plan.h"

namespace weft {

struct ScheduleChoice {
  const ScheduleKind* kind = nullptr;  // null: `written`
  Schedule written;
  int32_t stages = 1;
};

// What is to be known before the model is cut: how many stages there will be. Errors name what does
// not fit the configuration.
Result<ScheduleChoice> choose_schedule(const PlanConfig& config);

// The training schedule itself; `costs` are those of the stages.
Result<Schedule> make_schedule(const ScheduleChoice& choice, const PlanConfig& config,
                               ScheduleCosts costs);

}  // namespace weft
