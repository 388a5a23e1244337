#include "plan/stages.h"

#include "base/text.h"

namespace weft {

namespace {

// Adds and copies cost a little even where no multiplication is done.
double cost_of(const Model& model, NodeId id, int64_t samples) {
  const Node& node = model.node(id);
  std::vector<Desc> in, weights;
  for (NodeId i : node.in) in.push_back(model.desc(i, samples));
  for (ParamId w : node.weights) weights.push_back({DType::f32, model.param(w).shape});
  const Desc out = model.desc(id, samples);
  const Cost cost = node.op->cost(node.attrs, in, weights, out);
  return cost.forward_flops + cost.input_flops + cost.weight_flops + 16.0 * static_cast<double>(out.elements());
}

// A cut names a node, or a group of nodes by the part of their names before a dot: "h.3" begins at "h.3.ln_1".
NodeId find_cut(const Model& model, const std::string& name) {
  if (const NodeId id = model.find_node(name); id >= 0) return id;
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id)
    if (model.node(id).name.starts_with(name + ".")) return id;
  return -1;
}

Result<Partition> split_at_names(const Model& model, const OpNodes& ops, const NodeCosts& costs, const std::vector<std::string>& cuts,
                                 int32_t stages) {
  std::vector<int32_t> begins;
  for (const std::string& name : cuts) {
    const NodeId id = find_cut(model, name);
    if (id < 0 || model.node(id).is_input()) return Status(Code::not_found, cat("cut '", name, "' names no node and no group of nodes of the model"));
    begins.push_back(ops.index[static_cast<size_t>(id)]);
  }
  if (static_cast<int32_t>(begins.size()) + 1 != stages)
    return Status(Code::invalid, cat(begins.size(), " cuts make ", begins.size() + 1, " stages, the plan has ", stages));
  return partition_at(costs, begins);
}

}  // namespace

OpNodes::OpNodes(const Model& model, int64_t samples) : index(model.nodes().size(), -1) {
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    const Node& node = model.node(id);
    if (node.is_input()) continue;
    index[static_cast<size_t>(id)] = static_cast<int32_t>(ids.size());
    for (NodeId i : node.in)
      if (const int32_t from = index[static_cast<size_t>(i)]; from >= 0) edges.push_back({from, static_cast<int32_t>(ids.size())});
    ids.push_back(id);
    costs.push_back(cost_of(model, id, samples));
  }
}

Result<std::vector<int32_t>> choose_stages(const Model& model, const PlanConfig& config, int32_t stages) {
  const OpNodes ops(model, config.micro_batch_size);
  const NodeCosts costs{.cost = ops.costs, .param_bytes = {}, .edges = ops.edges};
  auto split = !config.cuts.empty()                ? split_at_names(model, ops, costs, config.cuts, stages)
               : config.split == SplitBy::uniform ? partition_uniform(costs, stages)
                                                   : partition_by_cost(costs, stages);
  if (!split.ok()) return split.status();
  std::vector<int32_t> stage_of_node(model.nodes().size(), 0);
  for (size_t i = 0; i < ops.ids.size(); ++i) stage_of_node[static_cast<size_t>(ops.ids[i])] = split.value().stage_of_node[i];
  for (NodeId id : model.inputs())
    if (!model.node(id).uses.empty()) stage_of_node[static_cast<size_t>(id)] = stage_of_node[static_cast<size_t>(model.node(id).uses.front().node)];
  return stage_of_node;
}

}  // namespace weft
