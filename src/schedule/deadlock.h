// Proof that a schedule never comes to a standstill with a given number of landing places. Part of
// check_schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "schedule/check.h"
#include "schedule/schedule.h"

namespace weft {

// Expects the schedule's structure and the edges to be sound already (check_schedule sees to it).
// `places` is per edge. The error names the ranks and actions of one cycle.
Status check_deadlock(const Schedule& schedule, const std::vector<StageEdge>& edges,
                      const std::vector<EdgePlaces>& places);

}  // namespace weft
