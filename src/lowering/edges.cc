#include "lowering/edges.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lowering/parameters.h"
#include "lowering/units.h"
#include "schedule/lock_step.h"

namespace weft {

const char* edge_kind_name(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::feed: return "feed";
    case EdgeKind::forward: return "forward";
    case EdgeKind::gradient: return "gradient";
    case EdgeKind::sink: return "sink";
    case EdgeKind::tie_grad: return "tied gradient";
    case EdgeKind::tie_value: return "tied value";
    case EdgeKind::tie_sum: return "gradient of a parameter";
    case EdgeKind::gather: return "value of a parameter";
  }
  return "?";
}

namespace {

void add_tie_edges(const Plan& plan, std::vector<Edge>& edges) {
  const Model& model = *plan.model;
  for (ParamId p = 0; p < static_cast<ParamId>(model.params().size()); ++p) {
    const Param& param = model.param(p);
    if (param.training.frozen) continue;
    const int32_t owner = plan.owner_of_param[static_cast<size_t>(p)];
    const Desc desc = param.desc(), value = stored_desc(model, plan.config, p, false);
    // For asynchronous schedules, each update of a stage with replicas.
    const WeightVersions& versions = plan.versions[static_cast<size_t>(owner)];
    const auto end = std::max(static_cast<int32_t>(versions.of_update.size()), 1);
    const auto add = [&](EdgeKind kind, int32_t sum, int32_t from, int32_t to) {
      edges.push_back({.kind = kind,
                       .param = p,
                       .sum = sum,
                       .from_rank = from,
                       .to_rank = to,
                       .micro_batches = {.end = end},
                       .open = end,
                       .landing = {},
                       .outgoing = {},
                       .desc = kind == EdgeKind::tie_value ? std::array{value, value}
                                                           : std::array{desc, desc}});
    };
    std::set<int32_t> users;
    for (int32_t s = 0; s < param.sums; ++s)
      for (int32_t d = 0; d < plan.replicas_at(owner); ++d) {
        const int32_t rank = plan.rank_of_node(param.first_node(s), d);
        users.insert(rank);
        if (rank == owner) continue;
        add(EdgeKind::tie_grad, s, rank, owner);
        const ResidentTensor& sum = accumulator_of(plan, owner, p, s, d);
        edges.back().landing_slots = sum.count;
        // A run waits for the slot of one before it.
        edges.back().open = sum.run >= kRunSlots ? 0 : std::min(sum.count, end);
      }
    const std::vector<int32_t> updaters = updaters_of(plan, p);
    for (int32_t rank : updaters)
      if (rank != owner) add(EdgeKind::tie_sum, -1, owner, rank);
    for (int32_t rank : users) {
      if (plan.gathers()) break;
      const auto d = static_cast<size_t>(updaters.size() > 1 ? plan.replica_of(rank) : 0);
      if (rank != updaters[d]) add(EdgeKind::tie_value, -1, updaters[d], rank);
    }
  }
}

// The kinds of actions of each stage in the schedule.
std::vector<std::set<Kind>> kinds_of(const Schedule& schedule) {
  std::vector<std::set<Kind>> out(static_cast<size_t>(schedule.stages));
  for (const auto& row : schedule.rows)
    for (const Action& a : row) out[static_cast<size_t>(a.stage)].insert(a.kind);
  return out;
}

// Values that units read and other ranks keep, in the order of stages, actions and units.
void add_gathers(const Plan& plan, const ModePlan& mode, const std::vector<StageWork>& work,
                 std::vector<Edge>& edges) {
  const auto kinds = kinds_of(mode.schedule);
  for (int32_t s = 0; s < plan.stages(); ++s)
    for (const Kind kind : kinds[static_cast<size_t>(s)]) {
      const StageWork& stage = work[static_cast<size_t>(s)];
      const auto units = units_of(plan, stage, kind);
      for (size_t u = 0; u < units.size(); ++u)
        for (const ParamId p : reads_of(*plan.model, stage, units[u]))
          for (int32_t d = 0; d < plan.config.data; ++d) {
            const int32_t owner = plan.owner_of_param[static_cast<size_t>(p)];
            if (plan.rank_of(s, d) == owner) continue;
            const Desc desc = stored_desc(*plan.model, plan.config, p, false);
            edges.push_back({.kind = EdgeKind::gather,
                             .param = p,
                             .to_stage = s,
                             .action = kind,
                             .unit = static_cast<int32_t>(u),
                             .from_rank = owner,
                             .to_rank = plan.rank_of(s, d),
                             .micro_batches = plan.micro_batches_at(mode.mode, plan.rank_of(s, d)),
                             .open = 0,  // all need a grant
                             .landing_slots = 0,
                             .out_slots = 2,  // one can arrive before the other is released
                             .landing = {},
                             .outgoing = {},
                             .desc = {desc, desc}});
          }
    }
}

struct Transfer {
  EdgeKind kind;  // feed, forward, gradient
  TensorId tensor;
  int32_t from, to;  // stages, -1: the controller
};

// In the order of the edges that most of them become.
std::vector<Transfer> transfers(const Plan& plan, const ModePlan& mode,
                                const std::vector<StageWork>& work) {
  const auto readers = readers_of(plan, mode, work);
  std::vector<Transfer> out;
  for (TensorId t = 0; t < static_cast<TensorId>(readers.size()); ++t) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    const bool fed =
        tensor.role == StepTensor::Role::value && plan.model->node(tensor.node).is_input();
    const EdgeKind kind = fed                                     ? EdgeKind::feed
                          : tensor.role == StepTensor::Role::grad ? EdgeKind::gradient
                                                                  : EdgeKind::forward;
    for (int32_t to : readers[static_cast<size_t>(t)])
      out.push_back(
          {kind, t, fed ? -1 : plan.stage_of_node[static_cast<size_t>(tensor.maker)], to});
  }
  return out;
}

