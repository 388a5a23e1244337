// The bytes of any run of nodes as a stage of a schedule, and of ranks with such stages, before
// there is a plan. They are the bytes that the plan of these stages has: the same functions count
// them (holdings.h, parameters.h, gradient_runs.h, units.h), for the same order (lock_step.h).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lowering/recompute.h"
#include "partition/run_terms.h"

namespace weft {

struct RankBytes {
  size_t position = 0;  // as in Plan
  int64_t limit = 0;
  int64_t all = 0;                 // of the largest of its modes
  int64_t least = 0;               // a rank with more nodes in its last stage needs no less
  int64_t train = 0, scratch = 0;  // of training, and the part for scratch memory

  int64_t over() const { return std::max<int64_t>(0, all - limit); }
};

class RunBytes {
 public:
  // `config`: of all ranks. `train`: the schedule of training that a replica has, or only forward
  // actions; ranks that share a stage are one of its ranks. `known`: of this model; only the
  // schedule, limits, cuts, recompute and packed weights of its configurations may differ.
  static Result<RunBytes> make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                               Schedule train, KnownRuns& known);

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
  using Share = RunTerms::Share;
  using Run = RunTerms::Run;
  // A stage, and its run with its surroundings.
  struct StageRun {
    RunOfNodes at;
    const Run* run;
  };
  // Of each rank: tensor rank * replicas + replica.
  struct Parameters {
    std::vector<int64_t> bytes;
    std::vector<int64_t> least;  // of these: what a rank with more nodes needs, too
    std::vector<int32_t> owner;  // per parameter: which of them; -1: another rank. If values are
                                 // gathered
  };
  // Of these stages, ascending.
  struct Used {
    std::vector<ParamId> params;
    std::vector<NodeId> stateful;
  };
  // Of a rank with some parameters; and those that it may not need if it has more nodes.
  struct ParamBytes {
    int64_t all = 0, spare = 0;
    void add(const ParamBytes& other) {
      all = sum_of_bytes(all, other.all);
      spare = sum_of_bytes(spare, other.spare);
    }
  };
  struct ModeInfo {
    Mode mode;
    Schedule schedule;
    StageTimes times;
    int64_t sinks = 0;                                           // bytes that the controller keeps
    std::vector<std::map<std::vector<int32_t>, int32_t>> slots;  // per stage: known ones
  };

  RunBytes(const Model& model, const PlanConfig& config, const OpNodes& ops)
      : config_(config), ops_(ops), whole_(&model), slack_(std::max(config.slack, 1)) {}
  Status add_mode(Mode mode);
  void set_again();  // as configured, for the order of the schedule
  void set_times();
  int32_t slack_at(const std::vector<size_t>& first) const;
  const Run& run(const RunOfNodes& at, const std::vector<size_t>* first);
  std::vector<RunOfNodes> runs_at(const std::vector<size_t>& first) const;
  // Of the ranks with these stages: tensor rank * replicas + replica.
  const std::vector<RankBytes>& sum_of(std::span<const StageRun> stages);
  RankBytes sum_of(std::span<const StageRun> stages, ModeInfo& mode, size_t rank,
                   const Parameters& parameters);
  int32_t slots(ModeInfo& mode, std::span<const StageRun> stages, size_t s, const Term& term,
                int32_t tensor_rank);
  std::vector<RunOfSum> runs_of(std::span<const StageRun> stages) const;
  int32_t tensor_rank_in(std::span<const StageRun> stages, NodeId node) const;
  const Parameters& parameters_of(std::span<const StageRun> stages);
  Used used_by(std::span<const StageRun> stages) const;
  Parameters count_parameters(std::span<const StageRun> stages);
  int64_t spare_bytes(const ResidentParam& param, int32_t replicas) const;
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
  std::shared_ptr<RunTerms> terms_;
  const Model* model_ = nullptr;  // what is run: pieces of the nodes
  int32_t slack_;
  Schedule train_;
  std::vector<WeightVersions> versions_;  // per stage
  Recompute recompute_;
  Again again_;
  std::vector<size_t> turn_;              // per stage: its backward, in the row of its rank
  std::vector<std::vector<Kind>> kinds_;  // per stage: of its actions
  std::vector<std::unique_ptr<ModeInfo>> modes_;
  std::vector<std::unordered_map<size_t, BytesOfRun>> known_;  // per stage: of begin and end
  std::map<std::vector<size_t>, std::vector<RankBytes>> known_ranks_;
  std::map<std::vector<size_t>, Parameters> known_parameters_;
  // Per parameter: of the first stage, the owner, and the tensor ranks that have its uses.
  std::vector<std::map<std::vector<int32_t>, std::vector<ParamBytes>>> known_param_bytes_;
  std::vector<size_t> form_;  // per stage: of RunTerms
};

}  // namespace weft
