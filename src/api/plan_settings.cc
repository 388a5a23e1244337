// The configuration from which an equal plan can be made.
#include <algorithm>

#include "api/handles.h"

using namespace weft;
using namespace weft::api;

namespace {

template <typename From, typename To>
void give(const From& from, To& to) {
  to = static_cast<To>(from);
}
void give(const std::string& from, const char*& to) { to = from.c_str(); }
void give(Rule from, weft_rule& to) {
  to = from == Rule::adamw ? WEFT_ADAMW : from == Rule::adam ? WEFT_ADAM : WEFT_SGD;
}
void give(RateCurve from, weft_rate_curve& to) {
  to = from == RateCurve::cosine   ? WEFT_RATE_COSINE
       : from == RateCurve::linear ? WEFT_RATE_LINEAR
                                   : WEFT_RATE_CONSTANT;
}

// The sizes of the axes. Ranks divide the coordinates of a model in order.
std::vector<weft_axis> axes_of(const Plan& plan) {
  const PlanConfig& c = plan.config;
  const auto size = [](int32_t ranks) { return static_cast<uint32_t>(ranks); };
  std::vector<weft_axis> out = {{"data", size(c.data), 0},
                                {"stage", size(c.ranks / c.data / c.shard_ranks), 0}};
  if (plan.whole->axes().empty()) out.push_back({"tensor", size(c.shard_ranks), 0});
  int32_t left = c.shard_ranks;
  for (const ModelAxis& axis : plan.whole->axes()) {
    const int32_t taken = std::min(axis.size, left);
    out.push_back({axis.name.c_str(), size(taken), 0});
    left /= taken;
  }
  return out;
}

}  // namespace

weft_plan::weft_plan(std::shared_ptr<const Plan> of, std::shared_ptr<const Cluster> for_cluster)
    : plan(std::move(of)), cluster(std::move(for_cluster)), axes(axes_of(*plan)) {
  const PlanConfig& c = plan->config;
  optimizer = defaults<weft_optimizer>();
  optimizer.size = sizeof optimizer;
#define OPTIMIZER_SETTING(field, value) give(c.optim.field, optimizer.field);
#include "plan/settings.def"
  for (const ParamGroup& group : c.groups) {
    groups.push_back(defaults<weft_parameter_group>());
    groups.back().size = sizeof groups.back();
#define GROUP_SETTING(field, value) give(group.field, groups.back().field);
#include "plan/settings.def"
  }
  for (const std::string& cut : c.cuts) cuts.push_back(cut.c_str());
}

weft_status weft_plan_settings(const weft_plan* plan, weft_plan_config* out) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(check_result(*out));
    const PlanConfig& c = plan->plan->config;
    weft_plan_config full = defaults<weft_plan_config>();
#define PLAN_SETTING(field, value) give(c.field, full.field);
#include "plan/settings.def"
    full.step_kinds = c.step_kinds ? c.step_kinds * WEFT_STEPS_TRAIN : uint32_t{WEFT_STEPS_ALL};
    full.warm_up = static_cast<uint32_t>(std::max(c.warm_up, 1));
    if (!c.schedule_text.empty()) full.schedule_text = c.schedule_text.c_str();
    if (!find_schedule(c.schedule)) full.schedule = defaults<weft_plan_config>().schedule;
    if (c.cuts.empty()) full.split = WEFT_SPLIT_UNIFORM;
    full.cuts = plan->cuts.data();
    full.n_cuts = static_cast<uint32_t>(plan->cuts.size());
    full.axes = plan->axes.data();
    full.n_axes = static_cast<uint32_t>(plan->axes.size());
    full.optimizer = &plan->optimizer;
    full.groups = plan->groups.data();
    full.n_groups = static_cast<uint32_t>(plan->groups.size());
    weft_plan_config_init(out, out->size);  // also the fields of a later version
    fill_result(out, full);
    return {};
  });
}
