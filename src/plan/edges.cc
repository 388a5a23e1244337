#include "plan/edges.h"

#include <algorithm>
#include <set>

#include "plan/places.h"

namespace weft {

const char* edge_kind_name(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::feed: return "feed";
    case EdgeKind::forward: return "forward";
    case EdgeKind::gradient: return "gradient";
    case EdgeKind::sink: return "sink";
    case EdgeKind::tie_grad: return "tied gradient";
    case EdgeKind::tie_value: return "tied value";
  }
  return "?";
}

std::vector<TensorId> reads_of(const StepCall& call) {
  std::vector<TensorId> out;
  auto take = [&out](TensorId t) {
    if (t >= 0) out.push_back(t);
  };
  for (TensorId t : call.in) take(t);
  if (call.kind == CallKind::input_grad || call.kind == CallKind::weight_grad) {
    take(call.out);
    for (TensorId t : call.stash) take(t);
    take(call.dout);
  }
  return out;
}

std::vector<TensorId> writes_of(const StepCall& call) {
  std::vector<TensorId> out;
  if (call.kind == CallKind::forward || call.kind == CallKind::add) out.push_back(call.out);
  if (call.kind == CallKind::forward) out.insert(out.end(), call.stash.begin(), call.stash.end());
  for (TensorId t : call.din)
    if (t >= 0) out.push_back(t);
  return out;
}

bool is_split(const Schedule& schedule, int32_t stage) {
  const auto& row = schedule.rows[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])];
  return std::any_of(row.begin(), row.end(), [&](const Action& a) { return a.stage == stage && (a.kind == Kind::I || a.kind == Kind::W); });
}

std::vector<Touch> touches(const Plan& plan, const ModePlan& mode, int32_t stage) {
  const bool split = is_split(mode.schedule, stage);
  std::vector<Touch> out(mode.graph.tensors.size());
  for (const StepCall& call : mode.graph.calls) {
    if (plan.stage_of_node[static_cast<size_t>(call.where)] != stage) continue;
    const int32_t phase = call.kind == CallKind::forward ? kPhaseF : call.kind == CallKind::weight_grad && split ? kPhaseW : kPhaseI;
    auto touch = [&](TensorId t, bool made) {
      Touch& touched = out[static_cast<size_t>(t)];
      if (touched.first < 0) touched.first = phase;
      touched.last = std::max(touched.last, phase);
      touched.made = touched.made || made;
    };
    for (TensorId t : reads_of(call)) touch(t, false);
    for (TensorId t : writes_of(call)) touch(t, true);
  }
  return out;
}

namespace {

void add_tie_edges(const Plan& plan, std::vector<Edge>& edges) {
  const Model& model = *plan.model;
  for (ParamId p = 0; p < static_cast<ParamId>(model.params().size()); ++p) {
    const Param& param = model.param(p);
    const int32_t owner = plan.owner_of_param[static_cast<size_t>(p)];
    const Desc desc{DType::f32, param.shape};
    std::set<int32_t> others;
    for (size_t u = 0; u < param.uses.size(); ++u) {
      const int32_t rank = plan.rank_of(param.uses[u].node);
      if (rank == owner) continue;
      others.insert(rank);
      Edge edge{.kind = EdgeKind::tie_grad, .param = p, .use = static_cast<int32_t>(u), .from_rank = rank, .to_rank = owner, .desc = {desc, desc}};
      edges.push_back(edge);
    }
    for (int32_t rank : others)
      edges.push_back({.kind = EdgeKind::tie_value, .param = p, .from_rank = owner, .to_rank = rank, .desc = {desc, desc}});
  }
}

}  // namespace

std::vector<Edge> make_edges(const Plan& plan, const ModePlan& mode) {
  const StepGraph& graph = mode.graph;
  std::vector<std::set<int32_t>> readers(graph.tensors.size());
  for (const StepCall& call : graph.calls)
    for (TensorId t : reads_of(call)) readers[static_cast<size_t>(t)].insert(plan.stage_of_node[static_cast<size_t>(call.where)]);

  std::vector<Edge> edges;
  auto add = [&](EdgeKind kind, TensorId t, int32_t from, int32_t to) {
    Edge edge{.kind = kind, .tensor = t, .from_stage = from, .to_stage = to, .desc = {}};
    edge.from_rank = from < 0 ? 0 : plan.rank_of_stage[static_cast<size_t>(from)];
    edge.to_rank = to < 0 ? 0 : plan.rank_of_stage[static_cast<size_t>(to)];
    for (int v = 0; v < 2; ++v) edge.desc[static_cast<size_t>(v)] = graph.desc(*plan.model, t, plan.samples(v));
    edges.push_back(edge);
  };
  for (TensorId t = 0; t < static_cast<TensorId>(graph.tensors.size()); ++t) {
    const StepTensor& tensor = graph.tensors[static_cast<size_t>(t)];
    const bool fed = tensor.role == StepTensor::Role::value && plan.model->node(tensor.node).is_input();
    const int32_t maker = fed ? -1 : plan.stage_of_node[static_cast<size_t>(tensor.maker)];
    const EdgeKind kind = fed ? EdgeKind::feed : tensor.role == StepTensor::Role::grad ? EdgeKind::gradient : EdgeKind::forward;
    for (int32_t stage : readers[static_cast<size_t>(t)])
      if (stage != maker) add(kind, t, maker, stage);
  }
  for (TensorId t : graph.sinks) add(EdgeKind::sink, t, plan.stage_of_node[static_cast<size_t>(graph.tensors[static_cast<size_t>(t)].maker)], -1);
  if (mode.mode == Mode::train) add_tie_edges(plan, edges);
  return edges;
}

std::vector<StageEdge> stage_edges(const Plan& plan, const ModePlan& mode, std::vector<int32_t>* edge_of) {
  std::vector<StageEdge> out;
  std::vector<std::vector<Touch>> touched;
  for (int32_t s = 0; s < plan.stages(); ++s) touched.push_back(touches(plan, mode, s));
  auto until = [&](const Edge& e) {
    const int32_t last = touched[static_cast<size_t>(e.to_stage)][static_cast<size_t>(e.tensor)].last;
    return last == kPhaseF ? Kind::F : last == kPhaseI ? Kind::I : Kind::W;
  };
  for (size_t i = 0; i < mode.edges.size(); ++i) {
    const Edge& e = mode.edges[i];
    StageEdge edge;
    if (e.kind == EdgeKind::forward) {
      edge = {.from = e.from_stage, .to = e.to_stage, .gradient = false, .forward_until = until(e)};
    } else if (e.kind == EdgeKind::gradient) {
      edge = {.from = e.to_stage, .to = e.from_stage, .gradient = true, .forward_until = Kind::F, .gradient_until = until(e)};
    } else {
      continue;
    }
    out.push_back(edge);
    if (edge_of) edge_of->push_back(static_cast<int32_t>(i));
  }
  return out;
}

}  // namespace weft
