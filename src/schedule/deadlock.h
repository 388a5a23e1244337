// Proof that a schedule has no deadlock with a given number of slots. Part of
// check_schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "schedule/check.h"
#include "schedule/schedule.h"

namespace weft {

// The structure of the schedule and the edges must be valid; check_schedule checks them first.
// `slots` is per edge. The error names the ranks and actions of one cycle.
Status check_deadlock(const Schedule& schedule, const std::vector<StageEdge>& edges,
                      const std::vector<EdgeSlots>& slots);

}  // namespace weft
