#include "tune/draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "lowering/parameters.h"
#include "partition/schedule_costs.h"
#include "partition/stages.h"
#include "plan/asynchronous.h"
#include "plan/schedule_choice.h"

namespace weft {

namespace {

Status make_mode(Plan& plan, Mode which, const Schedule& train) {
  const Model& model = *plan.model;
  ModePlan& mode = plan.modes[static_cast<size_t>(which)];
  mode.mode = which;
  mode.present = makes(model, plan.config, which);
  if (!mode.present) return {};
  mode.graph = build_step_graph(model, which, plan.stage_of_node);
  if (which != Mode::train) {
    // A segment of an evaluation fills the pipeline as one of training does; deliveries of outputs,
    // which are large, are not multiplied.
    const int32_t micro_batches =
        which == Mode::eval ? plan.most_micro_batches() : plan.config.micro_batches;
    WEFT_TRY_ASSIGN(mode.schedule,
                    make_forward(train.rank_of_stage, plan.config.ranks, micro_batches));
  } else if (train.forward_only) {
    return Status(Code::invalid,
                  cat("schedule '", plan.config.schedule, "' has no backward and cannot train"));
  } else {
    mode.schedule = train;
  }
  return {};
}

// However the stages were chosen, the plan says where they begin.
void keep_cuts(Plan& plan) {
  plan.config.cuts = cuts_of(*plan.model, plan.stage_of_node);
  plan.config.split = SplitBy::uniform;  // of a single stage, which has no cut
}

Status choose_versions(Plan& plan, const Schedule& train) {
  plan.config.segment = train.updates;
  WEFT_TRY_ASSIGN(const std::vector<WeightVersions> versions,
                  weight_versions(train, plan.config.vertical_sync));
  for (size_t s = 0; s < versions.size(); ++s)
    plan.versions[static_cast<size_t>(train.rank_of_stage[s])] = versions[s];
  return {};
}

// What follows from the stages and the training schedule.
Result<Draft> draft_of(Plan stages, const Schedule& train) {
  Draft out{.plan = std::make_shared<Plan>(std::move(stages)), .layout = {}};
  Plan& plan = *out.plan;
  plan.rank_of_stage = train.rank_of_stage;
  plan.versions.assign(static_cast<size_t>(plan.config.ranks), {});
  if (train.updates > 0)
    WEFT_TRY(check_schedule(train, {}).status().within("schedule of mode train"));
  WEFT_TRY(check_asynchronous(plan, train));
  if (train.updates > 0) WEFT_TRY(choose_versions(plan, train));
  for (Mode m : {Mode::train, Mode::eval, Mode::infer}) WEFT_TRY(make_mode(plan, m, train));
  for (const Param& p : plan.model->params())
    plan.owner_of_param.push_back(plan.rank_of(p.uses.front().node));
  place_parameters(plan);
  WEFT_TRY_ASSIGN(out.layout, lay_out_modes(plan, train));
  return out;
}

bool made_from_costs(const ScheduleChoice& choice) {
  return choice.kind && choice.kind->make == make_zb_auto;
}

// The training schedule. What only measured costs, machines or limits explain is kept as it is:
// other ranks know none of them.
Result<Schedule> training_schedule(Plan& plan, const ScheduleChoice& choice) {
  PlanConfig& config = plan.config;
  const Model& model = *plan.model;
  const ScheduleCosts times = schedule_costs(model, config, config.times, plan.stage_of_node);
  ScheduleCosts costs = at_speeds(times, config.machines.speeds);
  std::vector<int32_t> rank_of_stage(static_cast<size_t>(choice.stages));
  std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
  if (made_from_costs(choice)) {
    WEFT_TRY(add_bytes(model, config, config.times, plan.stage_of_node, costs));
    if (config.memory_limit > 0 && config.recompute != "auto")
      costs.excess = [&plan, slack = config.slack > 0 ? config.slack
                                                      : slack_for(times, rank_of_stage, config)](
                         const Schedule& order) {
        Plan tried = plan;
        tried.config.slack = slack;
        const auto draft = draft_of(std::move(tried), order);
        std::vector<double> excess(static_cast<size_t>(plan.config.ranks),
                                   draft.ok() ? 0.0 : INFINITY);
        for (size_t r = 0; draft.ok() && r < excess.size(); ++r)
          excess[r] = static_cast<double>(
              std::max<int64_t>(0, draft.value().plan->arena_bytes[r] - limit_of(plan.config, r)));
        return excess;
      };
  }
  WEFT_TRY_ASSIGN(Schedule schedule, make_schedule(choice, config, std::move(costs)));
  if (config.slack == 0) config.slack = slack_for(times, schedule.rank_of_stage, config);
  if (made_from_costs(choice) &&
      (!config.times.empty() || config.machines.any() || config.memory_limit > 0))
    config.schedule_text = schedule.text();
  return schedule;
}

}  // namespace

Result<Draft> draft_of(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  Plan plan;
  plan.model = model;
  plan.config = config;
  WEFT_TRY_ASSIGN(const ScheduleChoice choice, choose_schedule(config));
  WEFT_TRY_ASSIGN(plan.stage_of_node, choose_stages(*model, config, choice.stages));
  keep_cuts(plan);
  WEFT_TRY_ASSIGN(const Schedule train, training_schedule(plan, choice));
  return draft_of(std::move(plan), train);
}

std::pair<size_t, int64_t> Draft::excess() const {
  std::pair<size_t, int64_t> most = {0, 0};
  for (size_t r = 0; r < plan->arena_bytes.size(); ++r)
    if (const int64_t over = plan->arena_bytes[r] - limit_of(plan->config, r); over > most.second)
      most = {r, over};
  return most;
}

}  // namespace weft
