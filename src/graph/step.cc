#include "graph/step.h"

#include <algorithm>

namespace weft {

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::train: return "train";
    case Mode::eval: return "eval";
    case Mode::infer: return "forward";
    case Mode::fill: return "fill";
  }
  return "?";
}

bool reads_weights(const Node& node, CallKind kind) {
  if (folds(kind) || node.weights.empty()) return false;
  return kind != CallKind::weight_grad || node.op->uses_weight(node.attrs).weights;
}

namespace {

class Builder {
 public:
  Builder(const Model& model, Mode mode, bool outputs) : model_(model), outputs_(outputs) {
    graph_.mode = mode;
  }

  StepGraph build() {
    const size_t n = model_.nodes().size();
    graph_.value.assign(n, -1);
    graph_.grad.assign(n, -1);
    stash_.resize(n);
    mark_needed();
    for (size_t id = 0; id < n; ++id) forward(static_cast<NodeId>(id));
    if (graph_.mode == Mode::train) {
      pending_.resize(n);
      reached_ = model_.nodes_below_loss();
      find_tilings();
      for (size_t id = n; id-- > 0;) backward(static_cast<NodeId>(id));
    }
    add_sinks();
    return std::move(graph_);
  }

 private:
  TensorId add_tensor(StepTensor::Role role, NodeId node, int32_t index, NodeId maker) {
    graph_.tensors.push_back({role, node, index, maker});
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }

  void mark_needed() {
    needed_.assign(model_.nodes().size(), false);
    if (outputs_)
      for (NodeId o : model_.outputs()) needed_[static_cast<size_t>(o)] = true;
    if (graph_.mode == Mode::fill)
      for (size_t id = 0; id < needed_.size(); ++id)
        needed_[id] = !model_.nodes()[id].one.state.empty();
    if (has_loss(graph_.mode) && model_.loss() >= 0)
      needed_[static_cast<size_t>(model_.loss())] = true;
    for (size_t id = needed_.size(); id-- > 0;)
      if (needed_[id])
        for (NodeId i : model_.nodes()[id].in) needed_[static_cast<size_t>(i)] = true;
  }

  void forward(NodeId id) {
    if (!needed_[static_cast<size_t>(id)]) return;
    const Node& node = model_.node(id);
    graph_.value[static_cast<size_t>(id)] = add_tensor(StepTensor::Role::value, id, 0, id);
    if (node.is_input()) return;
    StepCall call{.kind = CallKind::forward, .node = id, .where = id};
    for (NodeId i : node.in) call.in.push_back(graph_.value[static_cast<size_t>(i)]);
    call.out = graph_.value[static_cast<size_t>(id)];
    for (size_t k = 0; k < node.one.stash.size(); ++k)
      call.stash.push_back(add_tensor(StepTensor::Role::stash, id, static_cast<int32_t>(k), id));
    stash_[static_cast<size_t>(id)] = call.stash;
    graph_.calls.push_back(std::move(call));
  }

  // The operands of a backward call of `node`, as far as `uses` names them.
  void read_forward(StepCall& call, const Node& node, const Uses& uses) const {
    for (size_t i = 0; i < node.in.size(); ++i)
      call.in.push_back((uses.in >> i) & 1 ? graph_.value[static_cast<size_t>(node.in[i])] : -1);
    if (uses.out) call.out = graph_.value[static_cast<size_t>(call.node)];
    if (uses.stash) call.stash = stash_[static_cast<size_t>(call.node)];
    call.dout = call.node == model_.loss() ? -1 : graph_.grad[static_cast<size_t>(call.node)];
  }

  // Slices that lie side by side and divide a value: their gradients are joined, not each filled up
  // with zeros and added.
  void find_tilings() {
    tiling_of_.assign(model_.nodes().size(), -1);
    for (const Node& value : model_.nodes()) {
      std::vector<NodeId> tiling;
      const Attrs* last = nullptr;
      for (const Node::Use& use : value.uses) {
        const Node& user = model_.node(use.node);
        if (!needed_[static_cast<size_t>(use.node)]) continue;
        const bool slice = value.needs_grad && user.op->name() == "slice";
        if (!slice || !last || user.attrs.axis != last->axis || user.attrs.begin != last->end)
          tiling.clear();
        last = nullptr;
        if (!slice || (tiling.empty() && user.attrs.begin != 0)) continue;
        tiling.push_back(use.node);
        last = &user.attrs;
        if (last->end < value.one.out.shape[last->axis] || tiling.size() == 1) continue;
        for (NodeId id : tiling)
          tiling_of_[static_cast<size_t>(id)] = static_cast<int32_t>(tilings_.size());
        tilings_.push_back(std::move(tiling));
        tiling.clear();
      }
    }
  }

  bool has_grad(NodeId id) const { return graph_.grad[static_cast<size_t>(id)] >= 0; }

  void backward(NodeId id) {
    if (!needed_[static_cast<size_t>(id)] || model_.node(id).is_input()) return;
    const int32_t tiling = tiling_of_[static_cast<size_t>(id)];
    if (tiling < 0) return differentiate(id);
    const std::vector<NodeId>& slices = tilings_[static_cast<size_t>(tiling)];
    if (id != slices.front()) return;
    if (std::all_of(slices.begin(), slices.end(), [this](NodeId s) { return has_grad(s); }))
      join(slices);
    else
      std::for_each(slices.rbegin(), slices.rend(), [this](NodeId s) { differentiate(s); });
  }

