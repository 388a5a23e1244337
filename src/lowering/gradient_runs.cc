#include "lowering/gradient_runs.h"

#include <algorithm>

namespace weft {

bool drops_gradients(const Model& model, const PlanConfig& config) {
  return config.data > 1 && config.micro_batches == config.data && config.shard != "none" &&
         makes(model, config, Mode::train);
}

std::vector<std::vector<StageSum>> sums_of_stages(const Model& model, const StepGraph& graph,
                                                  const std::vector<int32_t>& stage_of_node,
                                                  int32_t stages) {
  std::vector<std::vector<StageSum>> out(static_cast<size_t>(stages));
  std::vector<int32_t> stage_of(model.params().size(), -1), found(model.params().size(), 0);
  std::vector<bool> one_stage(model.params().size(), true);
  for (const StepCall& call : graph.calls) {
    if (call.kind != CallKind::weight_grad) continue;
    const ParamId param = model.node(call.node).weights[static_cast<size_t>(call.weight)];
    const auto p = static_cast<size_t>(param);
    const int32_t stage = stage_of_node[static_cast<size_t>(call.node)];
    one_stage[p] = one_stage[p] && (stage_of[p] < 0 || stage_of[p] == stage);
    stage_of[p] = stage;
    ++found[p];
    out[static_cast<size_t>(stage)].push_back(
        {call.node, param, model.param(param).sum_of(call.node, call.weight)});
  }
  for (auto& sums : out)
    std::erase_if(sums, [&](const StageSum& sum) {
      const auto p = static_cast<size_t>(sum.param);
      const Param& param = model.param(sum.param);
      return !one_stage[p] || found[p] < static_cast<int32_t>(param.uses.size()) || param.shares;
    });
  return out;
}

void add_runs(const Model& model, const PlanConfig& config, const std::vector<StageSum>& sums,
              RunOfSum& runs) {
  int32_t run = 0;
  for (const auto& [sum, before] : runs) run = std::max(run, before + 1);
  int64_t bytes = 0;
  NodeId node = -1;
  for (const StageSum& sum : sums) {
    // The gradients of a node are in one run: a parameter can be used twice by it.
    if (bytes >= config.bucket_bytes && sum.node != node) {
      ++run;
      bytes = 0;
    }
    node = sum.node;
    bytes = sum_of_bytes(bytes, padded_bytes(model.param(sum.param).desc()));
    runs[{sum.param, sum.sum}] = run;
  }
}

std::vector<RunOfSum> gradient_runs(const Plan& plan) {
  std::vector<RunOfSum> out(static_cast<size_t>(plan.positions()));
  if (!drops_gradients(*plan.model, plan.config)) return out;
  const ModePlan& mode = plan.mode(Mode::train);
  const auto sums = sums_of_stages(*plan.model, mode.graph, plan.stage_of_node, plan.stages());
  for (size_t position = 0; position < out.size(); ++position) {
    std::vector<StageSum> made;
    int32_t stage = -1;
    for (const Action& action : mode.schedule.rows[position]) {
      if (action.kind != Kind::B && action.kind != Kind::W) continue;
      const auto segment = static_cast<size_t>(action.stage);
      if (plan.segments[segment].stage != stage) {
        add_runs(*plan.model, plan.config, made, out[position]);
        made.clear();
      }
      stage = plan.segments[segment].stage;
      made.insert(made.end(), sums[segment].begin(), sums[segment].end());
    }
    add_runs(*plan.model, plan.config, made, out[position]);
  }
  return out;
}

}  // namespace weft
