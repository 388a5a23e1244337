// The bytes of any run of nodes as a stage of a schedule, for partitions under a limit: the bytes
// that the plan of such stages has. The same functions count them (holdings.h, parameters.h,
// gradient_runs.h, units.h). All nodes before the run count as one stage, and all nodes after it as
// another. A tensor that skips stages may therefore be held longer, and ranks that share a stage
// may exchange tensors in another order. Units are cut as if the rank had no other stage. All
// stages that recompute by the configuration count as if they had something to recompute.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lowering/gradient_runs.h"
#include "lowering/holdings.h"
#include "lowering/segments.h"
#include "partition/balance.h"
#include "partition/stages.h"

namespace weft {

class RunBytes {
 public:
  // `config`: of all ranks. `train`: the schedule of training that a replica has, or only forward
  // actions; ranks that share a stage are one of its ranks.
  static Result<RunBytes> make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                               Schedule train);

  // The bytes of a stage with the nodes `begin` to `end` - 1: of the largest of its ranks.
  BytesOfRun of(const RunOfNodes& nodes);
  // The bytes of a rank with all these stages.
  int64_t of_rank(const std::vector<RunOfNodes>& stages);
  // The bytes of a micro-batch that the run keeps from forward to backward.
  int64_t kept(size_t begin, size_t end);
  // Adds the bytes of a stage: those that each micro-batch keeps between actions, and parameters.
  // Messages in transit are not included.
  void add_to(ScheduleCosts& costs, const RunOfNodes& run);
  // Seconds of a micro-batch for the recomputation of the stage, by the times of the nodes.
  NodeTimes remade(const RunOfNodes& run, const std::vector<NodeTimes>& times);

 private:
  // The bytes that a rank holds in one mode, for any stage: bytes of a slot by the time that it is
  // held.
  struct Term {
    Holding::Kind kind;
    int32_t first, last, side;  // -1, 1: the stage before or after it makes or reads it; 0: none
    int64_t bytes;
  };
  using Reads = std::vector<std::vector<ParamId>>;  // values of parameters, per unit of an action
  // One of the ranks that share the stage.
  struct Share {
    std::array<std::vector<Term>, kModes> terms;
    std::array<int64_t, kModes> scratch = {};
    std::array<std::vector<Reads>, kModes> reads;  // per action; if values are gathered
    std::vector<StageSum> sums;  // of accumulators that are not kept, in the order of the backward
  };
  // Of a rank of each share and replica: share * replicas + replica.
  struct Parameters {
    std::vector<int64_t> values, others;  // bytes
    std::vector<int32_t> owner;           // per parameter: which of them; -1: another rank
  };
  struct Run {
    std::vector<Share> shares;
    bool complete = true;  // each of them has a node
  };
  // The nodes before the run, of the run and after it as stages 0, 1 and 2.
  struct Cut {
    SegmentedStages segmented;
    std::vector<size_t> own;  // segments of the run
  };
  struct ModeInfo {
    StepGraph graph;
    Schedule schedule;
    StageTimes times;
    int64_t sinks = 0;                               // bytes that the controller keeps
    std::vector<std::map<int32_t, int32_t>> places;  // per stage: of a kind of term
  };
  using Works = std::map<size_t, StageWork>;  // per segment of the run
  struct Borders {
    StageTraffic traffic;
    std::map<TensorId, int32_t> side;   // as of Term
    std::map<TensorId, int32_t> until;  // the last phase in which other segments of the run read it
  };

  RunBytes(const Model& model, const PlanConfig& config, const OpNodes& ops)
      : config_(config), ops_(ops), whole_(&model) {}
  void index_nodes();
  Status add_mode(Mode mode, const Schedule& train);
  Cut cut_at(size_t begin, size_t end) const;
  const Run& run(size_t s, size_t begin, size_t end);
  Works works_of(ModeInfo& mode, size_t s, const Cut& cut) const;
  // Of a rank of each share.
  std::vector<RunOfSum> runs_of(std::span<const RunOfNodes> stages);
  int32_t share_of(std::span<const RunOfNodes> stages, NodeId node) const;
  Parameters parameters_of(std::span<const RunOfNodes> stages);
  int64_t slots_of(std::span<const RunOfNodes> stages, const ModeInfo& mode, size_t place,
                   int32_t rank, const Parameters& parameters);
  BytesOfRun sum_of(std::span<const RunOfNodes> stages);
  Borders borders_of(const ModeInfo& mode, const Works& works, size_t segment,
                     const Cut& cut) const;
  void add_sums(Run& run, const Cut& cut) const;
  void add_terms(Run& run, ModeInfo& mode, size_t s, const Cut& cut);
  void add_reads(Share& share, const ModeInfo& mode, size_t s, const StageWork& work) const;
  int32_t places(ModeInfo& mode, size_t s, const Term& term);
  int32_t own_micro_batches(const ModeInfo& mode, size_t s, int32_t replica) const;
  int32_t replicas_of(size_t s) const;

  const PlanConfig& config_;
  const OpNodes& ops_;
  const Model* whole_;
  std::shared_ptr<const Model> model_;  // what is run: pieces of the nodes
  Shapes shapes_;
  std::vector<size_t> index_;                                 // per node of model_: into ops_
  std::vector<int32_t> rank_of_stage_, versions_, segments_;  // per stage
  std::vector<int32_t> replicas_;                             // per stage; empty: config.data
  std::vector<bool> split_;
  std::vector<size_t> turn_;              // per stage: its backward, in the row of its rank
  std::vector<std::vector<Kind>> kinds_;  // per stage: of its actions
  std::vector<std::unique_ptr<ModeInfo>> modes_;
  std::vector<std::unordered_map<size_t, BytesOfRun>> known_;  // per stage: of begin and end
  std::map<std::vector<size_t>, int64_t> known_ranks_;
  size_t first_of_rank_0_ = 0;  // its first stage, which accounts for what the controller keeps
  std::map<std::tuple<size_t, size_t, std::vector<Kind>, int32_t, int32_t>, Run>
      runs_;  // begin, end; actions, recompute, replicas
};

}  // namespace weft
