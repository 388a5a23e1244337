#include "partition/schedule_costs.h"

#include <algorithm>
#include <cmath>

#include "partition/run_bytes.h"
#include "partition/stages.h"

namespace weft {

namespace {

size_t stages_of(const std::vector<int32_t>& stage_of_node) {
  return static_cast<size_t>(*std::max_element(stage_of_node.begin(), stage_of_node.end())) + 1;
}

}  // namespace

ScheduleCosts schedule_costs(const Model& model, const PlanConfig& config,
                             const std::vector<NodeTimes>& times,
                             const std::vector<int32_t>& stage_of_node) {
  const std::vector<NodeTimes> analysed =
      times.empty() ? analysed_times(model, config.micro_batch_size) : std::vector<NodeTimes>();
  ScheduleCosts out;
  for (auto* list : {&out.forward, &out.input, &out.weight})
    list->assign(stages_of(stage_of_node), 0.0);
  out.latency = config.machines.latency;
  for (size_t id = 0; id < stage_of_node.size(); ++id) {
    const auto s = static_cast<size_t>(stage_of_node[id]);
    const NodeTimes& t = (times.empty() ? analysed : times)[id];
    out.forward[s] += t.forward;
    out.input[s] += t.input;
    out.weight[s] += t.weight;
  }
  return out;
}

NodeTimes recompute_times(size_t stage, const std::vector<size_t>& first, RunBytes& bytes,
                          const std::vector<NodeTimes>& of_pieces) {
  NodeTimes out;
  for (const RemadeCalls& calls : bytes.remade(stage, first, of_pieces)) {
    out.forward += calls.time.forward;
    out.input += calls.time.input;
    out.weight += calls.time.weight;
  }
  return out;
}

void add_bytes(const Model& model, const PlanConfig& config, const std::vector<size_t>& first,
               RunBytes& bytes, ScheduleCosts& out) {
  for (auto* list : {&out.held, &out.parked, &out.kept, &out.fixed})
    list->assign(first.size(), 0.0);
  out.cap = static_cast<double>(config.memory_limit);
  bytes.add_to(out, first);
  const std::vector<NodeTimes> of_pieces = times_of_pieces(
      bytes.pieces(), config.micro_batch_size,
      config.times.empty() ? analysed_times(model, config.micro_batch_size) : config.times);
  for (size_t s = 0; s < first.size(); ++s) {
    const NodeTimes again = recompute_times(s, first, bytes, of_pieces);
    out.input[s] += again.forward + again.input;  // such an order has no R
    out.weight[s] += again.weight;
    // The activations that recompute auto will drop are not known yet. The order with one
    // micro-batch at a time leaves the most freedom.
    if (out.cap > 0 && config.recompute == "auto")
      out.cap = std::max(out.cap, out.fixed[s] + out.held[s] + out.parked[s] - out.kept[s]);
  }
}

ScheduleCosts at_speeds(ScheduleCosts costs, const std::vector<double>& speeds) {
  if (speeds.size() != costs.forward.size()) return costs;
  for (auto* list : {&costs.forward, &costs.input, &costs.weight, &costs.again})
    for (size_t r = 0; r < list->size(); ++r) (*list)[r] /= speeds[r];
  return costs;
}

int32_t slack_for(const ScheduleCosts& costs, const std::vector<int32_t>& rank_of_stage,
                  const PlanConfig& config) {
  std::vector<double> busy(static_cast<size_t>(config.ranks), 0.0);
  for (size_t s = 0; s < rank_of_stage.size(); ++s) {
    const auto r = static_cast<size_t>(rank_of_stage[s]);
    busy[r] += costs.forward[s] / (config.machines.speeds.empty() ? 1 : config.machines.speeds[r]);
  }
  const double forward = *std::max_element(busy.begin(), busy.end()),
               round_trip = 2 * config.machines.latency;
  if (round_trip <= 0 || forward <= 0) return 1;
  return static_cast<int32_t>(
      std::clamp(std::ceil(round_trip / forward), 1.0, static_cast<double>(config.micro_batches)));
}

}  // namespace weft
