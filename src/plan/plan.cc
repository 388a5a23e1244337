#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/asynchronous.h"
#include "plan/lower.h"
#include "plan/modes.h"
#include "plan/packer.h"
#include "plan/schedule_choice.h"
#include "plan/schedule_costs.h"
#include "plan/settings.h"
#include "plan/stages.h"

namespace weft {

bool makes(const Model& model, const PlanConfig& config, Mode mode) {
  const bool asked = config.step_kinds == 0 || (config.step_kinds >> static_cast<uint32_t>(mode) & 1);
  return asked && (mode == Mode::infer ? !model.outputs().empty() : model.loss() >= 0);
}

int32_t copies_of_weights(const Model& model, const PlanConfig& config) {
  return makes(model, config, Mode::train) ? 2 + slots(config.optim) : 1;
}

Mode Plan::main_mode() const {
  for (Mode m : {Mode::train, Mode::infer})
    if (mode(m).present) return m;
  return Mode::eval;
}

namespace {

Status check_machines(const Model& model, const PlanConfig& c) {
  const Machines& m = c.machines;
  if (!m.speeds.empty() && m.speeds.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("speeds has ", m.speeds.size(), " entries, expected one for each of ", c.ranks, " ranks"));
  auto number = [](const char* name, double value, bool zero) {
    const bool good = std::isfinite(value) && (zero ? value >= 0 : value > 0);
    return good ? Status() : Status(Code::invalid, cat(name, " is ", value, ", expected a finite number ", zero ? "from 0" : "above 0"));
  };
  for (double speed : m.speeds) WEFT_TRY(number("a rank's speed", speed, false));
  WEFT_TRY(number("latency", m.latency, true));
  WEFT_TRY(number("bandwidth", m.bandwidth, true));
  if (!c.times.empty() && c.times.size() != model.nodes().size())
    return Status(Code::invalid, cat("times has ", c.times.size(), " entries, expected one for each of ", model.nodes().size(), " nodes"));
  if (!m.memory.empty() && m.memory.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("memory has ", m.memory.size(), " entries, expected one for each of ", c.ranks, " ranks"));
  for (const NodeTimes& t : c.times)
    for (double seconds : {t.forward, t.input, t.weight}) WEFT_TRY(number("a node's time", seconds, true));
  return {};
}

Status check_steps(const Model& model, const PlanConfig& c) {
  if (c.step_kinds > 7) return Status(Code::invalid, cat("step_kinds is ", c.step_kinds, ", expected a sum of kinds of steps, or 0"));
  if (makes(model, c, Mode::train) || makes(model, c, Mode::eval) || makes(model, c, Mode::infer)) return {};
  return Status(Code::invalid, cat("step_kinds is ", c.step_kinds, ": the model can make none of these, it has no ",
                                   model.loss() < 0 ? "loss" : "output"));
}

Status check_config(const Model& model, const PlanConfig& c) {
  auto at_least = [](const char* name, int64_t value, int64_t least) {
    return value >= least ? Status() : Status(Code::invalid, cat(name, " is ", value, ", expected ", least, " or more"));
  };
  WEFT_TRY(at_least("ranks", c.ranks, 1));
  WEFT_TRY(at_least("micro_batches", c.micro_batches, 1));
  WEFT_TRY(at_least("micro_batch_size", c.micro_batch_size, 1));
  WEFT_TRY(at_least("short_size", c.short_size, 0));
  if (c.ranks > kMaxStages) return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected at most ", kMaxStages));
  WEFT_TRY(at_least("chunks", c.chunks, 0));
  WEFT_TRY(at_least("group", c.group, 0));
  WEFT_TRY(at_least("warm_up", c.warm_up, 0));
  WEFT_TRY(at_least("slack", c.slack, 0));
  WEFT_TRY(at_least("memory_limit", c.memory_limit, 0));
  WEFT_TRY(at_least("segment", c.segment, 0));
  if (c.short_size >= c.micro_batch_size && c.short_size > 0)
    return Status(Code::invalid, cat("short_size is ", c.short_size, ", expected less than micro_batch_size, ", c.micro_batch_size));
  for (const Node& node : model.nodes()) {
    int64_t samples = 0, bytes = 0;
    const int64_t micro_batches = node.is_input() ? int64_t{c.micro_batches} * std::max(c.segment, 1) : 1;
    if (__builtin_mul_overflow(c.micro_batch_size, micro_batches, &samples) ||
        __builtin_mul_overflow(static_cast<int64_t>(node.one.out.bytes()), samples, &bytes) || bytes > kMostBytes)
      return Status(Code::invalid, cat("node '", node.name, "': ", node.one.out.text(), " for ", micro_batches, " x ", c.micro_batch_size,
                                       " samples is too large"));
  }
  WEFT_TRY(model.check_samples(c.micro_batch_size));
  if (c.short_size > 0) WEFT_TRY(model.check_samples(c.short_size));
  WEFT_TRY(check_machines(model, c));
  WEFT_TRY(check_steps(model, c));
  return check(c.optim);
}

Status make_mode(Plan& plan, Mode which, const Schedule& train) {
  const Model& model = *plan.model;
  ModePlan& mode = plan.modes[static_cast<size_t>(which)];
  mode.mode = which;
  mode.present = makes(model, plan.config, which);
  if (!mode.present) return {};
  mode.graph = build_step_graph(model, which, plan.stage_of_node);
  if (which != Mode::train) {
    // A segment of an evaluation fills the pipeline as one of training does; deliveries of outputs, which are large, are not multiplied.
    const int32_t micro_batches = which == Mode::eval ? plan.most_micro_batches() : plan.config.micro_batches;
    WEFT_TRY_ASSIGN(mode.schedule, make_forward(train.rank_of_stage, plan.config.ranks, micro_batches));
  } else if (train.forward_only) {
    return Status(Code::invalid, cat("schedule '", plan.config.schedule, "' has no backward and cannot train"));
  } else {
    mode.schedule = train;
  }
  return {};
}

void hash_schedule(const Schedule& schedule, Hasher& hasher) {
  hasher.number(static_cast<uint64_t>(schedule.ranks()));
  std::vector<int32_t> row;
  for (const auto& actions : schedule.rows) {
    row.resize(3 * actions.size());
    auto at = row.begin();
    for (const Action& a : actions)
      for (int32_t part : {a.stage, static_cast<int32_t>(a.kind), a.micro_batch}) *at++ = part;
    hasher.number(static_cast<uint64_t>(actions.size())).bytes(row.data(), row.size() * sizeof row[0]);
  }
}

void hash_plan(Plan& plan) {
  const PlanConfig& c = plan.config;
  plan.hash.model = plan.model->hash();
  Hasher partition, schedule, settings;
  partition.number(static_cast<uint64_t>(c.ranks));
  for (int32_t s : plan.stage_of_node) partition.number(static_cast<uint64_t>(s));
  plan.hash.partition = partition.finish();
  for (const ModePlan& mode : plan.modes)
    if (mode.present)
      hash_schedule(mode.schedule, schedule);
    else
      schedule.number(uint64_t{0});
  schedule.number(static_cast<uint64_t>(c.micro_batches)).number(static_cast<uint64_t>(c.micro_batch_size));
  schedule.number(uint64_t{c.vertical_sync});
  schedule.number(static_cast<uint64_t>(c.slack));
  plan.hash.schedule = schedule.number(static_cast<uint64_t>(c.short_size)).finish();
  settings.number(c.seed);
  each_optim_setting(c.optim, [&settings](const char*, auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>)
      settings.number(value);
    else
      settings.number(static_cast<uint64_t>(value));
  });
  plan.hash.settings = settings.finish();
}

// However the stages were chosen, the plan says where they begin.
void keep_cuts(Plan& plan) {
  plan.config.cuts = cuts_of(*plan.model, plan.stage_of_node);
  plan.config.split = SplitBy::uniform;  // of a single stage, which has no cut
}

// Bytes that the estimates of what is chosen by one may come to, per rank; empty: no limit.
struct Room {
  std::vector<int64_t> cut;    // of the partition
  std::vector<int64_t> order;  // of zb-auto
};

bool made_from_costs(const ScheduleChoice& choice) { return choice.kind && choice.kind->make == make_zb_auto; }

// The training schedule. What only measured costs, machines or room explain is kept as it is: other ranks know none of them.
Result<Schedule> training_schedule(Plan& plan, const ScheduleChoice& choice, const std::vector<int64_t>& room) {
  PlanConfig& config = plan.config;
  const Model& model = *plan.model;
  const ScheduleCosts times = schedule_costs(model, config, config.times, plan.stage_of_node);
  ScheduleCosts costs = at_speeds(times, config.machines.speeds);
  if (made_from_costs(choice)) {
    WEFT_TRY(add_bytes(model, config, config.times, plan.stage_of_node, costs));
    for (size_t r = 0; r < room.size(); ++r) costs.fixed[r] += static_cast<double>(config.memory_limit - room[r]);
  }
  WEFT_TRY_ASSIGN(Schedule schedule, make_schedule(choice, config, costs));
  if (config.slack == 0) config.slack = slack_for(times, schedule.rank_of_stage, config);
  if (made_from_costs(choice) && (!config.times.empty() || config.machines.any() || config.memory_limit > 0))
    config.schedule_text = schedule.text();
  return schedule;
}

Status choose_versions(Plan& plan, const Schedule& train) {
  plan.config.segment = train.updates;
  WEFT_TRY_ASSIGN(const std::vector<WeightVersions> versions, weight_versions(train, plan.config.vertical_sync));
  for (size_t s = 0; s < versions.size(); ++s) plan.versions[static_cast<size_t>(train.rank_of_stage[s])] = versions[s];
  return {};
}

// Where everything runs, then what each rank runs.
Status make_parts(Plan& plan, const Room& room) {
  WEFT_TRY_ASSIGN(const ScheduleChoice choice, choose_schedule(plan.config));
  WEFT_TRY_ASSIGN(plan.stage_of_node, choose_stages(*plan.model, plan.config, choice.stages, room.cut));
  keep_cuts(plan);
  WEFT_TRY_ASSIGN(const Schedule train, training_schedule(plan, choice, room.order));
  plan.rank_of_stage = train.rank_of_stage;
  plan.versions.assign(static_cast<size_t>(plan.config.ranks), {});
  if (train.updates > 0) WEFT_TRY(check_schedule(train, {}).status().within("schedule of mode train"));
  WEFT_TRY(check_asynchronous(plan, train));
  if (train.updates > 0) WEFT_TRY(choose_versions(plan, train));
  for (Mode m : {Mode::train, Mode::eval, Mode::infer}) WEFT_TRY(make_mode(plan, m, train));
  for (const Param& p : plan.model->params()) plan.owner_of_param.push_back(plan.rank_of(p.uses.front().node));
  place_parameters(plan);
  return lower_modes(plan, train);
}

using PlanPtr = std::shared_ptr<Plan>;

Result<PlanPtr> try_plan(const std::shared_ptr<const Model>& model, const PlanConfig& config, const Room& room) {
  auto plan = std::make_shared<Plan>();
  plan->model = model;
  plan->config = config;
  WEFT_TRY(make_parts(*plan, room));
  hash_plan(*plan);
  return plan;
}

// Bytes that a rank may take.
constexpr int64_t kNoLimit = kMostBytes;
int64_t limit_of(const PlanConfig& config, size_t rank) {
  const int64_t own = config.machines.memory.empty() ? 0 : config.machines.memory[rank];
  return std::min(config.memory_limit > 0 ? config.memory_limit : kNoLimit, own > 0 ? own : kNoLimit);
}

// What a rank takes beyond that; not above 0: nothing.
int64_t excess(const PlanConfig& config, size_t rank, int64_t bytes) {
  const int64_t limit = limit_of(config, rank);
  return limit == kNoLimit ? 0 : bytes - limit;
}

bool limited(const PlanConfig& config) {
  bool out = config.memory_limit > 0;
  for (const int64_t bytes : config.machines.memory) out = out || bytes > 0;
  return out;
}

// What is chosen by an estimate of the bytes is given less room where the plan, which knows them, has more: by as much as it has too much,
// by twice as much as before where that changed nothing, and by half as much where nothing fits that. Where that would be all of its room,
// it loses half of it.
Result<PlanPtr> try_within(const std::shared_ptr<const Model>& model, const PlanConfig& config, std::vector<int64_t> Room::*chosen) {
  const auto ranks = static_cast<size_t>(config.ranks);
  const bool again = limited(config) && chosen;
  Room room;
  for (size_t r = 0; again && r < ranks; ++r) (room.*chosen).push_back(limit_of(config, r));
  std::vector<int64_t> before(ranks, 0), step(ranks, 0);  // bytes of the last plan, and what its room then lost
  constexpr int kAttempts = 12;
  Status over;
  for (int attempt = 0; attempt < (again ? kAttempts : 1); ++attempt) {
    auto plan = try_plan(model, config, room);
    if (!plan.ok()) {
      if (over.ok()) return plan.status();
      for (size_t r = 0; r < ranks; ++r) step[r] -= step[r] / 2, (room.*chosen)[r] += step[r];
      continue;
    }
    const std::vector<int64_t>& bytes = plan.value()->arena_bytes;
    size_t most = 0;  // the rank with the most too much
    for (size_t r = 0; r < ranks; ++r)
      if (excess(config, r, bytes[r]) > excess(config, most, bytes[most])) most = r;
    if (excess(config, most, bytes[most]) <= 0) return plan;
    over = Status(Code::invalid, cat("rank ", most, " needs ", bytes[most], " bytes, the limit is ", limit_of(config, most)));
    for (size_t r = 0; again && r < ranks; ++r) {
      const int64_t more = excess(config, r, bytes[r]);
      int64_t& left = (room.*chosen)[r];
      step[r] = more <= 0 ? 0 : bytes[r] == before[r] ? 2 * step[r] : more;
      if (step[r] >= left) step[r] = left / 2;  // never below 0, which would be no limit at all
      left -= step[r];
    }
    before = bytes;
  }
  return over;
}

bool cuts_by_bytes(const PlanConfig& config) {
  return limited(config) && config.split == SplitBy::cost && config.cuts.empty() && config.recompute != "auto";
}

// zb-auto under a limit: the shortest of orders made for it, by the cuts that the times alone ask for and by those of the plans of zb-h1 and
// zb-h2 that keep the limit, and of these plans themselves; so it is never worse than they are.
class OrderWithin {
 public:
  OrderWithin(const std::shared_ptr<const Model>& model, const PlanConfig& config) : model_(model), config_(config) {}

