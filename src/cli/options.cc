#include "cli/options.h"

#include <algorithm>
#include <cmath>

#include "cli/build.h"
#include "cli/lists.h"
#include "cli/mesh_option.h"
#include "cli/parameter_groups.h"
#include "cli/train_what.h"

namespace weft::cli {

std::vector<std::string> offered_models() {
  return {"mlp",   "gpt-nano", "gemma2", "gemma3", "gpt2", "gpt_neox",
          "llama", "mistral",  "phi3",   "qwen2",  "qwen3"};
}

std::string model_names() {
  return "NAME[:key=value,...] with a NAME of " + joined(offered_models());
}

namespace {

std::vector<std::string> schedule_names() {
  std::vector<std::string> out = {kAuto};
  weft_schedule_info info = sized<weft_schedule_info>();
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (!info.forward_only) out.push_back(info.name);
  return out;
}

// The row of the table with this name. The row for "auto" is empty.
weft_schedule_info schedule_of(const std::string& name) {
  weft_schedule_info info = sized<weft_schedule_info>();
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (name == info.name) return info;
  return sized<weft_schedule_info>();
}

constexpr uint32_t kMost = uint32_t{1} << 20;

bool is_dropout(double p) { return p == -1 || (p >= 0 && p <= 0.99); }

std::string check_partition(const std::string& how) {
  const bool known = how == "cost" || how == "uniform" || how == "parameters" ||
                     how == "pipedream" || (how.starts_with("type:") && how.size() > 5);
  return known ? ""
               : "'" + how + "', expected one of cost, uniform, parameters, pipedream, type:OP";
}

std::string check_recompute(const std::string& what) {
  uint32_t nodes = 0;
  const bool known =
      what == "none" || what == "stage" || what == "auto" ||
      (what.starts_with("every:") && read_value(what.substr(6), &nodes) && nodes > 0);
  return known ? ""
               : "'" + what + "', expected one of none, stage, auto, every:N (N nodes, 1 or more)";
}

std::string check_speeds(const std::string& list) {
  for (const std::string& text : split(list)) {
    double speed = 0;
    if (!read_value(text, &speed) || !(speed > 0) || !std::isfinite(speed))
      return "'" + text + "', expected numbers above 0";
  }
  return "";
}

// Schedules for which --group means the same.
enum class Grouping { none, chunks, weights };

Grouping grouping_of(const std::string& schedule) {
  if (schedule.starts_with("interleaved")) return Grouping::chunks;
  return schedule == "1f1b-delayed-w" ? Grouping::weights : Grouping::none;
}

std::string check_warm_up(const std::string& text) {
  uint32_t depth = 0;
  return text == kAuto || (read_value(text, &depth) && depth > 0)
             ? ""
             : "'" + text + "', expected a whole number from 1, or auto";
}

constexpr std::pair<const char*, weft_rule> kRules[] = {
    {"adamw", WEFT_ADAMW}, {"adam", WEFT_ADAM}, {"sgd", WEFT_SGD}};
constexpr std::pair<const char*, weft_rate_curve> kCurves[] = {
    {"constant", WEFT_RATE_CONSTANT}, {"cosine", WEFT_RATE_COSINE}, {"linear", WEFT_RATE_LINEAR}};

template <typename Table>
auto value_of(const Table& table, const std::string& name) {
  const auto at = std::find_if(std::begin(table), std::end(table),
                               [&name](const auto& row) { return name == row.first; });
  return at->second;
}

template <typename Table, typename T>
const char* name_of(const Table& table, T value) {
  const auto at = std::find_if(std::begin(table), std::end(table),
                               [value](const auto& row) { return value == row.second; });
  return at->first;
}

// The value of an option, from a field of a configuration.
template <typename T>
void get(T& to, const T& from) {
  to = from;
}
void get(bool& to, uint32_t from) { to = from != 0; }
void get(std::string& to, const char* from) { to = from; }
void get(std::string& to, uint32_t from) {
  to = from == WEFT_WARM_UP_AUTO ? kAuto : std::to_string(from);
}
void get(std::string& to, weft_rule from) { to = name_of(kRules, from); }
void get(std::string& to, weft_rate_curve from) { to = name_of(kCurves, from); }

// A flag has none.
Option with_argument(Option option, const char* argument) {
  return argument ? option.type(argument) : option;
}

}  // namespace

PlanOptions::PlanOptions() {
  const weft_plan_config config = defaults(weft_plan_config_init);
#define PLAN_OPTION(field, ...) get(field, config.field);
#include "plan/settings.def"
}

uint32_t ranks_of(const std::string& stage_replicas) {
  uint64_t all = 0;
  uint32_t one = 0;
  for (const std::string& text : split(stage_replicas)) all += read_value(text, &one) ? one : 0;
  return static_cast<uint32_t>(std::clamp<uint64_t>(all, 1, kMostRanks));
}

uint32_t PlanOptions::pipeline_ranks() const {
  return ranks / std::max(data, 1u) / std::max(shard_ranks, 1u);
}

OptimizerOptions::OptimizerOptions() {
  const weft_optimizer optimizer = defaults(weft_optimizer_init);
#define OPTIMIZER_OPTION(field, ...) get(field, optimizer.field);
#include "plan/settings.def"
}

weft_rule rule_named(const std::string& name) { return value_of(kRules, name); }
weft_rate_curve curve_named(const std::string& name) { return value_of(kCurves, name); }

void add_precision_options(Parser& parser, std::string& precision, std::string& f32_nodes) {
  parser
      .add("--precision", precision,
           "Type in which values between nodes, and weights of products, are used: f32 or bf16")
      .type("TYPE")
      .one_of({"f32", "bf16"});
  parser
      .add("--f32-nodes", f32_nodes,
           "With --precision bf16: nodes that compute and store f32. * is any text, ? any "
           "character")
      .type("NAME,...");
}

void add_model_options(StoredOptions& settings, ModelOptions& options) {
  settings.section("Model");
  settings
      .add("--seq-len", options.seq_len,
           "Tokens per sample. 0: the context length of the model, at most 1024")
      .type("N")
      .range(0, INT32_MAX);
  settings.add("--dropout", options.dropout, "Dropout probability. -1: that of MODEL")
      .type("P")
      .number("-1 or a number from 0 to 0.99", is_dropout);
}

void add_plan_options(StoredOptions& settings, PlanOptions& options) {
#define PLAN_OPTION(field, value, type, title, names, argument, about, check) \
  settings.section(title);                                                    \
  with_argument(settings.add(names, options.field, about), argument) check;
#include "plan/settings.def"
  add_mesh_option(settings, options);
  settings
      .add("--schedule-file", options.schedule_file,
           "Read the schedule from a file of 'weft plan --write-schedule'. Replaces --schedule")
      .type("FILE");
  settings
      .add("--partition", options.partition,
           "How to cut the model: cost (equal times), uniform (equal numbers of nodes), "
           "parameters, pipedream or type:OP")
      .type("HOW")
      .offers({"cost", "uniform", "parameters", "pipedream"})
      .check(check_partition);
  settings
      .add("--cut", options.cut,
           "First node, or group of nodes, of each stage after the first. Replaces --partition")
      .type("NAME,...");
  settings
      .add("--profile", options.profile,
           "Use the times that 'weft profile' measured, not the cost estimates of the ops")
      .type("FILE");
  settings
      .add("--speeds", options.speeds,
           "Speed of each rank, relative to the machine of the profile; for predictions and "
           "--partition cost")
      .type("X,...")
      .check(check_speeds);
  settings
      .add("--link-latency", options.link_latency,
           "Latency of a message in seconds; for predictions, --partition cost and the number of "
           "slots")
      .type("S")
      .not_negative();
  settings
      .add("--link-bandwidth", options.link_bandwidth,
           "Bandwidth of a link in bytes per second; for predictions, --partition cost and "
           "pipedream. 0: no limit")
      .type("B")
      .not_negative();
}

void add_cluster_option(StoredOptions& settings, PlanOptions& options) {
  settings
      .add("--cluster", options.cluster,
           "Plan for the machines and links that this file describes, not for this machine")
      .type("FILE");
}

void add_optimizer_options(StoredOptions& settings, OptimizerOptions& options) {
#define OPTIMIZER_OPTION(field, value, type, title, names, argument, about, check) \
  settings.section(title);                                                         \
  with_argument(settings.add(names, options.field, about), argument) check;
#include "plan/settings.def"
  settings
      .add("--train", options.train,
           "What to train: all, parameters with these names (PATTERN,...), or only adapters of low "
           "rank (lora:rank=8,alpha=16,dropout=0.1,targets=NAME,...), which are added to MODEL")
      .type("WHAT")
      .check(check_train_what);
  settings
      .add("--freeze", options.freeze,
           "Do not train the parameters with these names; * is any text, ? any character")
      .type("PATTERN,...");
  settings
      .add("--param-group", options.param_groups,
           "Factors on --lr and --weight-decay for parameters, as PATTERN:rate=X,decay=Y;... The "
           "last pattern that matches a name counts, and replaces --freeze")
      .type("GROUP;...")
      .check(check_groups);
}

Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps) {
  if (optimizer.curve == "constant" || steps > optimizer.warmup) return {};
  return {kUsage,
          "--steps is " + std::to_string(steps) + ", expected more than --warmup, which is " +
              std::to_string(optimizer.warmup) + ": --lr-schedule " + optimizer.curve +
              " falls after the warm-up",
          ""};
}

