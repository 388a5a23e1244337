#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>

#include "base/text.h"
#include "graph/shard.h"
#include "plan/asynchronous.h"
#include "plan/settings.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// Names contain no space.
bool lists(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != names.npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' '))
      return true;
  }
  return false;
}

bool asks(const PlanConfig& config, Mode mode) {
  return config.step_kinds == 0 || (config.step_kinds >> static_cast<uint32_t>(mode) & 1);
}

}  // namespace

bool keeps_packed(const PlanConfig& config, const Param& weight) {
  return config.shard != "parameters" &&
         (config.packed == kAllPacked || lists(config.packed, weight.name));
}

bool supports(const Model& model, Mode mode) {
  if (mode == Mode::infer) return !model.outputs().empty();
  if (has_loss(mode)) return model.loss() >= 0;
  return std::any_of(model.nodes().begin(), model.nodes().end(),
                     [](const Node& node) { return !node.one.state.empty(); });
}

bool makes(const Model& model, const PlanConfig& config, Mode mode) {
  return asks(config, mode) && supports(model, mode);
}

std::span<const ResidentTensor> ResidentParam::of(ResidentTensor::Role role) const {
  const auto first = std::partition_point(
      tensors.begin(), tensors.end(), [role](const ResidentTensor& t) { return t.role < role; });
  const auto end = std::partition_point(first, tensors.end(),
                                        [role](const ResidentTensor& t) { return t.role == role; });
  return {first, end};
}

bool ResidentParam::only_packed() const {
  return of(ResidentTensor::Role::value).empty() && !of(ResidentTensor::Role::packed).empty();
}

Place ResidentParam::value() const {
  const auto found = of(only_packed() ? ResidentTensor::Role::packed : ResidentTensor::Role::value);
  return found.empty() ? Place{} : found.front().place;
}

Place ResidentParam::gradient() const {
  for (const auto role : {ResidentTensor::Role::gradient, ResidentTensor::Role::accumulator})
    if (const auto found = of(role); updated && !found.empty())
      return std::partition_point(found.begin(), found.end(),
                                  [&](const ResidentTensor& t) { return t.sum < found.back().sum; })
          ->place;
  return {};
}

int32_t Plan::first_rank(int32_t pipeline_stage) const {
  const auto first = std::find_if(segments.begin(), segments.end(), [&](const Segment& s) {
    return s.stage == pipeline_stage && s.place == 0;
  });
  return position_of_stage[static_cast<size_t>(first - segments.begin())];
}

int32_t Plan::position_of(int32_t rank) const {
  if (stage_replicas.empty()) return rank % positions();
  return *std::prev(std::upper_bound(position_of_stage.begin(), position_of_stage.end(), rank));
}

int32_t Plan::most_replicas() const {
  return stage_replicas.empty() ? config.data
                                : *std::max_element(stage_replicas.begin(), stage_replicas.end());
}

int32_t Plan::replicas_at(int32_t rank) const {
  if (stage_replicas.empty()) return config.data;
  const auto stage =
      std::prev(std::upper_bound(position_of_stage.begin(), position_of_stage.end(), rank));
  return stage_replicas[static_cast<size_t>(stage - position_of_stage.begin())];
}

MicroBatches Plan::micro_batches_at(Mode m, int32_t rank) const {
  const int32_t replica = replica_of(rank);
  if (stage_replicas.empty())
    return {.first = first_micro_batch(m, replica), .end = first_micro_batch(m, replica + 1)};
  return {.first = replica, .end = micro_batches(m), .stride = replicas_at(rank)};
}

