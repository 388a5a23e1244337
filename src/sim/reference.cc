// The sequential reference: the step graph of the unpartitioned model, executed call by call.
#include <cmath>

#include "sim/provenance.h"

namespace weft {

SequentialReference::SequentialReference(const Model& model, const OptimSettings& optim) : model_(model), optim_(optim) {
  const std::vector<int32_t> one_stage(model.nodes().size(), 0);
  for (Mode mode : {Mode::train, Mode::eval, Mode::infer}) graphs_.push_back(build_step_graph(model, mode, one_stage));
  for (const Param& p : model.params()) weights_.push_back(Provenance::initial(p));
  state_.assign(weights_.size(), Provenance::cleared());
  grads_.resize(weights_.size());
}

SequentialReference::Outcome SequentialReference::step(const StepDescriptor& step) {
  const StepGraph& graph = graphs_[static_cast<size_t>(step.mode)];
  Outcome outcome;
  outcome.deliveries.resize(graph.sinks.size());
  std::vector<std::vector<Digest>> acc(weights_.size());   // [parameter][use]
  for (size_t p = 0; p < acc.size(); ++p) acc[p].assign(model_.params()[p].uses.size(), Provenance::cleared());

  for (int32_t mb = 0; mb < step.micro_batches; ++mb) {
    std::vector<Digest> value(graph.tensors.size());
    auto at = [&](TensorId t) -> Digest& { return value[static_cast<size_t>(t)]; };
    for (NodeId i : model_.inputs())
      if (graph.value[static_cast<size_t>(i)] >= 0) at(graph.value[static_cast<size_t>(i)]) = Provenance::fed(i, step, mb);
    for (const StepCall& call : graph.calls) {
      if (call.kind == CallKind::add) {
        at(call.out) = Provenance::add(at(call.in[0]), at(call.in[1]));
        continue;
      }
      const Node& node = model_.node(call.node);
      std::vector<Digest> operands;
      auto take = [&](TensorId t) {
        if (t >= 0) operands.push_back(at(t));
      };
      for (TensorId t : call.in) take(t);
      if (call.kind != CallKind::weight_grad)
        for (ParamId w : node.weights) operands.push_back(weights_[static_cast<size_t>(w)]);
      Digest* accumulator = nullptr;
      if (call.kind != CallKind::forward) {
        take(call.out);
        for (TensorId t : call.stash) take(t);
        take(call.dout);
      }
      if (call.kind == CallKind::weight_grad) {
        const Param& param = model_.param(node.weights[static_cast<size_t>(call.weight)]);
        for (size_t u = 0; u < param.uses.size(); ++u)
          if (param.uses[u].node == call.node && param.uses[u].port == call.weight)
            accumulator = &acc[static_cast<size_t>(node.weights[static_cast<size_t>(call.weight)])][u];
        operands.push_back(*accumulator);
      }
      const Digest made = Provenance::call(model_, call.kind, call.node, call.weight, step, mb, operands);
      if (call.kind == CallKind::forward) {
        at(call.out) = Provenance::result(made, 0);
        for (size_t k = 0; k < call.stash.size(); ++k) at(call.stash[k]) = Provenance::result(made, static_cast<int32_t>(k) + 1);
      }
      for (size_t i = 0; i < call.din.size(); ++i)
        if (call.din[i] >= 0) at(call.din[i]) = Provenance::result(made, static_cast<int32_t>(i));
      if (accumulator) *accumulator = Provenance::result(made, 0);
    }
    for (size_t s = 0; s < graph.sinks.size(); ++s) outcome.deliveries[s].push_back(at(graph.sinks[s]));
    if (step.mode != Mode::infer) outcome.loss += as_number(outcome.deliveries[0].back());
  }
  if (step.mode != Mode::infer) outcome.loss /= step.denominator;
  if (step.mode != Mode::train) return outcome;

  double sum = 0;
  for (size_t p = 0; p < acc.size(); ++p) {
    for (size_t u = acc[p].size() - 1; u > 0; --u) acc[p][u - 1] = Provenance::add(acc[p][u], acc[p][u - 1]);
    grads_[p] = acc[p][0];
    sum += Provenance::square(grads_[p]);
  }
  outcome.grad_norm = std::sqrt(sum);
  if (!step.update) return outcome;
  const double scale = clip_scale(optim_, outcome.grad_norm);
  const bool keeps_state = slots(optim_) > 0;
  for (size_t p = 0; p < acc.size(); ++p) {
    weights_[p] = Provenance::update(weights_[p], grads_[p], keeps_state ? state_[p] : Provenance::cleared(), step, scale);
    state_[p] = Provenance::result(weights_[p], 1);
  }
  return outcome;
}

}  // namespace weft
