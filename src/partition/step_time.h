// The time of a step of a plan by its cuts, for choices among cuts.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "partition/balance.h"
#include "partition/run_bytes.h"
#include "schedule/chain_time.h"

namespace weft {

class StepTime {
 public:
  // `config`: of the ranks of a pipeline. `order`: of the schedule, with R; `rooms`, `cut_time`: as
  // for partition_for(); `links`: per stage, from the one before it; `bytes`: may be null, then an
  // R takes the time of an F. These must outlive it.
  StepTime(const Model& model, const PlanConfig& config, const OpNodes& ops, const Schedule& order,
           const std::vector<StageRoom>& rooms, const CutTime& cut_time,
           const std::vector<LinkSpeed>& links, RunBytes* bytes);

  // In seconds, with stages that begin at these nodes. Without updates, and without messages of
  // ranks that share a stage.
  double of(const std::vector<size_t>& first);
  // Moves one cut at a time by a few nodes, as long as the step takes less time by that and not
  // too much work has been done for it. `needed`: as in ChainLoads.
  std::vector<size_t> with_moved_cuts(std::vector<size_t> first, const std::vector<size_t>& needed);

 private:
  // A parameter that several nodes use. If they are on several ranks, its gradient is sent to one
  // of them, and its value back.
  struct Tied {
    std::vector<size_t> nodes;
    double seconds;  // on a link
  };
  void find_tied(const Model& model, const PlanConfig& config, const OpNodes& ops);
  size_t nodes() const { return before_.size() - 1; }
  double tied_seconds(const std::vector<size_t>& first) const;
  NodeTimes again(size_t stage, const std::vector<size_t>& first, size_t end);

  const Schedule& order_;
  const std::vector<StageRoom>& rooms_;
  const CutTime& cut_time_;
  const std::vector<LinkSpeed>& links_;
  RunBytes* bytes_;
  std::vector<NodeTimes> before_;     // of the nodes before each
  std::vector<NodeTimes> of_pieces_;  // of the nodes of the model that is run
  std::vector<ChainEdge> edges_;      // of each stage but the last
  std::vector<Tied> tied_;            // if links take time
  // Of a stage, its first node and its end. Which calls run again depends on nothing else.
  std::map<std::array<size_t, 3>, NodeTimes> again_;
  int64_t work_;                     // of a step: its actions, and more for finding their times
  int64_t left_ = int64_t{1} << 22;  // of this work, for moves
};

}  // namespace weft
