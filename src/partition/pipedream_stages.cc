#include "partition/pipedream_stages.h"

#include "base/text.h"
#include "partition/cut_loads.h"
#include "partition/run_bytes.h"

namespace weft {

namespace {

// A bandwidth that has no effect.
constexpr double kUnlimited = 1e30;

double bandwidth_of(const PlanConfig& config) {
  return config.machines.bandwidth > 0 ? config.machines.bandwidth : kUnlimited;
}

// `cuts` must outlive the result.
ReplicaOptions options_for(const PlanConfig& config, const CutLoads& cuts, int32_t machines,
                           bool straight) {
  return {
      .machines = machines,
      .bandwidth = bandwidth_of(config),
      .memory = static_cast<double>(config.memory_limit),
      .straight = straight,
      .fed_bytes = [&cuts](size_t first, size_t last) { return cuts.fed_bytes(first, last + 1); }};
}

}  // namespace

Result<std::vector<ModelState>> states_of(const Model& model, const PlanConfig& config,
                                          const OpNodes& ops, const CutLoads& cuts) {
  WEFT_TRY_ASSIGN(Schedule one, make_gpipe({}));
  KnownRuns known;
  WEFT_TRY_ASSIGN(RunBytes bytes, RunBytes::make(model, config, ops, std::move(one), known));
  std::vector<ModelState> states(ops.ids.size());
  ModelState sum;
  for (size_t i = 0; i < states.size(); ++i) {
    sum.time += ops.costs[i];
    for (ParamId w : model.node(ops.ids[i]).weights)
      sum.param_bytes += static_cast<double>(model.param(w).desc().bytes());
    states[i] = sum;
    if (config.memory_limit > 0) states[i].kept_bytes = static_cast<double>(bytes.kept(0, i + 1));
    states[i].output_bytes = i + 1 < states.size() ? cuts.bytes()[i + 1] : 0;
  }
  return states;
}

Result<Partition> partition_pipedream(const Model& model, const PlanConfig& config,
                                      const OpNodes& ops, const NodeCosts& costs, int32_t stages) {
  if (stages > static_cast<int32_t>(ops.ids.size()))
    return Status(Code::invalid, cat(stages, " stages need at least as many nodes, the model has ",
                                     ops.ids.size()));
  const CutLoads cuts(model, config, ops);
  WEFT_TRY_ASSIGN(const std::vector<ModelState> states, states_of(model, config, ops, cuts));
  WEFT_TRY_ASSIGN(const ReplicatedPlan plan,
                  partition_replicated(states, options_for(config, cuts, stages, true)));
  std::vector<int32_t> begins;
  for (size_t s = 1; s < plan.stages.size(); ++s) begins.push_back(plan.stages[s].first);
  return partition_at(costs, begins);
}

Result<ReplicatedStages> replicated_stages(const Model& model, const PlanConfig& config) {
  const OpNodes ops(model, config.micro_batch_size, config.times);
  const CutLoads cuts(model, config, ops);
  WEFT_TRY_ASSIGN(const std::vector<ModelState> states, states_of(model, config, ops, cuts));
  WEFT_TRY_ASSIGN(const ReplicatedPlan plan,
                  partition_replicated(states, options_for(config, cuts, config.ranks, false)));
  ReplicatedStages out;
  for (const ReplicatedStage& stage : plan.stages) {
    out.first.push_back(ops.ids[static_cast<size_t>(stage.first)]);
    out.replicas.push_back(stage.replicas);
  }
  return out;
}

}  // namespace weft
