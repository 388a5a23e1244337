// The bytes of any run of nodes as a stage of a schedule, and of ranks with such stages, before
// there is a plan. They are the bytes that the plan of these stages has: the same functions count
// them (holdings.h, parameters.h, gradient_runs.h, units.h), for the same order (lock_step.h).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lowering/gradient_runs.h"
#include "lowering/holdings.h"
#include "lowering/recompute.h"
#include "lowering/segments.h"
#include "partition/balance.h"
#include "partition/stages.h"

namespace weft {

struct RankBytes {
  size_t position = 0;  // as in Plan
  int64_t limit = 0;
  int64_t all = 0;                 // of the largest of its modes
  int64_t least = 0;               // a rank with more nodes in its last stage needs no less
  int64_t train = 0, scratch = 0;  // of training, and the part for scratch memory

  int64_t over() const { return std::max<int64_t>(0, all - limit); }
};

struct RemadeCalls {
  size_t position = 0;  // of the rank of the segment
  int32_t forward = 0;  // calls of a segment
  bool any = false;     // whether it recomputes some of them
  NodeTimes time;       // of a micro-batch for that
};

class RunBytes {
 public:
  // `config`: of all ranks. `train`: the schedule of training that a replica has, or only forward
  // actions; ranks that share a stage are one of its ranks.
  static Result<RunBytes> make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                               Schedule train);

  // Another order of the same actions.
  void set_order(Schedule train);
  // Per stage and segment of it (segments.h): forward calls per recompute block, 0: none.
  using Again = std::vector<std::vector<int32_t>>;
  void set_recompute(Again again);
  const Again& recompute() const { return again_; }

  // The bytes of a stage with the nodes `begin` to `end` - 1: of the largest of its ranks, if all
  // nodes before them are in the stage before, and all nodes after them in the stage after. A
  // tensor that skips stages needs more.
  BytesOfRun of(const RunOfNodes& nodes);
  // The bytes of all ranks, whose stages begin at these nodes.
  std::vector<RankBytes> of_ranks(const std::vector<size_t>& first);
  // Whether a rank with these stages and others, or more nodes in the last one, can be within its
  // limit.
  bool can_fit(const std::vector<RunOfNodes>& stages);
  // The bytes of a micro-batch that the run keeps from forward to backward.
  int64_t kept(size_t begin, size_t end);
  // Adds the bytes of the stages: those that each micro-batch keeps between actions, and
  // parameters. Messages in transit are not included.
  void add_to(ScheduleCosts& costs, const std::vector<size_t>& first);
  // Per segment of a stage, by the times of the nodes of the model that is run.
  std::vector<RemadeCalls> remade(size_t stage, const std::vector<size_t>& first,
                                  const std::vector<NodeTimes>& times);
  const Model& pieces() const { return *model_; }

 private:
  // A stage, by its distance, and a rank of those that share it.
  struct Peer {
    int32_t stage, tensor_rank;
    auto operator<=>(const Peer&) const = default;
  };
  // The bytes that a rank holds in one mode: a slot by the time that it is held.
  struct Term {
    Holding::Kind kind;
    int32_t first, last;
    int64_t bytes;
    TensorId tensor = -1;          // unless it is kept
    int32_t read = kPhaseF;        // the phase in which other ranks read it
    std::vector<Peer> peers = {};  // landing: its maker; shared: its readers in other stages

    // Whether a longer run that begins at the same node holds the tensors too, at least as long.
    // Unless it is recomputed in blocks, so does any run that contains it.
    bool stays(bool in_blocks) const {
      if (in_blocks) return kind == Holding::Kind::kept && first != kPhaseR;
      return (kind == Holding::Kind::kept || kind == Holding::Kind::shared) && first < last;
    }
  };
  using Reads = std::vector<std::vector<ParamId>>;  // values of parameters, per unit of an action
  // One of the ranks that share the stage.
  struct Share {
    std::array<std::vector<Term>, kModes> terms;
    std::array<std::map<TensorId, int32_t>, kModes> until;  // last phase that reads what arrives
    std::array<int64_t, kModes> scratch = {};
    std::array<std::vector<Reads>, kModes> reads;  // per action; if values are gathered
    std::vector<StageSum> sums;  // of accumulators that are not kept, in the order of the backward
  };
  struct Run {
    std::vector<Share> shares;  // per tensor rank
    bool complete = true;       // each of them has a node
  };
  // A stage, and its run with its surroundings.
  struct StageRun {
    RunOfNodes at;
    const Run* run;
  };
  // Of each rank: tensor rank * replicas + replica.
  struct Parameters {
    std::vector<int64_t> bytes;
    std::vector<int64_t> sent;   // of these: copies that a rank with more nodes may not need
    std::vector<int32_t> owner;  // per parameter: which of them; -1: another rank. If values are
                                 // gathered
  };
  // A run as stage 0, others by their distance.
  struct Cut {
    RunOfNodes at;
    const std::vector<size_t>* first;
    std::vector<int32_t> own;  // segments of the run
    SegmentedStages
        segmented;  // without segments if each stage is one, whose number is its distance
  };
  struct ModeInfo {
    StepGraph graph;
    std::vector<std::vector<size_t>> readers;  // per tensor: calls
    // Per node of ops_: the calls of its nodes other than folds; and the folds that can run there,
    // or that read or make what runs there reads or makes.
    std::vector<std::vector<size_t>> calls, folds;
    Schedule schedule;
    StageTimes times;
    int64_t sinks = 0;                                           // bytes that the controller keeps
    std::vector<std::map<std::vector<int32_t>, int32_t>> slots;  // per stage: known ones
  };
  using Works = std::map<int32_t, StageWork>;  // per segment of the run
  struct Borders {
    StageTraffic traffic;
    std::map<TensorId, std::vector<Peer>> peers;
    std::map<TensorId, int32_t> until;  // the last phase in which other segments of the run read it
  };

