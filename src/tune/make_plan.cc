#include "tune/make_plan.h"

#include "lowering/mode_plans.h"
#include "plan/f32_nodes.h"
#include "tune/limit_search.h"

namespace weft {

Result<std::shared_ptr<const Plan>> make_plan(const std::shared_ptr<const Model>& whole,
                                              PlanConfig config) {
  WEFT_TRY(check_config(*whole, config).within("plan"));
  auto grouped = with_groups(whole, config.groups, makes(*whole, config, Mode::train));
  if (!grouped.ok()) return grouped.status().within("plan");
  auto typed = with_f32_nodes(grouped.value(), config);
  if (!typed.ok()) return typed.status().within("plan");
  const std::shared_ptr<const Model> model = typed.take();
  drop_frozen(*model, config.times);
  auto draft = draft_within(model, config);
  if (!draft.ok()) return draft.status().within("plan");
  Plan& plan = *draft.value().plan;
  write_modes(plan, draft.value().layout);
  hash_plan(plan);
  return std::shared_ptr<const Plan>(draft.value().plan);
}

}  // namespace weft
