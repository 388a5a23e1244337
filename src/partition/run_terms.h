// The tensors that any run of nodes holds as a stage, whatever the order of actions is.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/hash.h"
#include "lowering/gradient_runs.h"
#include "lowering/holdings.h"
#include "lowering/segments.h"
#include "partition/balance.h"
#include "partition/stages.h"

namespace weft {

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
  TensorId tensor = -1;          // if other stages exchange it
  int32_t read = kPhaseF;        // the phase in which other stages read it
  std::vector<Peer> peers = {};  // landing: its maker; shared: its readers in other stages
  bool operator==(const Term&) const = default;

  // Whether a longer run that begins at the same node holds the tensors too, at least as long.
  // Unless it is recomputed in blocks, so does any run that contains it.
  bool stays(bool in_blocks) const {
    if (in_blocks) return kind == Holding::Kind::kept && first != kPhaseR;
    return (kind == Holding::Kind::kept || kind == Holding::Kind::shared) && first < last;
  }
};

using Reads = std::vector<std::vector<ParamId>>;  // values of parameters, per unit of an action

// The actions of a stage, and per segment of it (segments.h), or for all of them, the forward calls
// per recompute block, 0: none.
struct StageForm {
  std::vector<Kind> kinds;  // ascending
  std::vector<int32_t> again;
  auto operator<=>(const StageForm&) const = default;

  bool split() const {
    return std::any_of(kinds.begin(), kinds.end(),
                       [](Kind kind) { return kind == Kind::I || kind == Kind::W; });
  }
};

struct RemadeCalls {
  int32_t tensor_rank = 0;  // of the segment
  size_t position = 0;      // of its rank; RunBytes sets it
  int32_t forward = 0;      // calls of a segment
  bool any = false;         // whether it recomputes some of them
  NodeTimes time;           // of a micro-batch for that: `forward` in R
};

class RunTerms {
 public:
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

  // `config`, `train`: as for RunBytes, of which only what affects the result is used.
  RunTerms(const Model& model, std::shared_ptr<const Model> pieces, const PlanConfig& config,
           const OpNodes& ops, const Schedule& train);

  // The number of a form, for run() and remade().
  size_t form(StageForm form);
  // `first`: of all stages; null: all nodes before the run are in the stage before, and all nodes
  // after it in the stage after.
  const Run& run(const RunOfNodes& at, size_t form, const std::vector<size_t>* first);
  // Per segment, by the times of the nodes of the model that is run.
  std::vector<RemadeCalls> remade(const RunOfNodes& at, size_t form,
                                  const std::vector<size_t>& first,
                                  const std::vector<NodeTimes>& times);

  const std::shared_ptr<const Model>& pieces() const { return pieces_; }
  // How many segments of runs were lowered: of those that are alike, one.
  size_t patterns(Mode mode) const;
  // Per node of the model that is run: into OpNodes.
  size_t index(NodeId node) const { return index_[static_cast<size_t>(node)]; }
  // Of a node of OpNodes: the parameters that its pieces use, and those of its pieces that have a
  // state.
  const std::vector<ParamId>& params(size_t node) const { return params_[node]; }
  const std::vector<NodeId>& stateful(size_t node) const { return stateful_[node]; }
  // The number of nodes before it that have any of them.
  size_t resident_before(size_t node) const { return resident_before_[node]; }
  // Of a micro-batch: bytes that the controller keeps.
  std::vector<int64_t> sinks(Mode mode) const;

 private:
  // A run as stage 0, others by their distance.
  struct Cut {
    RunOfNodes at;
    const std::vector<size_t>* first;
    std::vector<int32_t> own;  // segments of the run
    SegmentedStages
        segmented;  // without segments if each stage is one, whose number is its distance
  };
  // The calls of a segment. Most runs share it with others, which begin or end elsewhere.
  struct Part {
    std::vector<const StepCall*> calls;
    bool split = false;                  // as in StageWork
    int32_t again = 0;                   // forward calls per recompute block, 0: none
    std::vector<TensorId> tensors = {};  // of the calls, ascending
    std::vector<bool> made = {};         // per tensor: by the calls
    Digest digest = {};                  // of the calls, whatever tensors these are
    FlatMap<TensorId, Life> lives = {};  // of the tensors, if others of the run may read them

