// The time that a schedule takes with given costs, for choices among partitions.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace weft {

// Of a stage to the next one, if they are on two ranks.
struct ChainEdge {
  int32_t forward_slots = 0, gradient_slots = 0;  // at the receiver; 0: no limit
  double transfer = 0;                            // time for which a message occupies the link
  double latency = 0;                             // from then on until it arrives
};

// Of a step whose stages form a chain, on ranks with any number of stages. `costs`: times of all
// stages; `edges`: of each stage but the last. Infinity if the rows do not permit a chain.
double chain_time(const Schedule& schedule, const ScheduleCosts& costs,
                  const std::vector<ChainEdge>& edges);

}  // namespace weft
