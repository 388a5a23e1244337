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

// Recompute "auto" drops activations of stages that are cut by time, for one limit of all ranks.
// Cuts by bytes, with no recompute or with all of it, can give a faster plan. Other settings can
// give a plan where it finds none.
Made plan_with_order(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                     KnownRuns& known) {
  Made best = plan_within(model, config, known);
  if (config.recompute != "auto" || !is_limited(config)) return best;
  if (!best.ok() && best.status().code() != Code::invalid) return best;
  std::vector<const char*> others = {"none", "stage"};
  if (!best.ok()) others.insert(others.end(), {"every:1", "every:2"});
  PlanConfig other = config;
  for (const char* recompute : others) {
    other.recompute = recompute;
    // Of given cuts, every rank must make the same plan, also without the times.
    if (!best.ok() || cuts_by_bytes(other)) keep_faster(best, plan_within(model, other, known));
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

Result<std::shared_ptr<const Plan>> make_plan(const std::shared_ptr<const Model>& whole,
                                              PlanConfig config) {
  WEFT_TRY(check_config(*whole, config).within("plan"));
  WEFT_TRY_ASSIGN(
      const auto grouped,
      with_groups(whole, config.groups, makes(*whole, config, Mode::train)).within("plan"));
  WEFT_TRY_ASSIGN(const auto model, with_f32_nodes(grouped, config).within("plan"));
  drop_frozen(*model, config.times);
  KnownRuns known;
  return plan_of(model, config, known).within("plan");
}

}  // namespace weft
