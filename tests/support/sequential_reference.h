// The sequential reference: the step graph of the unpartitioned model, executed call by call.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "support/provenance.h"

namespace weft::test {

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

}  // namespace weft::test