  Result<PlanPtr> run() {
    std::vector<std::vector<std::string>> cuts;
    for (const auto make : {make_zb_h1, make_zb_h2}) {
      PlanConfig written = config_;
      WEFT_TRY_ASSIGN(const Schedule rows, make({.ranks = config_.ranks, .micro_batches = config_.micro_batches}));
      written.schedule_text = rows.text();
      auto plan = try_within(model_, written, cuts_by_bytes(written) ? &Room::cut : nullptr);
      if (!plan.ok()) continue;
      cuts.push_back(plan.value()->config.cuts);
      WEFT_TRY(offer(plan.take()));
    }
    if (cuts.empty() && cuts_by_bytes(config_)) {  // a limit below theirs: 1f1b keeps less
      PlanConfig fused = config_;
      fused.schedule = "1f1b";
      if (auto plan = try_within(model_, fused, &Room::cut); plan.ok()) cuts.push_back(plan.value()->config.cuts);
    }
    PlanConfig made = config_;
    auto first = try_within(model_, made, &Room::order);
    if (first.ok()) WEFT_TRY(offer(first.take()));
    for (size_t i = 0; i < cuts.size(); ++i) {
      made.cuts = cuts[i];
      if (!cuts_by_bytes(config_) || (i > 0 && cuts[i] == cuts[0])) continue;
      auto plan = try_within(model_, made, &Room::order);
      if (plan.ok()) WEFT_TRY(offer(plan.take()));
    }
    if (best_) return std::move(best_);
    return first.status();
  }

