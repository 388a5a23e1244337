#include "plan/schedule_costs.h"

#include <algorithm>
#include <cmath>

#include "plan/recompute.h"
#include "plan/work.h"

namespace weft {

namespace {

// What a stage keeps over actions, of a full micro-batch: from F to I, from I to W, and all the way. R comes just before I.
void add_kept(const Model& model, const PlanConfig& config, const StepGraph& graph, const StageWork& work, size_t s, ScheduleCosts& out) {
  for (const auto* lives : {&work.lives, &work.remade})
    for (const auto& [t, life] : *lives) {
      const auto bytes = static_cast<double>(graph.desc(model, t, config.micro_batch_size).bytes());
      const bool held = life.first == kPhaseF && life.last > kPhaseF, parked = life.first < kPhaseW && life.last == kPhaseW;
      if (held) out.held[s] += bytes;
      if (parked) out.parked[s] += bytes;
      if (held && parked) out.kept[s] += bytes;
    }
}

size_t stages_of(const std::vector<int32_t>& stage_of_node) {
  return static_cast<size_t>(*std::max_element(stage_of_node.begin(), stage_of_node.end())) + 1;
}

}  // namespace

ScheduleCosts schedule_costs(const Model& model, const PlanConfig& config, const std::vector<NodeTimes>& times,
                             const std::vector<int32_t>& stage_of_node) {
  const std::vector<NodeTimes> analysed = times.empty() ? analysed_times(model, config.micro_batch_size) : std::vector<NodeTimes>();
  ScheduleCosts out;
  for (auto* list : {&out.forward, &out.input, &out.weight}) list->assign(stages_of(stage_of_node), 0.0);
  out.latency = config.machines.latency;
  for (size_t id = 0; id < stage_of_node.size(); ++id) {
    const auto s = static_cast<size_t>(stage_of_node[id]);
    const NodeTimes& t = (times.empty() ? analysed : times)[id];
    out.forward[s] += t.forward, out.input[s] += t.input, out.weight[s] += t.weight;
  }
  return out;
}

Status add_bytes(const Model& model, const PlanConfig& config, const std::vector<NodeTimes>& times,
                 const std::vector<int32_t>& stage_of_node, ScheduleCosts& out) {
  const size_t stages = stages_of(stage_of_node);
  for (auto* list : {&out.held, &out.parked, &out.kept, &out.fixed}) list->assign(stages, 0.0);
  out.cap = static_cast<double>(config.memory_limit);
  for (size_t id = 0; id < stage_of_node.size(); ++id)
    for (ParamId w : model.node(static_cast<NodeId>(id)).weights)  // a tied parameter counts at each of its uses
      out.fixed[static_cast<size_t>(stage_of_node[id])] +=
          static_cast<double>(model.param(w).shape.elements()) * 4 * copies_of_weights(model, config);
  if (!makes(model, config, Mode::train)) return {};
  const StepGraph graph = build_step_graph(model, Mode::train, stage_of_node);
  Schedule split{
      .stages = static_cast<int32_t>(stages), .micro_batches = 1, .rank_of_stage = {}, .rows = {{}}};  // as far as make_work reads it
  for (int32_t s = 0; s < split.stages; ++s) split.rows[0].push_back({s, Kind::I, 0});
  WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(config.recompute));
  const std::vector<StageWork> work = make_work(graph, stage_of_node, split, segments_of(recompute, split));
  const std::vector<NodeTimes> analysed = times.empty() ? analysed_times(model, config.micro_batch_size) : std::vector<NodeTimes>();
  for (size_t s = 0; s < stages; ++s) {
    add_kept(model, config, graph, work[s], s, out);
    for (int32_t phase : {kPhaseR, kPhaseI, kPhaseW})
      for (const StepCall* call : work[s].calls[static_cast<size_t>(phase)])
        if (call->kind == CallKind::forward)
          (phase == kPhaseW ? out.weight : out.input)[s] += (times.empty() ? analysed : times)[static_cast<size_t>(call->node)].forward;
  }
  return {};
}

ScheduleCosts at_speeds(ScheduleCosts costs, const std::vector<double>& speeds) {
  if (speeds.size() != costs.forward.size()) return costs;
  for (auto* list : {&costs.forward, &costs.input, &costs.weight})
    for (size_t r = 0; r < speeds.size(); ++r) (*list)[r] /= speeds[r];
  return costs;
}

int32_t slack_for(const ScheduleCosts& costs, const std::vector<int32_t>& rank_of_stage, const PlanConfig& config) {
  std::vector<double> busy(static_cast<size_t>(config.ranks), 0.0);
  for (size_t s = 0; s < rank_of_stage.size(); ++s) {
    const auto r = static_cast<size_t>(rank_of_stage[s]);
    busy[r] += costs.forward[s] / (config.machines.speeds.empty() ? 1 : config.machines.speeds[r]);
  }
  const double forward = *std::max_element(busy.begin(), busy.end()), round_trip = 2 * config.machines.latency;
  if (round_trip <= 0 || forward <= 0) return 1;
  return static_cast<int32_t>(std::clamp(std::ceil(round_trip / forward), 1.0, static_cast<double>(config.micro_batches)));
}

}  // namespace weft
