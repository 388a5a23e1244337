// A slow, literal simulator of a schedule: ranks run actions, tensors travel one by one, slots
// fill and empty. It shares no code and no method with the checker, so that the two can judge each
// other.
#pragma once

#include <string>
#include <vector>

#include "schedule/check.h"

namespace weft {

struct Simulated {
  bool well_formed =
      false;  // every action there once, each on its rank, each stage's micro-batches ascending
  bool ran = false;             // well formed, and came to its end
  std::string why;              // if it did not run
  std::vector<EdgeSlots> held;  // most landings in use at once, by the receiver's program order
  std::vector<StagePeaks> peaks;
};

Simulated simulate(const Schedule& schedule, const std::vector<StageEdge>& edges,
                   const std::vector<EdgeSlots>& slots);

}  // namespace weft