// Replicas of two stages, and the micro-batches that both run.
struct Meeting {
  int32_t from, to;
  MicroBatches micro_batches;
};

// For all replicas. Stage -1 is the controller, which has all micro-batches.
std::vector<Meeting> meetings(const Plan& plan, Mode mode, int32_t from, int32_t to) {
  std::vector<Meeting> out;
  if (plan.stage_replicas.empty()) {
    for (int32_t d = 0; d < plan.config.data; ++d)
      out.push_back(
          {d,
           d,
           {.first = plan.first_micro_batch(mode, d), .end = plan.first_micro_batch(mode, d + 1)}});
    return out;
  }
  const int32_t makers = from < 0 ? 1 : plan.replicas_of(from),
                takers = to < 0 ? 1 : plan.replicas_of(to), all = std::lcm(makers, takers),
                end = plan.micro_batches(mode);
  for (int32_t first = 0; first < std::min(all, end); ++first)
    out.push_back({first % makers, first % takers, {.first = first, .end = end, .stride = all}});
  return out;
}

bool within_rank(const Plan& plan, const Transfer& t) {
  return t.from >= 0 && plan.position_of_stage[static_cast<size_t>(t.from)] ==
                            plan.position_of_stage[static_cast<size_t>(t.to)];
}

}  // namespace

std::vector<std::vector<int32_t>> readers_of(const Plan& plan, const ModePlan& mode,
                                             const std::vector<StageWork>& work) {
  std::vector<std::vector<int32_t>> readers(mode.graph.tensors.size());
  for (int32_t s = 0; s < plan.stages(); ++s)
    for (const auto& [t, life] : work[static_cast<size_t>(s)].lives)
      if (!life.made) readers[static_cast<size_t>(t)].push_back(s);
  return readers;
}

std::vector<Edge> make_edges(const Plan& plan, const ModePlan& mode,
                             const std::vector<StageWork>& work) {
  const StepGraph& graph = mode.graph;
  std::vector<Edge> edges;
  auto add = [&](EdgeKind kind, TensorId t, int32_t from, int32_t to, const Meeting& of) {
    Edge edge{.kind = kind,
              .tensor = t,
              .from_stage = from,
              .to_stage = to,
              .from_rank = from < 0 ? 0 : plan.rank_of(from, of.from),
              .to_rank = to < 0 ? 0 : plan.rank_of(to, of.to),
              .micro_batches = of.micro_batches,
              .landing = {},
              .outgoing = {},
              .desc = {}};
    for (int v = 0; v < 2; ++v)
      edge.desc[static_cast<size_t>(v)] = graph.desc(*plan.model, t, plan.samples(v));
    edges.push_back(edge);
  };
  for (const Transfer& t : transfers(plan, mode, work)) {
    if (within_rank(plan, t)) continue;
    for (const Meeting& of : meetings(plan, mode.mode, t.from, t.to))
      add(t.kind, t.tensor, t.from, t.to, of);
  }
  for (TensorId t : graph.sinks) {
    const int32_t from =
        plan.stage_of_node[static_cast<size_t>(graph.tensors[static_cast<size_t>(t)].maker)];
    for (const Meeting& of : meetings(plan, mode.mode, from, -1))
      add(EdgeKind::sink, t, from, -1, of);
  }
  if (mode.mode == Mode::train) add_tie_edges(plan, edges);
  if (plan.gathers()) add_gathers(plan, mode, work, edges);
  return edges;
}

std::vector<StageEdge> stage_edges(const Plan& plan, const ModePlan& mode,
                                   const std::vector<StageWork>& work,
                                   std::vector<int32_t>* edge_of) {
  std::vector<StageEdge> out;
  size_t next = 0;  // edges are in the order of the transfers
  for (const Transfer& t : transfers(plan, mode, work)) {
    const auto is_first = [&t](const Edge& e) {
      return e.tensor == t.tensor && e.to_stage == t.to;
    };
    while (!within_rank(plan, t) && !is_first(mode.edges[next])) ++next;
    const int32_t edge = within_rank(plan, t) ? -1 : static_cast<int32_t>(next);
    if (t.kind == EdgeKind::feed) continue;
    constexpr Kind kKinds[kPhases] = {Kind::F, Kind::R, Kind::I, Kind::W};
    const Kind until = kKinds[work[static_cast<size_t>(t.to)].lives.at(t.tensor).last];
    out.push_back(
        t.kind == EdgeKind::forward
            ? StageEdge{.from = t.from, .to = t.to, .gradient = false, .forward_until = until}
            : StageEdge{.from = t.to,
                        .to = t.from,
                        .gradient = true,
                        .forward_until = Kind::F,
                        .gradient_until = until});
    edge_of->push_back(edge);
  }
  return out;
}

}  // namespace weft
