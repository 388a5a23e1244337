// The sequential reference: the step graph of the unpartitioned model, executed call by call.
#include <algorithm>
#include <cmath>

#include "sim/provenance.h"

namespace weft {

SequentialReference::SequentialReference(const Model& model, const PlanConfig& config)
    : model_(model),
      optim_(config.optim),
      micro_batches_(config.micro_batches),
      groups_(config.gradient_groups) {
  const std::vector<int32_t> one_stage(model.nodes().size(), 0);
  for (Mode mode : {Mode::train, Mode::eval, Mode::infer})
    graphs_.push_back(build_step_graph(model, mode, one_stage));
  for (const Param& p : model.params()) weights_.push_back(Provenance::initial(p));
  state_.assign(weights_.size(), Provenance::cleared());
  grads_.resize(weights_.size());
}

SequentialReference::Outcome SequentialReference::step(const StepDescriptor& step) {
  Outcome outcome;
  outcome.deliveries.resize(graphs_[static_cast<size_t>(step.mode)].sinks.size());
  Sums sums = groups(step, 0, groups_, outcome);
  if (step.mode != Mode::infer) outcome.loss /= step.denominator;
  if (step.mode != Mode::train) return outcome;
  outcome.grad_norm = reduce(sums);
  if (step.update) update(step.step, clip_scale(optim_, outcome.grad_norm));
  return outcome;
}

// The sums of groups [begin, end): halves from the top, of which the left one is larger.
SequentialReference::Sums SequentialReference::groups(const StepDescriptor& step, int32_t begin,
                                                      int32_t end, Outcome& outcome) const {
  if (end - begin > 1) {
    const int32_t middle = end - (end - begin) / 2;
    Sums left = groups(step, begin, middle, outcome);
    const Sums right = groups(step, middle, end, outcome);
    for (size_t p = 0; p < left.size(); ++p)
      for (size_t u = 0; u < left[p].size(); ++u)
        left[p][u] = Provenance::add(right[p][u], left[p][u]);
    return left;
  }
  Sums sums = cleared_sums();
  const WeightOf weight = [this](NodeId, ParamId p) { return weights_[static_cast<size_t>(p)]; };
  const int32_t last = end == groups_ ? step.micro_batches : end * micro_batches_ / groups_;
  for (int32_t mb = begin * micro_batches_ / groups_; mb < std::min(last, step.micro_batches); ++mb)
    outcome.loss += micro_batch(step, mb, weight, sums, outcome);
  return sums;
}

SequentialReference::Outcome SequentialReference::segment(const StepDescriptor& step,
                                                          std::span<const int32_t> delay_of_node) {
  Outcome outcome;
  outcome.deliveries.resize(graphs_[static_cast<size_t>(step.mode)].sinks.size());
  std::vector<std::vector<Digest>> versions;  // what each update of the segment began with
  for (int32_t b = 0; b * step.per_update < step.micro_batches; ++b) {
    versions.push_back(weights_);
    Sums sums = cleared_sums();
    const WeightOf weight = [&](NodeId node, ParamId p) {
      return versions[static_cast<size_t>(
          std::max(0, b - delay_of_node[static_cast<size_t>(node)]))][static_cast<size_t>(p)];
    };
    double loss = 0;
    for (int32_t mb = b * step.per_update;
         mb < std::min((b + 1) * step.per_update, step.micro_batches); ++mb)
      loss += micro_batch(step, mb, weight, sums, outcome);
    outcome.update_losses.push_back(loss / denominator_of(step, b * step.per_update));
    outcome.update_norms.push_back(reduce(sums));
    update(step.step + static_cast<uint64_t>(b), 1);
  }
  outcome.grad_norm = outcome.update_norms.back();
  return outcome;
}

SequentialReference::Sums SequentialReference::cleared_sums() const {
  Sums sums(weights_.size());
  for (size_t p = 0; p < sums.size(); ++p)
    sums[p].assign(model_.params()[p].uses.size(), Provenance::cleared());
  return sums;
}

double SequentialReference::micro_batch(const StepDescriptor& step, int32_t mb,
                                        const WeightOf& weight, Sums& sums,
                                        Outcome& outcome) const {
  const StepGraph& graph = graphs_[static_cast<size_t>(step.mode)];
  std::vector<Digest> value(graph.tensors.size());
  auto at = [&](TensorId t) -> Digest& { return value[static_cast<size_t>(t)]; };
  for (NodeId i : model_.inputs())
    if (graph.value[static_cast<size_t>(i)] >= 0)
      at(graph.value[static_cast<size_t>(i)]) = Provenance::fed(i, step, mb);
  for (const StepCall& call : graph.calls) {
    if (call.kind == CallKind::add) {
      at(call.out) = Provenance::add(at(call.in[0]), at(call.in[1]));
      continue;
    }
    if (call.kind == CallKind::join) {
      std::vector<Digest> parts;
      for (TensorId t : call.in) parts.push_back(at(t));
      at(call.out) = Provenance::join(call.node, parts);
      continue;
    }
    const Node& node = model_.node(call.node);
    std::vector<Digest> operands;
    auto take = [&](TensorId t) {
      if (t >= 0) operands.push_back(at(t));
    };
    for (TensorId t : call.in) take(t);
    if (call.kind != CallKind::weight_grad)
      for (ParamId w : node.weights) operands.push_back(weight(call.node, w));
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
          accumulator =
              &sums[static_cast<size_t>(node.weights[static_cast<size_t>(call.weight)])][u];
      operands.push_back(*accumulator);
    }
    const Digest made =
        Provenance::call(model_, call.kind, call.node, call.weight, step, mb, operands);
    if (call.kind == CallKind::forward) {
      at(call.out) = Provenance::result(made, 0);
      for (size_t k = 0; k < call.stash.size(); ++k)
        at(call.stash[k]) = Provenance::result(made, static_cast<int32_t>(k) + 1);
    }
    for (size_t i = 0; i < call.din.size(); ++i)
      if (call.din[i] >= 0) at(call.din[i]) = Provenance::result(made, static_cast<int32_t>(i));
    if (accumulator) *accumulator = Provenance::result(made, 0);
  }
  for (size_t s = 0; s < graph.sinks.size(); ++s)
    outcome.deliveries[s].push_back(at(graph.sinks[s]));
  return step.mode == Mode::infer ? 0 : as_number(outcome.deliveries[0].back());
}

// Folds the uses of each parameter; returns the norm.
double SequentialReference::reduce(Sums& sums) {
  double sum = 0;
  for (size_t p = 0; p < sums.size(); ++p) {
    for (size_t u = sums[p].size() - 1; u > 0; --u)
      sums[p][u - 1] = Provenance::add(sums[p][u], sums[p][u - 1]);
    grads_[p] = sums[p][0];
    sum += Provenance::square(grads_[p]);
  }
  return std::sqrt(sum);
}

void SequentialReference::update(uint64_t step, double scale) {
  const bool keeps_state = slots(optim_) > 0;
  for (size_t p = 0; p < weights_.size(); ++p) {
    weights_[p] = Provenance::update(weights_[p], grads_[p],
                                     keeps_state ? state_[p] : Provenance::cleared(), step, scale);
    state_[p] = Provenance::result(weights_[p], 1);
  }
}

}  // namespace weft
