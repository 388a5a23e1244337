// The output of weft plan: a plan with its prediction, or a comparison of schedules.
#pragma once

#include <string>
#include <vector>

#include "cli/build.h"
#include "cli/json.h"
#include "cli/shard_costs.h"

namespace weft::cli {

struct PlanReport {
  const Built& built;
  const weft_prediction& prediction;
  const PlanOptions& options;
  const std::vector<ShardCost>& shards;
  bool timetable = false;  // print it even if it is long
};

void print_plan(const PlanReport& report);
void print_plan_json(const PlanReport& report);
void print_comparison(const weft_comparison& comparison);
void print_comparison_json(const weft_comparison& comparison);

// "0.83 M parameters (0.20 M trained)".
std::string parameters_text(const weft_model& model, const weft_plan_info& plan);

// Messages and bytes of a step, by pair of ranks.
std::vector<JsonObject> links_json(const weft_prediction& prediction);

// The number of ranks of each stage, if they take turns; otherwise empty.
std::vector<uint32_t> stage_replicas(const weft_plan* plan);
// A row of actions per rank.
std::vector<std::string> timetable_rows(const weft_plan* plan);

}  // namespace weft::cli
