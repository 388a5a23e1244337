// The time that a schedule takes with given costs, for choices among partitions.
#pragma once

#include "schedule/schedule.h"

namespace weft {

// Of a step whose stages form a chain, on ranks with any number of stages. `costs`: times of all
// stages, and the latency. Infinity if the rows do not permit a chain.
double chain_time(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace weft
