#include "runtime/input_ranges.h"

#include "base/text.h"
#include "ops/indices.h"

namespace weft {

namespace {

IndexRange range_at(const Model& model, const Node::Use& use) {
  const Node& node = model.node(use.node);
  std::vector<Desc> in, weights;
  for (const NodeId id : node.in) in.push_back(model.desc(id, 1));
  for (const ParamId id : node.weights) weights.push_back(model.param(id).desc());
  return node.op->index_range(node.attrs, use.port, in, weights);
}

}  // namespace

InputRanges::InputRanges(const Plan& plan) {
  const Model& model = *plan.model;
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const Node& input = model.node(model.inputs()[i]);
    if (input.one.out.dtype != DType::i32) continue;
    for (const Node::Use& use : input.uses) {
      const IndexRange range = range_at(model, use);
      if (range.first == INT32_MIN) continue;
      for (const Mode mode : kEveryMode)
        if (plan.mode(mode).present &&
            plan.mode(mode).graph.value[static_cast<size_t>(use.node)] >= 0)
          uses_[static_cast<size_t>(mode)].push_back({i, use.node, range});
    }
  }
}

Status InputRanges::check(const Plan& plan, Mode mode, const Batch& batch) const {
  const Model& model = *plan.model;
  for (const auto& [input, node, range] : uses_[static_cast<size_t>(mode)]) {
    const NodeId id = model.inputs()[input];
    const std::span values(static_cast<const int32_t*>(batch.inputs[input]),
                           static_cast<size_t>(model.desc(id, batch.samples).elements()));
    const int32_t* outside = find_outside(values, range);
    if (!outside) continue;
    const std::string& reader = plan.whole->node(model.node(node).origin).name;
    return outside_status(cat("input '", model.node(id).name, "' of node '", reader, "'"),
                          outside - values.data(), *outside, range);
  }
  return {};
}

}  // namespace weft