 private:
  Status offer(PlanPtr plan) {
    const PlanConfig& c = plan->config;
    ScheduleCosts costs = at_speeds(schedule_costs(*model_, c, c.times, plan->stage_of_node), c.machines.speeds);
    WEFT_TRY(add_bytes(*model_, c, c.times, plan->stage_of_node, costs));
    costs.cap = 0;
    WEFT_TRY_ASSIGN(const double time, listed_time(plan->mode(Mode::train).schedule, costs));
    const int64_t bytes = *std::max_element(plan->arena_bytes.begin(), plan->arena_bytes.end());
    if (best_ && (time > time_ || (time == time_ && bytes >= bytes_))) return {};
    best_ = std::move(plan), time_ = time, bytes_ = bytes;
    return {};
  }

  const std::shared_ptr<const Model>& model_;
  const PlanConfig& config_;
  PlanPtr best_;
  double time_ = 0;
  int64_t bytes_ = 0;
};

Result<PlanPtr> plan_within(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  const bool listed =
      config.memory_limit > 0 && config.schedule_text.empty() && config.schedule == "zb-auto" && makes(*model, config, Mode::train);
  if (!listed) return try_within(model, config, cuts_by_bytes(config) ? &Room::cut : nullptr);
  if (config.recompute != "auto") return OrderWithin(model, config).run();
  // As long as another order does, nothing is made again.
  PlanConfig once = config;
  once.recompute = "none";
  if (auto plan = OrderWithin(model, once).run(); plan.ok()) {
    plan.value()->config.recompute = config.recompute;
    return plan;
  }
  return OrderWithin(model, config).run();
}

}  // namespace

Result<std::shared_ptr<const Plan>> make_plan(std::shared_ptr<const Model> model, const PlanConfig& config) {
  WEFT_TRY(check_config(*model, config).within("plan"));
  auto plan = plan_within(model, config);
  if (!plan.ok()) return plan.status().within("plan");
  return std::shared_ptr<const Plan>(plan.take());
}

}  // namespace weft