    StageWork work() const { return make_stage_work(calls, split, again); }
    TensorId number_of(TensorId t) const;
  };
  using Parts = std::map<int32_t, std::shared_ptr<const Part>>;  // per segment of the run
  // How a part shares a tensor of its calls.
  struct Border {
    bool outside = false;  // it arrives, or others use it too
    int32_t until = -1;    // the last phase in which other segments of the run read it
  };
  // The terms of parts whose calls differ only in which tensors they use: a Term::tensor is the
  // number of the tensor among these.
  struct AlikeTerms {
    std::vector<Term> terms;
    int64_t scratch = 0;
  };
  struct ModeGraph {
    StepGraph graph;
    std::vector<std::vector<size_t>> readers;  // per tensor: calls
    // Per node of OpNodes: the calls of its nodes other than folds; and the folds that can run
    // there, or that read or make what runs there reads or makes.
    std::vector<std::vector<size_t>> calls, folds;
    GraphBytes bytes;
    std::vector<bool> sink;                               // per tensor
    std::map<Digest, AlikeTerms> alike;                   // of parts
    std::map<Digest, std::shared_ptr<const Part>> parts;  // of runs with several
  };

  void index_nodes(const Model& whole, const OpNodes& ops);
  void add_mode(Mode mode, const Shapes& shapes);
  void index_calls(ModeGraph& mode) const;
  // The distances of the stages that exchange tensors with the run; empty: all are adjacent.
  std::vector<int32_t> surroundings(const RunOfNodes& at, const std::vector<size_t>& first) const;
  // `first`: of all stages; null: those around the run are adjacent.
  static int32_t distance(const RunOfNodes& at, const std::vector<size_t>* first, size_t node);
  Cut cut_at(const RunOfNodes& at, const std::vector<size_t>* first) const;
  int32_t segment_of(const Cut& cut, NodeId node) const;
  static Segment segment_at(const Cut& cut, int32_t segment);
  Parts parts_of(ModeGraph& mode, const StageForm& form, const Cut& cut) const;
  // Completes a part that has its calls.
  void index_part(const ModeGraph& mode, Part& part) const;
  bool is_fed(const StepTensor& tensor) const;
  // The ranks of other stages that read a tensor which the run makes, or the one that makes it.
  std::vector<Peer> peers_of(const ModeGraph& mode, TensorId t, bool made, const Cut& cut) const;
  std::vector<Border> borders_of(const ModeGraph& mode, const Parts& parts, int32_t segment,
                                 const Cut& cut) const;
  void add_sums(Run& run, const Cut& cut) const;
  void add_terms(Run& run, ModeGraph& mode, const StageForm& form, const Cut& cut) const;
  AlikeTerms lower(const ModeGraph& mode, const Part& part,
                   const std::vector<Border>& borders) const;
  void add_alike(Share& share, const ModeGraph& mode, const AlikeTerms& alike, const Part& part,
                 const Cut& cut) const;
  static void copy_mode(const Run& from, size_t mode, Run& to);
  void add_reads(Share& share, Mode mode, const StageForm& form, const StageWork& work) const;

  std::shared_ptr<const Model> pieces_;
  PlanConfig config_;
  std::vector<size_t> index_;
  std::vector<std::vector<size_t>> near_;  // per node of OpNodes: those with a common tensor
  std::vector<std::vector<ParamId>> params_;
  std::vector<std::vector<NodeId>> stateful_;
  std::vector<size_t> resident_before_;  // per node, and of all
  std::vector<ModeGraph> modes_;         // those that the model has
  std::map<StageForm, size_t> forms_;
  std::vector<const StageForm*> form_;
  // Begin, end, the stages around it; per form.
  std::map<std::tuple<size_t, size_t, std::vector<int32_t>>, std::map<size_t, Run>> runs_;
};

// The runs of one model and configuration. Searches with several schedules and limits share them.
class KnownRuns {
 public:
  Result<std::shared_ptr<RunTerms>> of(const Model& model, const PlanConfig& config,
                                       const OpNodes& ops, const Schedule& train);

 private:
  std::shared_ptr<const Model> pieces_;
  std::map<std::pair<std::string, int32_t>, std::shared_ptr<RunTerms>> runs_;
};

}  // namespace weft
