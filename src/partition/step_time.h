// The time of a step of a plan by its cuts, for choices among cuts.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "partition/balance.h"
#include "partition/run_bytes.h"
#include "schedule/check.h"

namespace weft {

class StepTime {
 public:
  // `config`: of the ranks of a pipeline; `order`: of the schedule, with R; `rooms`, `cut_time`: as
  // for partition_for(). `bytes` may be null: an R takes the time of an F. All are kept by
  // reference.
  StepTime(const Model& model, const PlanConfig& config, const OpNodes& ops, const Schedule& order,
           const std::vector<StageRoom>& rooms, const CutTime& cut_time, RunBytes* bytes);

  // In seconds, with stages that begin at these nodes.
  double of(const std::vector<size_t>& first);
  // Moves one cut at a time by a few nodes, as long as the step takes less time by that. Of a stage
  // that recomputes in blocks, the calls that run again depend on the node at which it begins.
  // `needed`: as in ChainLoads.
  std::vector<size_t> with_moved_cuts(std::vector<size_t> first, const std::vector<size_t>& needed);

 private:
  size_t nodes() const { return before_.size() - 1; }
  NodeTimes again(size_t stage, const std::vector<size_t>& first, size_t end);

  const Schedule& order_;
  const std::vector<StageRoom>& rooms_;
  const CutTime& cut_time_;
  RunBytes* bytes_;
  double latency_;
  std::vector<NodeTimes> before_;     // of the nodes before each
  std::vector<NodeTimes> of_pieces_;  // of the nodes of the model that is run
  std::vector<EdgeSlots> slots_;
  std::map<std::array<size_t, 3>, NodeTimes> again_;  // of a stage, its first node and its end
  int left_ = 2000;                                   // cuts to try
};

}  // namespace weft
