#include "api/plan_config.h"

#include <algorithm>
#include <limits>

#include "plan/profile_times.h"
#include "sim/predict.h"
#include "tune/compare.h"

namespace weft::api {

namespace {

// The kinds of steps, as stored in PlanConfig.
static_assert(WEFT_STEPS_TRAIN == 0x100 << static_cast<int>(Mode::train) &&
              WEFT_STEPS_EVAL == 0x100 << static_cast<int>(Mode::eval) &&
              WEFT_STEPS_FORWARD == 0x100 << static_cast<int>(Mode::infer) &&
              WEFT_STEPS_FILL == 0x100 << static_cast<int>(Mode::fill));
constexpr uint32_t kStepKind = 0x100;
static_assert(WEFT_STEPS_TRAIN_OUTPUTS == WEFT_STEPS_TRAIN * PlanConfig::kOutputs &&
              WEFT_STEPS_EVAL_OUTPUTS == WEFT_STEPS_EVAL * PlanConfig::kOutputs);
constexpr uint32_t kStepKinds = WEFT_STEPS_ALL | WEFT_STEPS_TRAIN_OUTPUTS | WEFT_STEPS_EVAL_OUTPUTS;

constexpr const char* kWritten = "written";    // the name of a written schedule
constexpr uint64_t kMost = uint64_t{1} << 30;  // maximum of a value that becomes an int32_t

// One field of a configuration.
template <typename From, typename To>
Status take(const char* config, const char* field, From from, To& to) {
  if constexpr (std::is_pointer_v<From>) WEFT_TRY(require(from, cat(config, ".", field).c_str()));
  if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    constexpr uint64_t most =
        std::is_same_v<To, int32_t> ? kMost : static_cast<uint64_t>(std::numeric_limits<To>::max());
    if (from > most)
      return Status(Code::invalid,
                    cat(config, ".", field, " is ", from, ", expected at most ", most));
  }
  to = static_cast<To>(from);
  return {};
}

Status take(const char* config, const char* field, weft_rule from, Rule& to) {
  switch (from) {
    case WEFT_ADAMW: to = Rule::adamw; return {};
    case WEFT_ADAM: to = Rule::adam; return {};
    case WEFT_SGD: to = Rule::sgd; return {};
  }
  return Status(Code::invalid, cat(config, ".", field, " is ", uint32_t{from},
                                   ", expected WEFT_ADAMW, WEFT_ADAM or WEFT_SGD"));
}

Status take(const char* config, const char* field, weft_rate_curve from, RateCurve& to) {
  switch (from) {
    case WEFT_RATE_CONSTANT: to = RateCurve::constant; return {};
    case WEFT_RATE_COSINE: to = RateCurve::cosine; return {};
    case WEFT_RATE_LINEAR: to = RateCurve::linear; return {};
  }
  return Status(Code::invalid,
                cat(config, ".", field, " is ", uint32_t{from},
                    ", expected WEFT_RATE_CONSTANT, WEFT_RATE_COSINE or WEFT_RATE_LINEAR"));
}

Result<OptimSettings> optim_of(const weft_optimizer* config) {
  weft_optimizer c;
  WEFT_TRY(read_config(config, "weft_optimizer", c));
  OptimSettings out;
#define OPTIMIZER_SETTING(field, value) \
  WEFT_TRY(take("weft_optimizer", #field, c.field, out.field));
#include "plan/settings.def"
  return out;
}

// The size of the first group is the distance from one to the next.
Result<std::vector<ParamGroup>> groups_of(const weft_plan_config& config) {
  std::vector<ParamGroup> out;
  if (config.n_groups) WEFT_TRY(require(config.groups, "weft_plan_config.groups"));
  const auto* at = reinterpret_cast<const char*>(config.groups);
  for (uint32_t i = 0; i < config.n_groups; ++i, at += config.groups->size) {
    const auto* group = reinterpret_cast<const weft_parameter_group*>(at);
    if (group->size % alignof(weft_parameter_group) != 0 || group->size != config.groups->size)
      return Status(Code::invalid,
                    cat("weft_plan_config.groups: size is ", group->size, " in group ", i, " and ",
                        config.groups->size, " in group 0, expected ", sizeof *group, " in each"));
    weft_parameter_group c;
    WEFT_TRY(read_config(group, "weft_parameter_group", c));
    ParamGroup& to = out.emplace_back();
#define GROUP_SETTING(field, value) \
  WEFT_TRY(take("weft_parameter_group", #field, c.field, to.field));
#include "plan/settings.def"
  }
  return out;
}

Status read_split(const weft_plan_config& c, const Model& model, PlanConfig& out) {
  switch (c.split) {
    case WEFT_SPLIT_COST: out.split = SplitBy::cost; break;
    case WEFT_SPLIT_UNIFORM: out.split = SplitBy::uniform; break;
    case WEFT_SPLIT_PARAMETERS: out.split = SplitBy::parameters; break;
    case WEFT_SPLIT_TYPE: out.split = SplitBy::type; break;
    case WEFT_SPLIT_PIPEDREAM: out.split = SplitBy::pipedream; break;
    default:
      return Status(Code::invalid,
                    cat("weft_plan_config.split is ", uint32_t{c.split},
                        ", expected one of WEFT_SPLIT_COST to WEFT_SPLIT_PIPEDREAM"));
  }
  if (c.split == WEFT_SPLIT_TYPE) {
    WEFT_TRY(require(c.split_type, "weft_plan_config.split_type"));
    out.split_type = c.split_type;
  } else if (c.split_type) {
    return Status(Code::invalid, cat("weft_plan_config.split_type is ", shown(c.split_type),
                                     ", expected NULL unless split is WEFT_SPLIT_TYPE"));
  }
  if (c.profile) {
    const Profile& profile = c.profile->profile;
    WEFT_TRY_ASSIGN(out.times, times_of(profile, model, out));
    out.machines.overhead = profile.overhead;
    out.machines.memory_speed = profile.memory_speed;
  }
  if (c.n_speeds) WEFT_TRY(require(c.speeds, "weft_plan_config.speeds"));
  if (c.speeds && !c.n_speeds)
    return Status(Code::invalid, "weft_plan_config.n_speeds is 0, expected the number of ranks");
  out.machines.speeds.assign(c.speeds, c.speeds + c.n_speeds);
  if (c.link_latency_ns < 0)
    return Status(Code::invalid, cat("weft_plan_config.link_latency_ns is ", c.link_latency_ns,
                                     ", expected 0 or more"));
  out.machines.latency = static_cast<double>(c.link_latency_ns) * 1e-9;
  out.machines.bandwidth = c.link_bandwidth;
  return {};
}

// The names of the axes along which ranks share a stage: the axes of the model, or "tensor".
std::vector<std::string> shared_axes(const Model& model) {
  std::vector<std::string> out;
  for (const ModelAxis& axis : model.axes()) out.push_back(axis.name);
  if (out.empty()) out.push_back("tensor");
  return out;
}

// Ranks divide the coordinates in order, so an axis is divided only if those before it are.
Result<int32_t> ranks_of_stage(const Model& model, std::span<const uint32_t> sizes) {
  int64_t ranks = 1;
  const ModelAxis* undivided = nullptr;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ranks *= std::max(sizes[i], 1u);
    if (model.axes().empty()) break;
    const ModelAxis& axis = model.axes()[i];
    const auto size = static_cast<uint32_t>(axis.size);
    if (sizes[i] > 1 && undivided)
      return Status(Code::invalid, cat("axis '", axis.name, "' has size ", sizes[i],
                                       " in the plan, expected 1 while axis '", undivided->name,
                                       "' has less than its ", undivided->size, " coordinates"));
    if (size % std::max(sizes[i], 1u) != 0)
      return Status(Code::invalid,
                    cat("axis '", axis.name, "' has size ", sizes[i],
                        " in the plan, expected a divisor of its ", size, " coordinates"));
    if (!undivided && std::max(sizes[i], 1u) < size) undivided = &axis;
  }
  return static_cast<int32_t>(ranks);
}

// For a mesh with axes.
Status set_ranks(const weft_plan_config& c, uint64_t ranks, PlanConfig& out) {
  if (c.ranks != 1 && c.ranks != ranks)
    return Status(Code::invalid, cat("weft_plan_config.ranks is ", c.ranks, ", expected 1 or ",
                                     ranks, ", the ranks of weft_plan_config.axes"));
  out.ranks = static_cast<int32_t>(ranks);
  return {};
}

Status read_axes(const weft_plan_config& c, const Model& model, PlanConfig& out) {
  if (c.n_axes == 0) return {};
  WEFT_TRY(require(c.axes, "weft_plan_config.axes"));
  std::vector<std::string> names = {"data", "stage"};
  for (std::string& name : shared_axes(model)) names.push_back(std::move(name));
  if (model.axes().empty()) names.push_back("auto");
  std::vector<uint32_t> sizes(names.size(), 0);
  for (uint32_t i = 0; i < c.n_axes; ++i) {
    WEFT_TRY(require(c.axes[i].name, "a name in weft_plan_config.axes"));
    if (c.axes[i].reserved)
      return Status(Code::invalid,
                    cat("weft_axis.reserved is ", c.axes[i].reserved, ", expected 0"));
    const std::string_view name = c.axes[i].name;
    const auto at = std::find(names.begin(), names.end(), name);
    const auto n = static_cast<size_t>(at - names.begin());
    if (at == names.end() || sizes[n] > 0) {
      std::string known = names.front();
      for (size_t k = 1; k < names.size(); ++k)
        known += cat(k + 1 < names.size() ? ", " : " and ", names[k]);
      return Status(Code::invalid,
                    cat("axis ", shown(name), at != names.end() ? " is given twice" : " is unknown",
                        ", expected ", known));
    }
    if (c.axes[i].size < 1 || c.axes[i].size > static_cast<uint32_t>(kMaxStages))
      return Status(Code::invalid, cat("axis '", name, "' has size ", c.axes[i].size,
                                       ", expected 1 to ", kMaxStages));
    sizes[n] = c.axes[i].size;
  }
  if (names.back() == "auto" && sizes.back() > 0) {
    if (c.n_axes > 1)
      return Status(Code::invalid, "axis 'auto' stands for all axes, expected no other");
    out.data = out.shard_ranks = kAutoMesh;
    return set_ranks(c, sizes.back(), out);
  }
  out.data = static_cast<int32_t>(std::max(sizes[0], 1u));
  const size_t shared = std::max<size_t>(model.axes().size(), 1);
  WEFT_TRY_ASSIGN(out.shard_ranks, ranks_of_stage(model, std::span(sizes).subspan(2, shared)));
  const uint64_t ranks =
      uint64_t{std::max(sizes[0], 1u)} * out.shard_ranks * std::max(sizes[1], 1u);
  if (ranks > kMost)
    return Status(Code::invalid, cat("the axes make ", ranks, " ranks, expected at most ", kMost));
  return set_ranks(c, ranks, out);
}

Result<PlanConfig> config_of(weft_plan_config c, const Model& model) {
  PlanConfig out;
  if (c.step_kinds == 0 || (c.step_kinds & ~kStepKinds))
    return Status(Code::invalid,
                  cat("weft_plan_config.step_kinds is ", c.step_kinds,
                      ", expected a sum of values of weft_step_kinds, ", "as WEFT_STEPS_TRAIN"));
  c.step_kinds = c.step_kinds == WEFT_STEPS_ALL ? 0 : c.step_kinds / kStepKind;
#define PLAN_SETTING(field, value) WEFT_TRY(take("weft_plan_config", #field, c.field, out.field));
#include "plan/settings.def"
  if (c.warm_up == WEFT_WARM_UP_AUTO) out.warm_up = kAutoWarmUp;
  WEFT_TRY(read_axes(c, model, out));
  if (c.gradient_groups == 0) out.gradient_groups = out.data;
  WEFT_TRY(read_split(c, model, out));
  if (c.n_cuts) WEFT_TRY(require(c.cuts, "weft_plan_config.cuts"));
  for (uint32_t i = 0; i < c.n_cuts; ++i) {
    WEFT_TRY(require(c.cuts[i], "a name in weft_plan_config.cuts"));
    out.cuts.push_back(c.cuts[i]);
  }
  if (c.schedule_text) {
    if (std::string_view(c.schedule_text).find_first_not_of(" \t\r\n") == std::string_view::npos)
      return Status(Code::invalid, "weft_plan_config.schedule_text holds no row of actions");
    out.schedule_text = c.schedule_text;
    // Where rows come from costs, weft_plan_settings gives them with the name of the schedule.
    if (!is_from_costs(out.schedule)) out.schedule = kWritten;
  }
  if (c.tensor == 0) out.tensor = model.axes().empty() ? out.shard_ranks : 1;
  WEFT_TRY_ASSIGN(out.optim, optim_of(c.optimizer));
  WEFT_TRY_ASSIGN(out.groups, groups_of(c));
  return out;
}

}  // namespace

Result<Asked> read_plan_config(const weft_plan_config* config, const Model& model) {
  weft_plan_config c;
  WEFT_TRY(read_config(config, "weft_plan_config", c));
  Asked out;
  WEFT_TRY_ASSIGN(out.config, config_of(c, model));
  if (!c.cluster) return out;
  out.cluster = c.cluster->cluster;
  WEFT_TRY(check_ranks(*out.cluster, out.config.ranks));
  const double memory_speed = out.config.machines.memory_speed;
  out.config.machines = machines_of(out.cluster, out.config.ranks);
  out.config.machines.memory_speed = memory_speed;
  if (out.config.memory_limit == 0)
    out.config.memory_limit = memory_of(*out.cluster, out.config.ranks);
  return out;
}

}  // namespace weft::api
