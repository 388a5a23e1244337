#include "support/sequential_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::test {

namespace {

// The gradient of a parameter: of its uses, from the last to the first.
Digest fold(std::vector<Digest> uses) {
  for (size_t u = uses.size() - 1; u > 0; --u) uses[u - 1] = Provenance::add(uses[u], uses[u - 1]);
  return uses[0];
}

// Sums per use, added part by part as a binary tree whose left half is the larger one.
std::vector<Digest> added(std::span<const std::vector<Digest>> parts) {
  if (parts.size() == 1) return parts[0];
  const size_t middle = parts.size() - parts.size() / 2;
  std::vector<Digest> left = added(parts.first(middle));
  const std::vector<Digest> right = added(parts.subspan(middle));
  for (size_t u = 0; u < left.size(); ++u) left[u] = Provenance::add(right[u], left[u]);
  return left;
}

}  // namespace

SequentialReference::SequentialReference(const Model& model, const PlanConfig& config)
    : model_(model),
      optim_(config.optim),
      micro_batches_(config.micro_batches),
      groups_(config.gradient_groups) {
  const std::vector<int32_t> one_stage(model.nodes().size(), 0);
  for (Mode mode : kEveryMode)
    graphs_.push_back(
        build_step_graph(model, mode, one_stage, {.outputs = config.delivers_outputs(mode)}));
  for (const Param& p : model.params()) weights_.push_back(Provenance::initial(p));
  state_.assign(weights_.size(), Provenance::cleared());
  grads_.resize(weights_.size());
}

SequentialReference::Outcome SequentialReference::step(const StepDescriptor& step) {
  Outcome outcome;
  outcome.deliveries.resize(graphs_[static_cast<size_t>(step.mode)].sinks.size());
  Sums sums = groups(step, 0, groups_, outcome);
  if (has_loss(step.mode)) outcome.loss /= step.denominator;
  if (step.mode != Mode::train) return outcome;
  outcome.grad_norm = reduce(sums);
  if (step.update) update(step.step, clip_scale(optim_, outcome.grad_norm));
  return outcome;
}

// The sums of groups [begin, end): a binary tree whose left half is the larger one.
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

SequentialReference::Outcome SequentialReference::segment(
    const StepDescriptor& step, std::span<const int32_t> delay_of_node,
    std::span<const int32_t> replicas_of_node) {
  const std::vector<int32_t> replicas = replicas_of_params(replicas_of_node);
  Outcome outcome;
  outcome.deliveries.resize(graphs_[static_cast<size_t>(step.mode)].sinks.size());
  std::vector<std::vector<Digest>> versions;  // the parameters before each update of the segment
  const int32_t updates = (step.micro_batches + step.per_update - 1) / step.per_update;
  std::vector<Sums> parts_of_update(static_cast<size_t>(updates), cleared_sums());
  // The ranks of a stage run its micro-batches in turn. Several per update are only possible with
  // the same number of ranks for every stage.
  const int32_t turns = step.per_update > 1 ? replicas_of_node.front() : 1;
  const auto sums_of = [&](int32_t mb) -> Sums& {
    const int32_t round = mb / (step.per_update * turns);
    return parts_of_update[static_cast<size_t>(round * turns + mb % turns)];
  };
  std::vector<std::vector<double>> squares;  // of the gradients, per update and parameter
  for (int32_t b = 0; b * step.per_update < step.micro_batches; ++b) {
    versions.push_back(weights_);
    const WeightOf weight = [&](NodeId node, ParamId p) {
      const int32_t r = replicas[static_cast<size_t>(p)];
      const int32_t round = std::max(0, b / r - delay_of_node[static_cast<size_t>(node)]);
      return versions[static_cast<size_t>(round * r)][static_cast<size_t>(p)];
    };
    double loss = 0;
    for (int32_t mb = b * step.per_update;
         mb < std::min((b + 1) * step.per_update, step.micro_batches); ++mb)
      loss += micro_batch(step, mb, weight, sums_of(mb), outcome);
    outcome.update_losses.push_back(loss / denominator_of(step, b * step.per_update));
    squares.emplace_back(weights_.size());
    for (ParamId p = 0; p < static_cast<ParamId>(weights_.size()); ++p) {
      const auto i = static_cast<size_t>(p);
      const int32_t r = replicas[i], first = b + 1 - r;
      if ((b + 1) % r != 0 || is_frozen(i)) continue;
      std::vector<std::vector<Digest>> parts;
      for (int32_t u = first; u <= b; ++u)
        parts.push_back(parts_of_update[static_cast<size_t>(u)][i]);
      grads_[i] = fold(added(parts));
      if (r > 1) grads_[i] = Provenance::mean(grads_[i], r);
      for (int32_t u = first; u <= b; ++u)
        squares[static_cast<size_t>(u)][i] = Provenance::square(grads_[i]);
      update(p, step.step + static_cast<uint64_t>(first), 1);
    }
  }
  for (const std::vector<double>& of_update : squares)
    outcome.update_norms.push_back(
        std::sqrt(std::accumulate(of_update.begin(), of_update.end(), 0.0)));
  outcome.grad_norm = outcome.update_norms.back();
  return outcome;
}

