#include "plan/plan.h"

#include <algorithm>

#include "base/text.h"
#include "plan/edges.h"
#include "plan/lower.h"
#include "plan/stages.h"

namespace weft {

namespace {

Status check_config(const Model& model, const PlanConfig& c) {
  auto at_least = [](const char* name, int64_t value, int64_t least) {
    return value >= least ? Status() : Status(Code::invalid, cat(name, " is ", value, ", expected ", least, " or more"));
  };
  WEFT_TRY(at_least("ranks", c.ranks, 1));
  WEFT_TRY(at_least("micro_batches", c.micro_batches, 1));
  WEFT_TRY(at_least("micro_batch_size", c.micro_batch_size, 1));
  WEFT_TRY(at_least("short_size", c.short_size, 0));
  if (c.ranks > 4096) return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected at most 4096"));
  if (c.short_size >= c.micro_batch_size && c.short_size > 0)
    return Status(Code::invalid, cat("short_size is ", c.short_size, ", expected less than micro_batch_size, ", c.micro_batch_size));
  for (const Node& node : model.nodes()) {
    int64_t bytes = 0;
    const int64_t samples = c.micro_batch_size * (node.is_input() ? c.micro_batches : 1);
    if (__builtin_mul_overflow(static_cast<int64_t>(node.one.out.bytes()), samples, &bytes) || bytes > (int64_t{1} << 46))
      return Status(Code::invalid, cat("node '", node.name, "': ", node.one.out.text(), " for ", samples, " samples is too large"));
  }
  return check(c.optim);
}

Status make_mode(Plan& plan, Mode which) {
  const Model& model = *plan.model;
  ModePlan& mode = plan.modes[static_cast<size_t>(which)];
  mode.mode = which;
  mode.present = which == Mode::infer ? !model.outputs().empty() : model.loss() >= 0;
  if (!mode.present) return {};
  mode.graph = build_step_graph(model, which, plan.stage_of_node);
  const ScheduleSizes sizes{.ranks = plan.config.ranks, .micro_batches = plan.config.micro_batches};
  const ScheduleKind* kind = find_schedule(which == Mode::train ? plan.config.schedule : "forward");
  if (!kind) {
    std::string known;
    for (const ScheduleKind& k : all_schedules()) known += cat(known.empty() ? "" : ", ", k.name);
    return Status(Code::not_found, cat("schedule '", plan.config.schedule, "' is not known; there are ", known));
  }
  WEFT_TRY_ASSIGN(mode.schedule, kind->make(sizes));
  if (which == Mode::train && mode.schedule.forward_only)
    return Status(Code::invalid, cat("schedule '", plan.config.schedule, "' has no backward and cannot train"));
  plan.rank_of_stage = mode.schedule.rank_of_stage;
  return {};
}

Status lower(Plan& plan, ModePlan& mode) {
  if (!mode.present) return {};
  mode.edges = make_edges(plan, mode);
  std::vector<int32_t> edge_of;
  const std::vector<StageEdge> edges = stage_edges(plan, mode, &edge_of);
  auto checked = check_schedule(mode.schedule, edges);
  if (!checked.ok()) return checked.status().within(cat("schedule of mode ", mode_name(mode.mode)));
  lower_mode(plan, mode, lock_step(mode.schedule, edges));
  // The checker proved the schedule with its own count of places; the programs must give at least those.
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& e = mode.edges[static_cast<size_t>(edge_of[i])];
    const EdgePlaces& proved = checked.value().places[i];
    const int32_t least = e.kind == EdgeKind::gradient ? proved.gradient : proved.forward;
    if (e.landing_places < least)
      return Status(Code::internal, cat("edge ", edge_of[i], " has ", e.landing_places, " places, the schedule was proved with ", least));
  }
  return {};
}

void hash_plan(Plan& plan) {
  const PlanConfig& c = plan.config;
  plan.hash.model = plan.model->hash();
  Hasher partition, schedule, settings;
  partition.number(static_cast<uint64_t>(c.ranks));
  for (int32_t s : plan.stage_of_node) partition.number(static_cast<uint64_t>(s));
  plan.hash.partition = partition.finish();
  for (const ModePlan& mode : plan.modes) schedule.text(mode.present ? mode.schedule.text() : "");
  schedule.number(static_cast<uint64_t>(c.micro_batches)).number(static_cast<uint64_t>(c.micro_batch_size));
  plan.hash.schedule = schedule.number(static_cast<uint64_t>(c.short_size)).finish();
  const OptimSettings& o = c.optim;
  settings.number(c.seed).number(static_cast<uint64_t>(o.rule)).number(static_cast<uint64_t>(o.curve));
  for (double v : {o.rate, o.momentum, o.beta1, o.beta2, o.eps, o.weight_decay, o.min_rate, o.clip}) settings.number(v);
  settings.number(o.warmup).number(o.total).number(uint64_t{o.decay_all});
  plan.hash.settings = settings.finish();
}

}  // namespace

Result<std::shared_ptr<const Plan>> make_plan(std::shared_ptr<const Model> model, const PlanConfig& config) {
  WEFT_TRY(check_config(*model, config).within("plan"));
  auto plan = std::make_shared<Plan>();
  plan->model = std::move(model);
  plan->config = config;
  auto stages = choose_stages(*plan->model, config, config.ranks);
  if (!stages.ok()) return stages.status().within("plan");
  plan->stage_of_node = std::move(stages.value());
  for (Mode m : {Mode::train, Mode::eval, Mode::infer}) WEFT_TRY(make_mode(*plan, m).within("plan"));
  for (const Param& p : plan->model->params()) plan->owner_of_param.push_back(plan->rank_of(p.uses.front().node));
  place_parameters(*plan);
  plan->arena_bytes = plan->permanent_bytes;
  for (ModePlan& mode : plan->modes) {
    WEFT_TRY(lower(*plan, mode).within("plan"));
    for (size_t r = 0; r < mode.ranks.size(); ++r)
      plan->arena_bytes[r] = std::max(plan->arena_bytes[r], plan->permanent_bytes[r] + mode.ranks[r].bytes);
  }
  hash_plan(*plan);
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace weft
