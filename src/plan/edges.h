// Which tensors travel between which stages of a mode.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace weft {

// Edges in canonical order (by tensor, then receiver); place counts are still 1. `plan` has its partition, `mode` its graph.
std::vector<Edge> make_edges(const Plan& plan, const ModePlan& mode);

// The same as the checker sees them: one entry per forward and per gradient edge; `edge_of` gives the index of the Edge.
std::vector<StageEdge> stage_edges(const Plan& plan, const ModePlan& mode, std::vector<int32_t>* edge_of);

// First and last phase in which the calls of `stage` touch each tensor, and whether one of them makes it. -1: not touched.
struct Touch {
  int32_t first = -1, last = -1;
  bool made = false;
};
std::vector<Touch> touches(const Plan& plan, const ModePlan& mode, int32_t stage);

// Does the schedule part I and W of this stage?
bool is_split(const Schedule& schedule, int32_t stage);

// The tensors a call reads and writes (without -1).
std::vector<TensorId> reads_of(const StepCall& call);
std::vector<TensorId> writes_of(const StepCall& call);

}  // namespace weft
