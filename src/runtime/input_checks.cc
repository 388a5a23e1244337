#include "runtime/input_checks.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

InputChecks::InputChecks(const Plan& plan) {
  const Model& model = *plan.model;
  const auto is_used = [&](Mode mode, NodeId node) {
    return plan.mode(mode).present && plan.mode(mode).graph.value[static_cast<size_t>(node)] >= 0;
  };
  const auto add = [&](Mode mode, size_t input, const Node::Use& at) {
    std::vector<Use>& uses = uses_[static_cast<size_t>(mode)];
    const Node& node = model.node(at.node);
    // Nodes that compute pieces of one node have the same check.
    const bool is_known = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.input == input && use.port == at.port &&
             model.node(use.node).origin == node.origin;
    });
    if (is_known) return;
    Use& use = uses.emplace_back(Use{input, at.node, at.port, {}, {}});
    for (const NodeId id : node.in) use.in.push_back(model.desc(id, 1));
    for (const ParamId id : node.weights) use.weights.push_back(model.param(id).desc());
  };
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const Node& input = model.node(model.inputs()[i]);
    if (input.one.out.dtype != DType::i32) continue;
    for (const Node::Use& use : input.uses)
      for (const Mode mode : kEveryMode)
        if (is_used(mode, use.node)) add(mode, i, use);
  }
}

Status InputChecks::check(const Plan& plan, Mode mode, const Batch& batch) const {
  const Model& model = *plan.model;
  for (const auto& [input, id, port, in, weights] : uses_[static_cast<size_t>(mode)]) {
    const NodeId from = model.inputs()[input];
    const View view{const_cast<void*>(batch.inputs[input]), model.desc(from, batch.samples)};
    const Node& node = model.node(id);
    const Status status = node.op->check_input(node.attrs, port, view, in, weights);
    if (!status.ok())
      return status.within(cat("input '", model.node(from).name, "': node '",
                               plan.whole->node(node.origin).name, "' (", node.op->name(), ")"));
  }
  return {};
}

}  // namespace weft