Outcome check_cluster(const StoredOptions& settings, const PlanOptions& plan) {
  if (plan.cluster.empty()) return {};
  return settings.check_not_combined({"speeds", "link-latency", "link-bandwidth"},
                                     "--cluster, which contains it");
}

void forget_options(const StoredOptions& settings, const std::string& stored, PlanOptions& plan) {
  const auto given = [&settings](const char* name) { return settings.given(name); };
  const PlanOptions defaults;
  const bool other_ranks = given("ranks") || given("mesh");
  if (other_ranks && !given("speeds")) plan.speeds.clear();
  const bool other_links = given("speeds") || given("link-latency") || given("link-bandwidth");
  if (other_links && !given("cluster")) plan.cluster.clear();
  if (given("schedule") && !given("schedule-file")) plan.schedule_file.clear();
  if (!given("f32-nodes") && plan.precision != "bf16") plan.f32_nodes.clear();
  const bool another = given("schedule") || given("schedule-file");
  if (another) {
    const std::string name = plan.schedule_file.empty() ? plan.schedule : "";
    const weft_schedule_info info = schedule_of(name);
    if (!given("chunks") && (!info.name || info.chunks)) plan.chunks = defaults.chunks;
    if (!given("group") && grouping_of(name) != grouping_of(stored)) plan.group = defaults.group;
    if (!given("warmup-depth") && name != "1f1b") plan.warm_up = defaults.warm_up;
    if (!given("segment") && !info.asynchronous) plan.segment = defaults.segment;
    if (!given("vertical-sync") && !info.asynchronous) plan.vertical_sync = defaults.vertical_sync;
    if (!given("stage-replicas") && !info.asynchronous) plan.stage_replicas.clear();
    if (!given("shard") && info.asynchronous) plan.shard = defaults.shard;
    if (!given("gradient-groups") && info.asynchronous)
      plan.gradient_groups = defaults.gradient_groups;
  }
  const bool same_ranks = !given("mesh") && plan.ranks == ranks_of(plan.stage_replicas);
  if (other_ranks && !same_ranks && !given("stage-replicas")) plan.stage_replicas.clear();
  bool other_calls = another && plan.schedule == "pipedream";
  for (const char* name :
       {"micro-batch-size", "seq-len", "dropout", "train", "precision", "f32-nodes"})
    other_calls = other_calls || given(name);
  if (!given("profile") && other_calls) plan.profile.clear();
  const bool other_stages =
      (another || other_ranks || given("chunks")) && split(plan.cut).size() + 1 != stages_of(plan);
  if (!given("cut") && (other_stages || given("partition"))) plan.cut.clear();
}

