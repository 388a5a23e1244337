// The options that several commands share: their names, what values they take, and what their defaults are.
#include <algorithm>
#include <cmath>

#include "cli/setup.h"

namespace weft::cli {

namespace {

std::vector<std::string> schedule_names() {
  std::vector<std::string> out = {kAuto};
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (!info.forward_only) out.push_back(info.name);
  return out;
}

// The row of the table that has this name; without one for auto.
weft_schedule_info schedule_of(const std::string& name) {
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (name == info.name) return info;
  return WEFT_SCHEDULE_INFO_INIT;
}

constexpr uint32_t kMost = uint32_t{1} << 20;

bool is_dropout(double p) { return p == -1 || (p >= 0 && p <= 0.99); }

std::string check_partition(const std::string& how) {
  const bool known =
      how == "cost" || how == "uniform" || how == "parameters" || how == "pipedream" || (how.starts_with("type:") && how.size() > 5);
  return known ? "" : "'" + how + "', expected one of cost, uniform, parameters, pipedream, type:OP";
}

std::string check_recompute(const std::string& what) {
  uint32_t nodes = 0;
  const bool known = what == "none" || what == "stage" || what == "auto" ||
                     (what.starts_with("every:") && read_value(what.substr(6), &nodes) && nodes > 0);
  return known ? "" : "'" + what + "', expected one of none, stage, auto, every:N (N nodes, 1 or more)";
}

std::string check_speeds(const std::string& list) {
  for (const std::string& text : split(list)) {
    double speed = 0;
    if (!read_value(text, &speed) || !(speed > 0) || !std::isfinite(speed)) return "'" + text + "', expected numbers above 0";
  }
  return "";
}

std::string check_warm_up(const std::string& text) {
  uint32_t depth = 0;
  return text == kAuto || (read_value(text, &depth) && depth != WEFT_WARM_UP_AUTO) ? "" : "'" + text + "', expected a whole number or auto";
}

}  // namespace

void add_model_options(Settings& settings, ModelOptions& options) {
  settings.add("--seq-len", options.seq_len, "Tokens per sample; 0: the model's whole context").type("N").range(0, INT32_MAX);
  settings.add("--dropout", options.dropout, "Probability of dropout; -1: what MODEL says")
      .type("P")
      .number("-1 or a number from 0 to 0.99", is_dropout);
}

void add_plan_options(Settings& settings, PlanOptions& options) {
  settings.add("--ranks,--stages", options.ranks, "Pipeline ranks").type("P").range(1, kMost);
  settings.add("--schedule", options.schedule, "Order of actions; weft plan --schedules lists them; auto: the fastest as predicted")
      .type("NAME")
      .one_of(schedule_names());
  settings.add("--schedule-file", options.schedule_file, "Order of actions as weft plan --write-schedule wrote it; replaces --schedule")
      .type("FILE");
  settings.add("--chunks", options.chunks, "Stages per rank; 0: as many as the schedule makes").type("V");
  settings.add("--group", options.group, "interleaved: micro-batches that pass a chunk before the next one's turn; 0: as many as ranks")
      .type("G");
  settings.add("--warmup-depth", options.warm_up, "1f1b: forwards before the first backward, per later rank, or auto")
      .type("K")
      .check(check_warm_up);
  settings.add("--recompute", options.recompute, "What is not kept but made again for the backward: none, stage, every:N nodes, or auto")
      .type("WHAT")
      .check(check_recompute);
  settings
      .add("--memory-limit", options.memory_limit, "Bytes of a rank that --recompute auto or else --partition cost keeps to; 0: no limit")
      .type("BYTES")
      .bytes();
  settings.add("--segment", options.segment, "Asynchronous schedules: updates until the pipeline drains; 0: 16").type("K");
  settings.add("--vertical-sync", options.vertical_sync,
               "Asynchronous schedules: every stage uses the version of its weights that the first does");
  settings.add("--micro-batches", options.micro_batches, "Micro-batches per step").type("M").range(1, kMost);
  settings.add("--micro-batch-size", options.micro_batch_size, "Samples per micro-batch").type("N").range(1, kMost);
  settings
      .add("--partition", options.partition,
           "How stages are cut: cost (equal time), uniform (equal numbers of nodes), parameters, pipedream, or type:OP")
      .type("HOW")
      .check(check_partition);
  settings.add("--cut", options.cut, "First node, or group of nodes, of each stage after the first; replaces --partition").type("NAME,...");
  settings.add("--profile", options.profile, "Measured times, of weft profile; without: what the ops say they need").type("FILE");
  settings
      .add("--speeds", options.speeds, "Speed of each rank, in units of the machine of the profile: for predictions and --partition cost")
      .type("X,...")
      .check(check_speeds);
  settings
      .add("--link-latency", options.link_latency,
           "Seconds that a message is under way: that long, others may follow; predictions and --partition cost reckon with it")
      .type("S")
      .not_negative();
  settings
      .add("--link-bandwidth", options.link_bandwidth,
           "Bytes a second of a link, each way, for predictions and --partition cost or pipedream; 0: no limit")
      .type("B")
      .not_negative();
}

void add_cluster_option(Parser& parser, PlanOptions& options) {
  parser.add("--cluster", options.cluster, "Predict, cut and choose for the machines and links of this file, not for this machine")
      .type("FILE");
}

void add_optimizer_options(Settings& settings, OptimizerOptions& options) {
  settings.add("--optimizer", options.rule, "Update rule: adamw, adam or sgd").type("RULE").one_of({"adamw", "adam", "sgd"});
  settings.add("--lr", options.rate, "Learning rate").type("X").positive();
  settings
      .add("--lr-schedule", options.curve,
           "Learning rate over time: constant, or cosine, which falls over all steps and would be 0 in the next")
      .type("CURVE")
      .one_of({"constant", "cosine"});
  settings.add("--warmup", options.warmup, "Steps of linear warm-up of the learning rate").type("N");
  settings.add("--weight-decay", options.weight_decay, "Weight decay, of matrices alone").type("X").not_negative();
  settings.add("--clip", options.clip, "Clip gradients to this global norm; 0: never").type("X").not_negative();
}

Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps) {
  if (optimizer.curve != "cosine" || steps > optimizer.warmup) return {};
  return {kUsage,
          "--steps is " + std::to_string(steps) + ", expected more than the " + std::to_string(optimizer.warmup) +
              " of --warmup: from there on --lr-schedule cosine falls",
          ""};
}