  RunBytes(const Model& model, const PlanConfig& config, const OpNodes& ops)
      : config_(config), ops_(ops), whole_(&model), slack_(std::max(config.slack, 1)) {}
  void index_nodes();
  Status add_mode(Mode mode);
  void index_calls(ModeInfo& mode) const;
  void set_again();  // as configured, for the order of the schedule
  void set_times();
  int32_t slack_at(const std::vector<size_t>& first) const;
  // The distances of the stages that exchange tensors with the run; empty: all are adjacent.
  std::vector<int32_t> surroundings(const RunOfNodes& at, const std::vector<size_t>& first) const;
  // `first`: of all stages; null: those around the run are adjacent.
  static int32_t distance(const RunOfNodes& at, const std::vector<size_t>* first, size_t node);
  Cut cut_at(const RunOfNodes& at, const std::vector<size_t>* first) const;
  int32_t segment_of(const Cut& cut, NodeId node) const;
  static Segment segment_at(const Cut& cut, int32_t segment);
  const Run& run(const RunOfNodes& at, const std::vector<size_t>* first);
  std::vector<RunOfNodes> runs_at(const std::vector<size_t>& first) const;
  Works works_of(ModeInfo& mode, size_t s, const Cut& cut) const;
  Borders borders_of(const ModeInfo& mode, const Works& works, int32_t segment,
                     const Cut& cut) const;
  void add_sums(Run& run, const Cut& cut) const;
  void add_terms(Run& run, ModeInfo& mode, size_t s, const Cut& cut);
  void add_reads(Share& share, const ModeInfo& mode, size_t s, const StageWork& work) const;
  // Of the ranks with these stages: tensor rank * replicas + replica.
  const std::vector<RankBytes>& sum_of(std::span<const StageRun> stages);
  RankBytes sum_of(std::span<const StageRun> stages, ModeInfo& mode, size_t rank,
                   const Parameters& parameters);
  int32_t slots(ModeInfo& mode, std::span<const StageRun> stages, size_t s, const Term& term,
                int32_t tensor_rank);
  std::vector<RunOfSum> runs_of(std::span<const StageRun> stages) const;
  int32_t tensor_rank_in(std::span<const StageRun> stages, NodeId node) const;
  const Parameters& parameters_of(std::span<const StageRun> stages);
  Parameters count_parameters(std::span<const StageRun> stages) const;
  int64_t gathered_bytes(std::span<const StageRun> stages, const ModeInfo& mode, size_t tensor_rank,
                         int32_t rank, const Parameters& parameters) const;
  size_t position_of(size_t stage, int32_t tensor_rank) const;
  // `own`: as of Parameters, of the ranks with the stage.
  size_t rank_of(size_t stage, size_t own) const;
  bool recomputes_in_blocks(size_t s) const;
  int32_t own_micro_batches(const ModeInfo& mode, size_t s, int32_t replica) const;
  int32_t replicas_of(size_t s) const;

  PlanConfig config_;
  OpNodes ops_;
  const Model* whole_;
  std::shared_ptr<const Model> model_;  // what is run: pieces of the nodes
  Shapes shapes_;
  int32_t slack_;
  Schedule train_;
  std::vector<size_t> index_;  // per node of model_: into ops_
  // Per node of ops_: those with a common tensor; the parameters that its pieces use, and those of
  // its pieces that have a state.
  std::vector<std::vector<size_t>> near_;
  std::vector<std::vector<ParamId>> params_;
  std::vector<std::vector<NodeId>> stateful_;
  std::vector<WeightVersions> versions_;  // per stage
  Recompute recompute_;
  Again again_;
  std::vector<bool> split_;
  std::vector<size_t> turn_;              // per stage: its backward, in the row of its rank
  std::vector<std::vector<Kind>> kinds_;  // per stage: of its actions
  std::vector<std::unique_ptr<ModeInfo>> modes_;
  std::vector<std::unordered_map<size_t, BytesOfRun>> known_;  // per stage: of begin and end
  std::map<std::vector<size_t>, std::vector<RankBytes>> known_ranks_;
  std::map<std::vector<size_t>, Parameters> known_parameters_;
  std::map<std::pair<std::vector<Kind>, std::vector<int32_t>>, size_t> forms_;
  std::vector<size_t> form_;  // per stage: of its actions and recompute
  // Begin, end, form, the stages around it.
  std::map<std::tuple<size_t, size_t, size_t, std::vector<int32_t>>, Run> runs_;
};

}  // namespace weft
