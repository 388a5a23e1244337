// The time that a schedule takes with given costs, for choices among partitions.
#pragma once

#include "schedule/check.h"
#include "schedule/schedule.h"

namespace weft {

// Of a step whose stages form a chain, on ranks with any number of stages. `costs`: times of all
// stages, and the latency. `slots`: per stage but the last, of the edge to the next one; empty: a
// rank waits for no slot. Infinity if the rows do not permit a chain.
double chain_time(const Schedule& schedule, const ScheduleCosts& costs,
                  const std::vector<EdgeSlots>& slots);

}  // namespace weft