SequentialReference::Outcome SequentialReference::gradients(
    const StepDescriptor& step, std::span<const int32_t> replicas_of_node) {
  const std::vector<int32_t> replicas = replicas_of_params(replicas_of_node);
  Outcome outcome;
  outcome.deliveries.resize(graphs_[static_cast<size_t>(step.mode)].sinks.size());
  const WeightOf weight = [this](NodeId, ParamId p) { return weights_[static_cast<size_t>(p)]; };
  const int32_t most = *std::max_element(replicas_of_node.begin(), replicas_of_node.end());
  // Per number of replicas: the sums of each.
  std::vector<std::vector<Sums>> sums(static_cast<size_t>(most) + 1);
  for (int32_t r = 1; r <= most; ++r) {
    sums[static_cast<size_t>(r)].assign(static_cast<size_t>(r), cleared_sums());
    Outcome same;
    same.deliveries.resize(outcome.deliveries.size());
    for (int32_t mb = 0; mb < step.micro_batches; ++mb)
      same.loss += micro_batch(step, mb, weight,
                               sums[static_cast<size_t>(r)][static_cast<size_t>(mb % r)], same);
    outcome = same;
  }
  outcome.loss /= step.denominator;
  double sum = 0;
  for (size_t p = 0; p < weights_.size(); ++p) {
    if (is_frozen(p)) continue;
    std::vector<std::vector<Digest>> parts;
    for (const Sums& replica : sums[static_cast<size_t>(replicas[p])]) parts.push_back(replica[p]);
    grads_[p] = fold(added(parts));
    sum += Provenance::square(grads_[p]);
  }
  outcome.grad_norm = std::sqrt(sum);
  return outcome;
}

std::vector<int32_t> SequentialReference::replicas_of_params(
    std::span<const int32_t> replicas_of_node) const {
  std::vector<int32_t> out;
  for (const Param& param : model_.params())
    out.push_back(replicas_of_node[static_cast<size_t>(param.uses.front().node)]);
  return out;
}

SequentialReference::Sums SequentialReference::cleared_sums() const {
  Sums sums(weights_.size());
  for (size_t p = 0; p < sums.size(); ++p)
    sums[p].assign(static_cast<size_t>(model_.params()[p].sums), Provenance::cleared());
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
    if (reads_weights(node, call.kind))
      for (ParamId w : node.weights) operands.push_back(weight(call.node, w));
    Digest* accumulator = nullptr;
    if (call.kind != CallKind::forward) {
      take(call.out);
      for (TensorId t : call.stash) take(t);
      take(call.dout);
    }
    if (call.kind == CallKind::weight_grad) {
      const Param& param = model_.param(node.weights[static_cast<size_t>(call.weight)]);
      const auto p = static_cast<size_t>(node.weights[static_cast<size_t>(call.weight)]);
      accumulator = &sums[p][static_cast<size_t>(param.sum_of(call.node, call.weight))];
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
  return has_loss(step.mode) ? as_number(at(graph.value[static_cast<size_t>(model_.loss())])) : 0;
}

// Folds the uses of each parameter; returns the norm.
double SequentialReference::reduce(Sums& sums) {
  double sum = 0;
  for (size_t p = 0; p < sums.size(); ++p) {
    if (is_frozen(p)) continue;
    grads_[p] = fold(sums[p]);
    sum += Provenance::square(grads_[p]);
  }
  return std::sqrt(sum);
}

void SequentialReference::update(uint64_t step, double scale) {
  for (ParamId p = 0; p < static_cast<ParamId>(weights_.size()); ++p)
    if (!is_frozen(static_cast<size_t>(p))) update(p, step, scale);
}

void SequentialReference::update(ParamId param, uint64_t step, double scale) {
  const auto p = static_cast<size_t>(param);
  const bool keeps_state = model_.params()[p].has_gradient() && slots(optim_) > 0;
  weights_[p] = Provenance::update(weights_[p], grads_[p],
                                   keeps_state ? state_[p] : Provenance::cleared(), step, scale);
  state_[p] = Provenance::result(weights_[p], 1);
}

}  // namespace weft::test
