#include "cli/shard_costs.h"

namespace weft::cli {

namespace {

void fill(const weft_prediction& prediction, ShardCost& out) {
  weft_prediction_info info = sized<weft_prediction_info>();
  weft_prediction_describe(&prediction, &info);
  out.step_ns = info.step_ns;
  out.peak_bytes = info.peak_bytes;
  out.bytes = info.bytes;
}

}  // namespace

Outcome shard_costs(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps,
                    const Built& built, const weft_prediction& chosen,
                    std::vector<ShardCost>& out) {
  if (options.data == 1 || !options.plan_file.empty()) return {};
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    ShardCost& cost = out.emplace_back();
    cost.shard = shard;
    if (options.shard == shard) {
      fill(chosen, cost);
      continue;
    }
    PlanOptions choice = options;
    choice.shard = shard;
    PlanRequest request;
    CLI_TRY(request.fill(choice, optimizer, steps));
    weft_error err = sized<weft_error>();
    PlanPtr plan;
    if (weft_plan_new(built.model.get(), &request.config, Out(plan), &err) < 0) {
      cost.refused = err.text;
      continue;
    }
    PredictionPtr prediction;
    CLI_CALL(weft_plan_simulate(plan.get(), 0, Out(prediction), &err));
    fill(*prediction, cost);
  }
  return {};
}

}  // namespace weft::cli
