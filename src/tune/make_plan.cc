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

Made plan_within(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  WEFT_TRY_ASSIGN(const Draft draft, draft_within(model, config));
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
// Cuts by bytes without recompute can give a faster plan, and those of other settings a plan where
// it finds none.
Made plan_of(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  Made best = plan_within(model, config);
  if (config.recompute != "auto" || !is_limited(config)) return best;
  if (!best.ok() && best.status().code() != Code::invalid) return best;
  PlanConfig other = config;
  other.recompute = "none";
  // Of given cuts, every rank must make the same plan, also without the times.
  if (!best.ok() || cuts_by_bytes(other)) keep_faster(best, plan_within(model, other));
  if (best.ok()) return best;
  for (const char* recompute : {"stage", "every:1", "every:2"}) {
    other.recompute = recompute;
    keep_faster(best, plan_within(model, other));
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
  return plan_of(model, config).within("plan");
}

}  // namespace weft
