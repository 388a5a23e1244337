// Provenance: in the simulator the value of a tensor can be a digest of its computation,
// hash(kernel, digests of its operands). Two runs with equal digests made the same kernel calls on
// the same values, so that partitions and schedules are compared without computing floats.
//
// DigestWorker replaces runtime/worker.h, with the same jobs and places. It stores which bytes
// contain which value. Therefore a place that is reused too early, or read before it was written,
// is an error and not only another digest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

// Digest as a number in [1, 2): sums of such numbers depend on their order, as sums of floats do.
double as_number(const Digest& digest);

// The digest of each kernel; the sequential reference and the workers share no other code.
struct Provenance {
  static Digest initial(const Param& param);
  static Digest cleared();
  // `operands` in canonical order: inputs, weights (not for W), output, stash, dout, acc; without
  // those that are not read.
  static Digest call(const Model& model, CallKind kind, NodeId node, int32_t weight,
                     const StepDescriptor& step, int32_t micro_batch,
                     std::span<const Digest> operands);
  static Digest result(const Digest& call, int32_t index);  // F: 0 output, 1.. stash; I: port
  static Digest add(const Digest& later, const Digest& earlier);
  static Digest mean(const Digest& sum, int32_t parts);
  static Digest join(NodeId first, std::span<const Digest> parts);
  static double square(const Digest& grad);
  static Digest update(const Digest& weight, const Digest& grad, const Digest& state, uint64_t step,
                       double scale);
  static Digest fed(NodeId input, const StepDescriptor& step, int32_t micro_batch);
};

class DigestWorker {
 public:
  DigestWorker(std::shared_ptr<const Plan> plan, int32_t rank);

  Status run(const StepDescriptor& step, double scale, int32_t job);
  std::span<const double> squares() const { return std::span(squares_).first(summed_); }
  // Of a feed: the input.
  Result<Digest> outgoing(const StepDescriptor& step, int32_t edge, int32_t micro_batch) const;
  Status land(const StepDescriptor& step, int32_t edge, int32_t micro_batch, const Digest& value);
  Result<Digest> landed(const StepDescriptor& step, int32_t edge, int32_t micro_batch) const;
  // Rank 0: the deliveries of micro-batches, [sink][micro-batch] in the order of the sink edges.
  Status read_sinks(const StepDescriptor& step, int32_t micro_batch,
                    std::vector<std::vector<Digest>>& out) const;
  Result<Digest> weight(ParamId param) const;
  Result<Digest> grad(ParamId param) const;

 private:
  struct Held {
    int64_t bytes;
    Digest digest;
  };
  const RankProgram& program(Mode mode) const {
    return plan_->mode(mode).ranks[static_cast<size_t>(rank_)];
  }
  int64_t version_of(const Edge& edge, int32_t update) const;
  int64_t address(const RankProgram& program, const Place& place, int32_t micro_batch,
                  uint64_t sequence) const;
  Result<Digest> read(int64_t address, int64_t bytes, const std::string& what) const;
  void write(int64_t address, int64_t bytes, const Digest& digest);
  // To the copy that other ranks get, if there is one.
  void write_sent(const ResidentParam& param, const Digest& value);
  Status run_action(const StepDescriptor& step, const RankProgram& program, const Job& job);
  Status run_call(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                  int32_t micro_batch, size_t variant);
  const WeightVersions& versions() const { return plan_->versions[static_cast<size_t>(rank_)]; }
  // One of the sums of an accumulator, see GroupSums.
  static int64_t sum_at(const PlacedOperand& accumulator, int32_t depth);
  Status fold(int64_t from, int64_t to, int64_t bytes);
  void clear();
  Status reduce(const Bucket& bucket, int32_t update, int32_t parts);
  Status add_sums(const ResidentParam& p, const Bucket::Part& part);
  Status update(uint64_t step, int32_t from, int32_t to, double scale);
  Status run_update(const StepDescriptor& step, int32_t update);
  Status make_first(int32_t version);
  const ResidentParam* find(ParamId param) const;

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  std::map<int64_t, Held> memory_;  // by address; never overlapping
  std::vector<double> squares_;
  size_t owned_ = 0, summed_ = 0;  // parameters; squares of the last step
};

// The whole model, one call after another, with separate memory for every tensor. Every plan must
// have the same result.
class SequentialReference {
 public:
  SequentialReference(const Model& model, const PlanConfig& config);

  struct Outcome {
    double loss = 0, grad_norm = 0;
    std::vector<double> update_losses, update_norms;  // of a segment
    std::vector<std::vector<Digest>>
        deliveries;  // [sink in the order of StepGraph::sinks][micro-batch]
  };
  Outcome step(const StepDescriptor& step);
  // The updates of a segment, one after another. Update b changes the result of the update before
  // it by a gradient for which each node used the weights of `delay_of_node` updates earlier, but
  // not earlier than the start of the segment. The parameters of a node with r replicas change once
  // per r updates, by the mean of their gradients; its delay counts these rounds.
  Outcome segment(const StepDescriptor& step, std::span<const int32_t> delay_of_node,
                  std::span<const int32_t> replicas_of_node);
  // A step of this plan without an update: each replica adds the gradients of its micro-batches.
  Outcome gradients(const StepDescriptor& step, std::span<const int32_t> replicas_of_node);
  const Digest& weight(ParamId param) const { return weights_[static_cast<size_t>(param)]; }
  const Digest& grad(ParamId param) const { return grads_[static_cast<size_t>(param)]; }

 private:
  using Sums = std::vector<std::vector<Digest>>;  // [parameter][use]
  using WeightOf = std::function<Digest(NodeId node, ParamId param)>;
  Sums cleared_sums() const;
  Sums groups(const StepDescriptor& step, int32_t begin, int32_t end, Outcome& outcome) const;
  double micro_batch(const StepDescriptor& step, int32_t mb, const WeightOf& weight, Sums& sums,
                     Outcome& outcome) const;
  double reduce(Sums& sums);
  bool is_frozen(size_t param) const { return model_.params()[param].training.frozen; }
  std::vector<int32_t> replicas_of_params(std::span<const int32_t> replicas_of_node) const;
  void update(ParamId param, uint64_t step, double scale);
  void update(uint64_t step, double scale);

  const Model& model_;
  OptimSettings optim_;
  const int32_t micro_batches_, groups_;  // of the plan
  std::vector<StepGraph> graphs_;
  std::vector<Digest> weights_, state_, grads_;
};

}  // namespace weft
