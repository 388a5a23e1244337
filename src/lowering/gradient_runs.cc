#include "lowering/gradient_runs.h"

#include <algorithm>

namespace weft {

namespace {

struct StageSum {
  NodeId node;  // of the use
  ParamId param;
  int32_t sum;
};

// Per stage, in the order of its backward. Parameters are left out that are used elsewhere, too,
// for which the step makes no gradient, or whose sums take all of the backward.
std::vector<std::vector<StageSum>> sums_of_stages(const Plan& plan) {
  const Model& model = *plan.model;
  std::vector<std::vector<StageSum>> out(static_cast<size_t>(plan.stages()));
  std::vector<int32_t> stage_of(model.params().size(), -1), found(model.params().size(), 0);
  std::vector<bool> one_stage(model.params().size(), true);
  for (const StepCall& call : plan.mode(Mode::train).graph.calls) {
    if (call.kind != CallKind::weight_grad) continue;
    const ParamId param = model.node(call.node).weights[static_cast<size_t>(call.weight)];
    const auto p = static_cast<size_t>(param);
    const int32_t stage = plan.stage_of_node[static_cast<size_t>(call.node)];
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

}  // namespace

std::vector<RunOfSum> gradient_runs(const Plan& plan) {
  std::vector<RunOfSum> out(static_cast<size_t>(plan.positions()));
  const PlanConfig& c = plan.config;
  const bool once = c.data > 1 && c.micro_batches == c.data && c.shard != "none";
  if (!once || !plan.mode(Mode::train).present) return out;
  const auto sums = sums_of_stages(plan);
  for (size_t position = 0; position < out.size(); ++position) {
    int32_t run = 0;
    int64_t bytes = 0;
    NodeId node = -1;
    for (const Action& action : plan.mode(Mode::train).schedule.rows[position]) {
      if (action.kind != Kind::B && action.kind != Kind::W) continue;
      for (const StageSum& sum : sums[static_cast<size_t>(action.stage)]) {
        // The gradients of a node are in one run: a parameter can be used twice by it.
        if (bytes >= c.bucket_bytes && sum.node != node) {
          ++run;
          bytes = 0;
        }
        node = sum.node;
        bytes = sum_of_bytes(bytes, padded_bytes(plan.model->param(sum.param).desc()));
        out[position][{sum.param, sum.sum}] = run;
      }
    }
  }
  return out;
}

}  // namespace weft
