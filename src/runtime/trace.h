// What really ran, and when: one span per job of a rank, kept in memory taken beforehand, written as a Chrome trace
// (chrome://tracing, Perfetto): a process per rank, a slice per action.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

struct TraceSpan {
  uint64_t step = 0;        // training step
  JobTime time;             // nanoseconds of the machine's monotonic clock
  int32_t job = 0;          // of the mode's program on that rank
  Mode mode = Mode::train;
  uint8_t unused[3] = {};
};

// Writes whole or not at all. `spans`: per rank.
Status write_trace(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans, const std::string& path);

}  // namespace weft
