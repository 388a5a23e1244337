// The number of slots that a tensor needs, counted in one valid order of the whole schedule: every
// rank runs its next action as soon as its data has arrived, and all actions take the same time.
// Because that order is possible with these counts, the run has no deadlock.
#pragma once

#include <array>
#include <vector>

#include "schedule/check.h"
#include "schedule/schedule.h"

namespace weft {

enum Phase : int32_t { kPhaseF = 0, kPhaseR = 1, kPhaseI = 2, kPhaseW = 3 };
constexpr int32_t kPhases = 4;

// time[stage][phase][micro-batch]: when that action runs; a rank's actions have ascending times. B
// is I and W. Empty: the stage has no such phase.
using StageTimes = std::vector<std::array<std::vector<int32_t>, kPhases>>;

// The schedule has passed check_schedule. Empty if its rows do not permit the edges.
StageTimes lock_step(const Schedule& schedule, const std::vector<StageEdge>& edges);
// The same if every stage uses a value of the stage before it, whatever tensors there are. Memory
// is planned for this order, so that the stages of a plan do not affect it.
StageTimes lock_step_of_chain(const Schedule& schedule);

// Slots for instances that are held from begin[k] to end[k], both ascending in k.
int32_t slots_needed(const std::vector<int32_t>& begin, const std::vector<int32_t>& end);

}  // namespace weft
