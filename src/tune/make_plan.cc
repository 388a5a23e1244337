#include "tune/make_plan.h"

#include "lowering/mode_plans.h"
#include "partition/stages.h"
#include "plan/check_config.h"
#include "plan/f32_nodes.h"
#include "plan/plan_hash.h"
#include "sim/predict.h"
#include "tune/limit_search.h"

namespace weft {

namespace {

using Made = Result<std::shared_ptr<const Plan>>;

Made plan_within(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                 KnownRuns& known) {
  WEFT_TRY_ASSIGN(const Draft draft, draft_within(model, config, known));
  write_modes(*draft.plan, draft.layout);
  hash_plan(*draft.plan);
  return std::shared_ptr<const Plan>(draft.plan);
}

void keep_faster(Made& best, Made next) {
  if (!next.ok()) return;
  if (best.ok()) {
    const auto before = predict(best.value(), nullptr, false),
               after = predict(next.value(), nullptr, false);
    if (!before.ok() || !after.ok() || after.value().seconds >= before.value().seconds) return;
  }
  best = std::move(next);
}

// Whether a plan that recomputes nothing is the one without limits. With recompute, it would only
// do more work.
bool is_free(const Plan& plan, const PlanConfig& config, KnownRuns& known) {
  if (is_from_costs(config.schedule)) return false;  // the order is made for the limit
  PlanConfig free = config;
  free.memory_limit = 0;
  free.machines.memory.clear();
  const auto stages = choose_stages(*plan.whole, free, plan.pipeline_stages(), known);
  return stages.ok() && stages.value() == plan.stage_of_whole &&
         plan.config.packed == config.packed;
}

// Recompute "auto" drops activations of stages that are cut by time, for one limit of all ranks.
// One choice for all stages, with cuts by bytes for it, can give a faster plan, or a plan where it
// finds none. Plans of two lengths that follow one another differ little.
Made plan_with_order(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                     KnownRuns& known) {
  Made best = plan_within(model, config, known);
  if (config.recompute != "auto" || !is_limited(config)) return best;
  if (!best.ok() && best.status().code() != Code::invalid) return best;
  PlanConfig other = config;
  for (const char* recompute :
       {"none", "stage", "every:1", "every:2", "every:3", "every:4", "every:6", "every:8"}) {
    other.recompute = recompute;
    // Of given cuts, every rank must make the same plan, also without the times.
    if (best.ok() && !cuts_by_bytes(other)) break;
    Made made = plan_within(model, other, known);
    const bool last =
        made.ok() && other.recompute == "none" && is_free(*made.value(), other, known);
    keep_faster(best, std::move(made));
    if (last) break;
  }
  return best;
}

// The costs that zb-auto is made from do not contain the times of messages and of packing, nor the
// shares of ranks that share a stage. The plans of zb-h1 and zb-h2 can therefore be faster.
Made plan_of(const std::shared_ptr<const Model>& model, const PlanConfig& config,
             KnownRuns& known) {
  Made best = plan_with_order(model, config, known);
  if (!config.schedule_text.empty() || !is_from_costs(config.schedule) ||
      !makes(*model, config, Mode::train) || (!best.ok() && best.status().code() != Code::invalid))
    return best;
  const PlanConfig pipeline = pipeline_config(config);
  for (const auto make : {make_zb_h1, make_zb_h2}) {
    PlanConfig written = config;
    WEFT_TRY_ASSIGN(const Schedule rows,
                    make({.ranks = pipeline.ranks, .micro_batches = pipeline.micro_batches}));
    written.schedule_text = rows.text();
    keep_faster(best, plan_with_order(model, written, known));
  }
  return best;
}

}  // namespace

Status Planner::make_model(const PlanConfig& config) {
  if (model_) return {};
  WEFT_TRY_ASSIGN(const auto grouped,
                  with_groups(whole_, config.groups, makes(*whole_, config, Mode::train)));
  WEFT_TRY_ASSIGN(model_, with_f32_nodes(grouped, config));
  return {};
}

Made Planner::plan(PlanConfig config) {
  WEFT_TRY(check_config(*whole_, config).within("plan"));
  WEFT_TRY(make_model(config).within("plan"));
  drop_frozen(*model_, config.times);
  return plan_of(model_, config, known_).within("plan");
}

Made make_plan(const std::shared_ptr<const Model>& model, PlanConfig config) {
  return Planner(model).plan(std::move(config));
}

}  // namespace weft