std::vector<uint32_t> Plan::stages_on(int32_t rank) const {
  std::vector<uint32_t> out;
  for (size_t s = 0; s < segments.size(); ++s)
    if (position_of_stage[s] == position_of(rank))
      out.push_back(static_cast<uint32_t>(segments[s].stage));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string Plan::timetable() const {
  const Schedule& schedule = mode(main_mode()).schedule;
  if (config.shard_ranks == 1) return schedule.text();  // each stage is one segment
  Schedule out;
  for (size_t r = 0; r < schedule.rows.size(); r += static_cast<size_t>(config.shard_ranks)) {
    std::vector<Action>& row = out.rows.emplace_back();
    std::set<std::tuple<int32_t, Kind, int32_t>> seen;  // an action has one segment per exchange
    for (const Action& a : schedule.rows[r]) {
      const int32_t stage = segments[static_cast<size_t>(a.stage)].stage;
      if (!seen.insert({stage, a.kind, a.micro_batch}).second) continue;
      // Segments that recompute may come after segments that do not.
      auto at = row.end();
      if (a.kind == Kind::R && (seen.contains({stage, Kind::I, a.micro_batch}) ||
                                seen.contains({stage, Kind::B, a.micro_batch})))
        at = std::find_if(row.begin(), row.end(), [&](const Action& b) {
          return b.stage == stage && b.micro_batch == a.micro_batch &&
                 (b.kind == Kind::I || b.kind == Kind::B);
        });
      row.insert(at, {stage, a.kind, a.micro_batch});
    }
  }
  return out.text();
}

Mode Plan::main_mode() const {
  for (Mode m : {Mode::train, Mode::infer, Mode::eval})
    if (mode(m).present) return m;
  return Mode::fill;
}

PlanConfig replica_config(const PlanConfig& config) {
  PlanConfig out = config;
  if (config.data == 1) return out;
  const int32_t ranks = config.ranks / config.data, groups = config.gradient_groups / config.data;
  const GradientGroups all{config.micro_batches, config.gradient_groups};
  out.ranks = ranks;
  out.data = 1;
  out.gradient_groups = groups;
  out.micro_batches = 0;
  for (int32_t d = 0; d < config.data; ++d)
    out.micro_batches =
        std::max(out.micro_batches, all.begin((d + 1) * groups) - all.begin(d * groups));
  const auto own = static_cast<size_t>(ranks);
  out.machines.keep_least(
      own, static_cast<size_t>(config.data),
      [own](size_t position, size_t replica) { return replica * own + position; });
  return out;
}

namespace {

Status check_machines(const Model& model, const PlanConfig& c) {
  const Machines& m = c.machines;
  if (!m.speeds.empty() && m.speeds.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("speeds has ", m.speeds.size(),
                                     " entries, expected one for each of ", c.ranks, " ranks"));
  auto number = [](const char* name, double value, bool zero) {
    const bool good = std::isfinite(value) && (zero ? value >= 0 : value > 0);
    return good ? Status()
                : Status(Code::invalid, cat(name, " is ", value, ", expected a finite number ",
                                            zero ? "from 0" : "above 0"));
  };
  for (double speed : m.speeds) WEFT_TRY(number("a rank's speed", speed, false));
  WEFT_TRY(number("the latency of a link", m.latency, true));
  WEFT_TRY(number("the bandwidth of a link", m.bandwidth, true));
  WEFT_TRY(number("the speed of updates", m.memory_speed, true));
  WEFT_TRY(number("the time between actions", m.overhead, true));
  if (!c.times.empty() && c.times.size() != model.nodes().size())
    return Status(Code::invalid,
                  cat("times has ", c.times.size(), " entries, expected one for each of ",
                      model.nodes().size(), " nodes"));
  if (!m.memory.empty() && m.memory.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("memory has ", m.memory.size(),
                                     " entries, expected one for each of ", c.ranks, " ranks"));
  for (const NodeTimes& t : c.times)
    for (double seconds : {t.forward, t.input, t.weight, t.weight_together})
      WEFT_TRY(number("a node's time", seconds, true));
  return {};
}

Status check_steps(const Model& model, const PlanConfig& c) {
  constexpr uint32_t kMost = (1u << kModes) - 1;
  if (c.step_kinds > kMost)
    return Status(Code::invalid, cat("step_kinds is ", c.step_kinds, ", expected 0 to ", kMost));
  if (std::any_of(kEveryMode.begin(), kEveryMode.end(),
                  [&](Mode mode) { return makes(model, c, mode); }))
    return {};
  constexpr const char* kMissing[kModes] = {"no loss", "no loss", "no output", "no state"};
  std::string missing;
  for (const Mode mode : kEveryMode)
    if (const char* one = kMissing[static_cast<size_t>(mode)];
        asks(c, mode) && missing.find(one) == std::string::npos)
      missing += cat(missing.empty() ? "" : ", ", one);
  return Status(Code::invalid, cat("step_kinds: the model cannot make any of these steps, because ",
                                   "it has ", missing));
}

}  // namespace

Status check_replicas(const Model& model, const PlanConfig& c) {
  const ScheduleKind* kind = find_schedule(c.schedule);
  if (kind && kind->asynchronous && c.data > 1)
    return Status(
        Code::invalid,
        cat("schedule '", c.schedule, "' is asynchronous, and has no replicas of a whole ",
            "pipeline: data is ", c.data, ", expected 1. With stage_replicas, the stages ",
            "of 'pipedream' can have replicas"));
  if (c.stage_replicas.empty()) return {};
  if (c.shard != "optimizer")
    return Status(Code::invalid,
                  cat("shard is '", c.shard, "', expected 'optimizer' with stage_replicas"));
  WEFT_TRY(replicas_of(c).status());
  if (c.schedule != "pipedream" || !c.schedule_text.empty())
    return Status(Code::invalid, cat("stage_replicas is '", c.stage_replicas,
                                     "', which is for schedule ", "'pipedream', not for ",
                                     c.schedule_text.empty() ? cat("'", c.schedule, "'")
                                                             : std::string("a schedule_text")));
  for (const Node& node : model.nodes())
    if (!node.one.state.empty())
      return Status(Code::invalid,
                    cat("node '", node.name, "' (", node.op->name(), ") keeps state between ",
                        "steps, which the replicas of a stage would not share: stage_replicas is ",
                        shown(c.stage_replicas), ", expected none"));
  return {};
}

namespace {

Status check_groups(const PlanConfig& c) {
  if (c.data > c.micro_batches)
    return Status(
        Code::invalid,
        cat("data is ", c.data, ", expected 1 to the number of micro-batches, ", c.micro_batches));
  if (c.gradient_groups < 1 || c.gradient_groups > c.micro_batches)
    return Status(Code::invalid,
                  cat("gradient_groups is ", c.gradient_groups,
                      ", expected 1 to the number of micro-batches, ", c.micro_batches));
  const bool halves = std::has_single_bit(static_cast<uint32_t>(c.data));
  if (c.data != c.gradient_groups && (!halves || c.gradient_groups % c.data != 0))
    return Status(Code::invalid,
                  cat("data is ", c.data, " and gradient_groups is ", c.gradient_groups,
                      ": data must be that number, or a power of two that divides it. "
                      "gradient_groups ",
                      c.data, " would fit; it changes how sums are rounded"));
  return {};
}

}  // namespace

Status check_config(const Model& model, const PlanConfig& c) {
  auto at_least = [](const char* name, int64_t value, int64_t least) {
    return value >= least
               ? Status()
               : Status(Code::invalid, cat(name, " is ", value, ", expected ", least, " or more"));
  };
  WEFT_TRY(at_least("ranks", c.ranks, 1));
  WEFT_TRY(at_least("tensor", c.tensor, 1));
  if (c.tensor > kMostShards)
    return Status(Code::invalid, cat("tensor is ", c.tensor, ", expected at most ", kMostShards));
  if (c.tensor > 1 && !model.axes().empty())
    return Status(Code::invalid,
                  cat("tensor is ", c.tensor, ", expected 1: the model has the axis '",
                      model.axes().front().name, "'"));
  WEFT_TRY(at_least("micro_batches", c.micro_batches, 1));
  WEFT_TRY(at_least("micro_batch_size", c.micro_batch_size, 1));
  WEFT_TRY(at_least("short_size", c.short_size, 0));
  WEFT_TRY(at_least("shard_ranks", c.shard_ranks, 1));
  const int32_t shards = std::max(model.shards(), c.tensor);
  if (c.shard_ranks > shards)
    return Status(Code::invalid,
                  cat("axis 'tensor' has ", c.shard_ranks, " ranks, expected at most ", shards,
                      ", the pieces that nodes are computed in (tensor)"));
  if (c.ranks > kMaxStages)
    return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected at most ", kMaxStages));
  WEFT_TRY(at_least("chunks", c.chunks, 0));
  WEFT_TRY(at_least("group", c.group, 0));
  WEFT_TRY(at_least("warm_up", c.warm_up, 0));
  WEFT_TRY(at_least("slack", c.slack, 0));
  WEFT_TRY(at_least("memory_limit", c.memory_limit, 0));
  WEFT_TRY(at_least("segment", c.segment, 0));
  WEFT_TRY(at_least("bucket_bytes", c.bucket_bytes, 1));
  WEFT_TRY(at_least("data", c.data, 1));
  WEFT_TRY(check_replicas(model, c));
  if (int64_t{c.data} * c.shard_ranks > c.ranks || c.ranks % (c.data * c.shard_ranks) != 0)
    return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected a multiple of ",
                                     int64_t{c.data} * c.shard_ranks,
                                     ", the product of the axes 'data' and 'tensor'"));
  WEFT_TRY(check_groups(c));
  if (c.precision != "f32" && c.precision != "bf16")
    return Status(Code::invalid,
                  cat("precision is ", shown(c.precision), ", expected f32 or bf16"));
  if (c.shard != "none" && c.shard != "optimizer" && c.shard != "parameters")
    return Status(Code::invalid,
                  cat("shard is ", shown(c.shard), ", expected none, optimizer or parameters"));
  if (c.short_size >= c.micro_batch_size && c.short_size > 0)
    return Status(Code::invalid,
                  cat("short_size is ", c.short_size, ", expected less than micro_batch_size, ",
                      c.micro_batch_size));
  for (const Node& node : model.nodes()) {
    int64_t samples = 0, bytes = 0;
    const int64_t micro_batches =
        node.is_input() ? int64_t{c.micro_batches} * std::max(c.segment, 1) : 1;
    if (__builtin_mul_overflow(c.micro_batch_size, micro_batches, &samples) ||
        __builtin_mul_overflow(static_cast<int64_t>(node.one.out.bytes()), samples, &bytes) ||
        bytes > kMostBytes)
      return Status(Code::invalid,
                    cat("node '", node.name, "': ", node.one.out.text(), " for ", micro_batches,
                        " x ", c.micro_batch_size, " samples is too large"));
  }
  WEFT_TRY(model.check_samples(c.micro_batch_size));
  if (c.short_size > 0) WEFT_TRY(model.check_samples(c.short_size));
  WEFT_TRY(check_machines(model, c));
  WEFT_TRY(check_steps(model, c));
  return check(c.optim);
}

