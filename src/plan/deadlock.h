// Proof that a schedule never comes to a standstill with a given number of landing places. Part of check_schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/check.h"
#include "plan/schedule.h"

namespace weft {

// Where the actions of each stage stand in the row of its rank: [stage][micro-batch]. B stands in both `i` and `w`.
struct Positions {
  std::vector<std::vector<int32_t>> f, r, i, w;
};

// Expects the schedule's structure and the edges to be sound already (check_schedule sees to it). `places` is per edge. The error
// names the ranks and actions of one cycle.
Status check_deadlock(const Schedule& schedule, const Positions& positions, const std::vector<StageEdge>& edges,
                      const std::vector<EdgePlaces>& places);

}  // namespace weft
