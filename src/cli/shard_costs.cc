#include "cli/shard_costs.h"

namespace weft::cli {

Outcome shard_costs(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps,
                    const Built& built, std::vector<ShardCost>& out) {
  if (options.data == 1 || !options.plan_file.empty()) return {};
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    PlanOptions choice = options;
    choice.shard = shard;
    PlanRequest request;
    CLI_TRY(request.fill(choice, optimizer, steps));
    ShardCost& cost = out.emplace_back();
    cost.shard = shard;
    weft_error err = WEFT_ERROR_INIT;
    PlanPtr plan;
    if (weft_plan_new(built.model.get(), &request.config, Out(plan), &err) < 0) {
      cost.refused = err.text;
      continue;
    }
    PredictionPtr prediction;
    CLI_CALL(weft_plan_simulate(plan.get(), 0, Out(prediction), &err));
    weft_prediction_info info = WEFT_PREDICTION_INFO_INIT;
    weft_prediction_describe(prediction.get(), &info);
    cost.seconds = info.seconds;
    cost.peak_bytes = info.peak_bytes;
    cost.bytes = info.bytes;
  }
  return {};
}

}  // namespace weft::cli