  void join(const std::vector<NodeId>& slices) {
    const NodeId first = slices.front(), value = model_.node(first).in.front();
    StepCall call{.kind = CallKind::join, .node = first, .where = value};
    for (NodeId s : slices) call.in.push_back(graph_.grad[static_cast<size_t>(s)]);
    call.out = add_tensor(StepTensor::Role::grad, value, 0, value);
    const TensorId joined = call.out;
    graph_.calls.push_back(std::move(call));
    fold(value, joined);
  }

  void differentiate(NodeId id) {
    if (!reached_[static_cast<size_t>(id)]) return;
    const Node& node = model_.node(id);
    StepCall call{.kind = CallKind::input_grad, .node = id, .where = id};
    bool any = false;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool wanted =
          node.op->differentiable(static_cast<int>(i)) && model_.node(node.in[i]).needs_grad;
      call.din.push_back(
          wanted ? add_tensor(StepTensor::Role::grad, node.in[i], static_cast<int32_t>(i), id)
                 : -1);
      any = any || wanted;
    }
    if (any) {
      read_forward(call, node, node.op->uses_input(node.attrs));
      const std::vector<TensorId> din = call.din;
      graph_.calls.push_back(std::move(call));
      // Later ports are later uses: fold from the last.
      for (size_t i = node.in.size(); i-- > 0;)
        if (din[i] >= 0) fold(node.in[i], din[i]);
    }
    for (size_t w = 0; w < node.weights.size(); ++w) {
      if (model_.param(node.weights[w]).training.frozen) continue;
      StepCall weight{.kind = CallKind::weight_grad,
                      .node = id,
                      .where = id,
                      .weight = static_cast<int32_t>(w)};
      read_forward(weight, node, node.op->uses_weight(node.attrs));
      graph_.calls.push_back(std::move(weight));
    }
  }

  // One more use's gradient of `value`: uses arrive from the last to the first, so the fold is one
  // binary add each.
  void fold(NodeId value, TensorId contribution) {
    TensorId& sum = graph_.grad[static_cast<size_t>(value)];
    if (sum < 0) {
      sum = contribution;
      return;
    }
    StepCall add{.kind = CallKind::add, .node = value, .where = value};
    add.in = {sum, contribution};
    add.out =
        add_tensor(StepTensor::Role::grad, value, ++pending_[static_cast<size_t>(value)], value);
    sum = add.out;
    graph_.calls.push_back(std::move(add));
  }

  void add_sinks() {
    if (outputs_)
      for (NodeId o : model_.outputs())
        graph_.sinks.push_back(graph_.value[static_cast<size_t>(o)]);
    if (has_loss(graph_.mode) && model_.loss() >= 0)
      graph_.sinks.push_back(graph_.value[static_cast<size_t>(model_.loss())]);
    if (graph_.mode == Mode::train)
      for (NodeId i : model_.inputs())
        if (model_.node(i).wants_grad && graph_.grad[static_cast<size_t>(i)] >= 0)
          graph_.sinks.push_back(graph_.grad[static_cast<size_t>(i)]);
  }

  const Model& model_;
  const bool outputs_;
  StepGraph graph_;
  std::vector<bool> needed_;
  std::vector<std::vector<TensorId>> stash_;  // per node
  std::vector<int32_t> pending_;              // per node: adds so far
  std::vector<bool> reached_;                 // per node: Model::nodes_below_loss()
  std::vector<std::vector<NodeId>> tilings_;
  std::vector<int32_t> tiling_of_;  // per node, -1: none
};

}  // namespace

Desc StepGraph::desc(const Model& model, TensorId id, int64_t samples) const {
  const StepTensor& t = tensors[static_cast<size_t>(id)];
  if (t.role == StepTensor::Role::stash)
    return model.infer(t.node, samples).stash[static_cast<size_t>(t.index)];
  return stored(id, model.desc(t.node, samples));
}

namespace {

void store_as(DType values, const Model& model, StepGraph& graph) {
  for (StepTensor& t : graph.tensors) {
    const Node& node = model.node(t.node);
    const bool input = t.role == StepTensor::Role::value && node.is_input();
    if (t.role != StepTensor::Role::stash && !input) t.dtype = node.stored_as(values);
  }
  for (const TensorId sink : graph.sinks)
    graph.tensors[static_cast<size_t>(sink)].dtype = DType::f32;
}

}  // namespace

StepGraph build_step_graph(const Model& model, Mode mode, const std::vector<int32_t>& stage_of_node,
                           const StepGraphOptions& options) {
  StepGraph graph = Builder(model, mode, options.outputs).build();
  store_as(options.values, model, graph);
  place_folds(graph, model, stage_of_node);
  return graph;
}

void place_folds(StepGraph& graph, const Model& model, const std::vector<int32_t>& stage_of_node) {
  const auto stage_of = [&](NodeId id) { return stage_of_node[static_cast<size_t>(id)]; };
  for (StepCall& call : graph.calls)
    if (folds(call.kind)) place_fold(graph, model, call, stage_of);
}

void place_fold(StepGraph& graph, const Model& model, StepCall& call,
                const std::function<int32_t(NodeId)>& stage_of) {
  const auto made = [&](TensorId t) -> StepTensor& {
    return graph.tensors[static_cast<size_t>(t)];
  };
  if (call.kind == CallKind::join) {
    const bool together = std::all_of(call.in.begin(), call.in.end(), [&](TensorId slice) {
      return stage_of(made(slice).node) == stage_of(call.node);
    });
    call.where = together ? call.node : model.node(call.node).in.front();
  } else {
    const NodeId so_far = made(call.in[0]).maker, last = made(call.in[1]).maker;
    call.where = stage_of(so_far) == stage_of(last) ? last : call.node;
  }
  made(call.out).maker = call.where;
}

}  // namespace weft
