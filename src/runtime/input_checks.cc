#include "runtime/input_checks.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

InputChecks::InputChecks(const Plan& plan) {
  const Model& model = *plan.model;
  const auto is_used = [&](Mode mode, NodeId node) {
    return plan.mode(mode).present && plan.mode(mode).graph.value[static_cast<size_t>(node)] >= 0;
  };
  const auto input_of = [&](NodeId node) {
    const auto at = std::find(model.inputs().begin(), model.inputs().end(), node);
    return at == model.inputs().end() ? -1 : static_cast<int32_t>(at - model.inputs().begin());
  };
  const auto add = [&](Mode mode, const Node::Use& at) {
    std::vector<Use>& uses = uses_[static_cast<size_t>(mode)];
    const Node& node = model.node(at.node);
    // Nodes that compute pieces of one node have the same check.
    const bool is_known = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      const Node& other = model.node(use.node);
      const auto port = static_cast<size_t>(at.port);
      return use.port == at.port && other.in[port] == node.in[port] && other.origin == node.origin;
    });
    if (is_known) return;
    Use& use = uses.emplace_back(Use{at.node, at.port, {}, {}, {}});
    for (const NodeId id : node.in) use.inputs.push_back(input_of(id));
    use.in.resize(node.in.size());
    for (const ParamId id : node.weights) use.weights.push_back(model.param(id).desc());
  };
  for (const NodeId id : model.inputs()) {
    const Node& input = model.node(id);
    if (input.one.out.dtype != DType::i32) continue;
    for (const Node::Use& use : input.uses)
      for (const Mode mode : kEveryMode)
        if (is_used(mode, use.node)) add(mode, use);
  }
}

Status InputChecks::check(const Plan& plan, Mode mode, const Batch& batch) {
  const Model& model = *plan.model;
  for (Use& use : uses_[static_cast<size_t>(mode)]) {
    const Node& node = model.node(use.node);
    for (size_t i = 0; i < use.in.size(); ++i) {
      const int32_t input = use.inputs[i];
      void* const data =
          input < 0 ? nullptr : const_cast<void*>(batch.inputs[static_cast<size_t>(input)]);
      use.in[i] = {data, model.desc(node.in[i], batch.samples)};
    }
    const Status status = node.op->check_input(node.attrs, use.port, use.in, use.weights);
    for (View& view : use.in) view.data = nullptr;  // the batch is borrowed
    if (!status.ok())
      return status.within(cat("input '", model.node(node.in[static_cast<size_t>(use.port)]).name,
                               "': node '", plan.whole->node(node.origin).name, "' (",
                               node.op->name(), ")"));
  }
  return {};
}

}  // namespace weft