Outcome check_cluster(const Settings& settings, const PlanOptions& plan) {
  if (plan.cluster.empty()) return {};
  for (const char* name : {"speeds", "link-latency", "link-bandwidth"})
    if (settings.given(name))
      return {kUsage, "--" + std::string(name) + " beside --cluster, which says it already", "leave one of them out"};
  return {};
}

void forget_options(const Settings& settings, PlanOptions& plan) {
  const auto given = [&settings](const char* name) { return settings.given(name); };
  const PlanOptions defaults;
  if (given("ranks") && !given("speeds")) plan.speeds.clear();
  if (given("schedule") && !given("schedule-file")) plan.schedule_file.clear();
  const bool another = given("schedule") || given("schedule-file");
  if (another) {
    const std::string name = plan.schedule_file.empty() ? plan.schedule : "";
    const weft_schedule_info info = schedule_of(name);
    if (!given("chunks") && (!info.name || info.chunks)) plan.chunks = defaults.chunks;
    if (!given("group") && !name.starts_with("interleaved")) plan.group = defaults.group;
    if (!given("warmup-depth") && name != "1f1b") plan.warm_up = defaults.warm_up;
    if (!given("segment") && !info.asynchronous) plan.segment = defaults.segment;
    if (!given("vertical-sync") && !info.asynchronous) plan.vertical_sync = defaults.vertical_sync;
  }
  const bool other_stages = (another || given("ranks") || given("chunks")) && split(plan.cut).size() + 1 != stages_of(plan);
  if (!given("cut") && (other_stages || given("partition"))) plan.cut.clear();
}

void settle_defaults(const Settings& settings, PlanOptions& plan, OptimizerOptions& optimizer) {
  if (!plan.schedule_file.empty() || !plan.plan_file.empty()) return;
  if (!schedule_of(plan.schedule).asynchronous) return;  // nor is what auto comes to
  if (!settings.given("clip")) optimizer.clip = 0;
  if (plan.schedule != "pipedream" || settings.given("micro-batches")) return;
  if (!settings.given("micro-batch-size")) plan.micro_batch_size *= plan.micro_batches;
  plan.micro_batches = 1;
}

}  // namespace weft::cli
