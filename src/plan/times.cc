#include "plan/times.h"

namespace weft {

std::vector<NodeTimes> analysed_times(const Model& model, int64_t samples) {
  // Each output element is read and written once beside what is multiplied: adds and copies cost
  // that alone.
  constexpr double kFlops = 1e11, kBytes = 1e10, kPerElement = 8;
  std::vector<NodeTimes> out(model.nodes().size());
  for (NodeId id = 0; id < static_cast<NodeId>(out.size()); ++id) {
    const Node& node = model.node(id);
    if (node.is_input()) continue;
    std::vector<Desc> in, weights;
    for (NodeId i : node.in) in.push_back(model.desc(i, samples));
    for (ParamId w : node.weights) weights.push_back(model.param(w).desc());
    const Desc desc = model.desc(id, samples);
    const Cost cost = node.op->cost(node.attrs, in, weights, desc);
    const double moved = kPerElement * static_cast<double>(desc.elements()) / kBytes;
    out[static_cast<size_t>(id)] = {cost.forward_flops / kFlops + moved,
                                    cost.input_flops / kFlops + moved, cost.weight_flops / kFlops};
  }
  return out;
}

}  // namespace weft
