// The bytes of any run of nodes as a stage of a schedule, for partitions under a limit. They use
// the account of holdings.h as if all nodes before the run were one stage and all nodes after it
// another. A tensor that skips stages may be held longer than that.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lowering/holdings.h"
#include "partition/balance.h"
#include "partition/stages.h"

namespace weft {

class RunBytes {
 public:
  // `train`: the schedule of training, or only forward actions.
  static Result<RunBytes> make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                               Schedule train);

  // The bytes of a stage with the nodes `begin` to `end` - 1.
  BytesOfRun of(const RunOfNodes& nodes);
  // The bytes of a micro-batch that the run keeps from forward to backward.
  int64_t kept(size_t begin, size_t end);
  // Adds the bytes of a stage: those that each micro-batch keeps between actions, and parameters.
  // Messages in transit are not included.
  void add_to(ScheduleCosts& costs, const RunOfNodes& run);
  // Of training.
  StageWork work(const RunOfNodes& run) const {
    return work_of(*modes_.front(), run.stage, run.begin, run.end);
  }

 private:
  // The bytes that a run holds in one mode, for any stage: bytes of a slot by the time that it is
  // held, and scratch memory.
  struct Term {
    Holding::Kind kind;
    int32_t first, last, side;  // -1, 1: the stage before or behind makes or reads it; 0: none
    int64_t bytes;
  };
  struct Run {
    int64_t values = 0, others = 0;  // of parameters
    std::array<std::vector<Term>, kModes> terms;
    std::array<int64_t, kModes> scratch = {};
  };
  struct ModeInfo {
    StepGraph graph;
    Schedule schedule;
    StageTimes times;
    int64_t sinks = 0;  // bytes that the controller keeps
    std::vector<std::vector<const StepCall*>>
        calls;  // per node: forward; then I, the folds of what it makes, and W
    std::vector<NodeId>
        first_maker;  // per node: of the gradients of its output, the one that is made first
    std::vector<std::map<int32_t, int32_t>> places;  // per stage: of a kind of term
  };

  RunBytes(const Model& model, const PlanConfig& config, const OpNodes& ops)
      : model_(model), config_(config), ops_(ops), shapes_(model, config) {}
  Status add_mode(Mode mode, const Schedule& train);
  const Run& run(size_t s, size_t begin, size_t end);
  void add_parameters(Run& run, size_t begin, size_t end) const;
  void add_terms(Run& run, const ModeInfo& mode, size_t s, size_t begin, size_t end) const;
  StageWork work_of(const ModeInfo& mode, size_t s, size_t begin, size_t end) const;
  std::vector<const StepCall*> calls_of(const ModeInfo& mode, size_t begin, size_t end) const;
  int32_t places(ModeInfo& mode, size_t s, const Term& term);
  size_t index(NodeId node) const;

  const Model& model_;
  const PlanConfig& config_;
  const OpNodes& ops_;
  Shapes shapes_;
  std::vector<int32_t> rank_of_stage_, versions_, segments_;  // per stage
  std::vector<bool> split_;
  std::vector<std::unique_ptr<ModeInfo>> modes_;
  std::vector<std::unordered_map<size_t, BytesOfRun>> known_;  // per stage: of begin and end
  size_t first_of_rank_0_ = 0;  // its first stage, which accounts for what the controller keeps
  std::map<std::tuple<size_t, size_t, bool, int32_t>, Run>
      runs_;  // begin, end; whether I and W are apart, recompute
};

}  // namespace weft