namespace {

void hash_schedule(const Schedule& schedule, Hasher& hasher) {
  hasher.number(static_cast<uint64_t>(schedule.ranks()));
  std::vector<int32_t> row;
  for (const auto& actions : schedule.rows) {
    row.resize(3 * actions.size());
    auto at = row.begin();
    for (const Action& a : actions)
      for (int32_t part : {a.stage, static_cast<int32_t>(a.kind), a.micro_batch}) *at++ = part;
    hasher.number(static_cast<uint64_t>(actions.size()))
        .bytes(row.data(), row.size() * sizeof row[0]);
  }
}

}  // namespace

std::vector<std::pair<std::string, Digest>> setting_digests(const PlanConfig& config) {
  // They only choose the actions, which plan.hash.schedule has. Schedules of other names can have
  // the same ones.
  constexpr std::string_view kChoices[] = {"schedule", "chunks", "group", "warm_up"};
  std::vector<std::pair<std::string, Digest>> out;
  const auto add = [&](const std::string& name, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if (std::find(std::begin(kChoices), std::end(kChoices), name) != std::end(kChoices)) return;
    Hasher hasher;
    if constexpr (std::is_same_v<T, std::string>)
      hasher.text(value);
    else if constexpr (std::is_floating_point_v<T>)
      hasher.number(value);
    else
      hasher.number(static_cast<uint64_t>(value));
    out.emplace_back(name, hasher.finish());
  };
  each_plan_setting(config, add);
  each_optim_setting(config.optim, add);
  for (size_t i = 0; i < config.groups.size(); ++i)
    each_group_setting(config.groups[i], [&](const char* name, const auto& value) {
      add(cat("groups[", i, "].", name), value);
    });
  return out;
}

void hash_plan(Plan& plan) {
  const PlanConfig& c = plan.config;
  plan.hash.model = plan.whole->hash();
  Hasher partition, schedule, settings;
  partition.number(static_cast<uint64_t>(c.ranks));
  for (int32_t s : plan.stage_of_node) partition.number(static_cast<uint64_t>(s));
  plan.hash.partition = partition.finish();
  for (const ModePlan& mode : plan.modes)
    if (mode.present)
      hash_schedule(mode.schedule, schedule);
    else
      schedule.number(uint64_t{0});
  plan.hash.schedule = schedule.finish();
  for (const auto& [name, digest] : setting_digests(c)) {
    plan.hash.each.push_back(digest);
    settings.number(digest.high).number(digest.low);
  }
  plan.hash.settings = settings.finish();
}

}  // namespace weft