namespace {

// Resets the options of a checkpoint that the rule or the curve of the command line does not read.
void forget_unread(const StoredOptions& settings, OptimizerOptions& optimizer) {
  const OptimizerOptions defaults;
  const auto reset = [&settings](const char* name, double& value, double unset) {
    if (!settings.given(name)) value = unset;
  };
  if (optimizer.rule != "sgd") {
    reset("momentum", optimizer.momentum, defaults.momentum);
  } else {
    reset("beta1", optimizer.beta1, defaults.beta1);
    reset("beta2", optimizer.beta2, defaults.beta2);
    reset("eps", optimizer.eps, defaults.eps);
  }
  if (optimizer.curve == "constant") reset("min-lr", optimizer.min_rate, defaults.min_rate);
}

}  // namespace

void settle_defaults(const StoredOptions& settings, PlanOptions& plan,
                     OptimizerOptions& optimizer) {
  forget_unread(settings, optimizer);
  if (!plan.schedule_file.empty() || !plan.plan_file.empty()) return;
  if (plan.schedule == kAuto && !settings.given("warmup-depth")) plan.warm_up = kAuto;
  if (!schedule_of(plan.schedule).asynchronous) return;  // auto never selects one
  if (!settings.given("clip")) optimizer.clip = 0;
  if (plan.schedule != "pipedream" || settings.given("micro-batches")) return;
  if (!settings.given("micro-batch-size")) plan.micro_batch_size *= plan.micro_batches;
  plan.micro_batches = 1;
}

}  // namespace weft::cli
