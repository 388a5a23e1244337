// When every job of a rank ran, as a Chrome trace (chrome://tracing, Perfetto): a track per rank, a
// slice per job, an arrow per message. Runs and predictions have the same form, so that both can be
// opened side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

struct TraceSpan {
  uint64_t step = 0;  // training step
  JobTime time;       // nanoseconds of one clock for all ranks
  int32_t job = 0;    // of the mode's program on that rank
  Mode mode = Mode::train;
  uint8_t unused = 0;
  uint16_t sequence = 0;  // low bits of that of the step
};

// The text of the file. `spans`: per rank. `title`: "measured" or "predicted".
std::string trace_text(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans,
                       const char* title);

}  // namespace weft
