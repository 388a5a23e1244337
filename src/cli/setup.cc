#include "cli/setup.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/console.h"
#include "cli/json.h"

namespace weft::cli {

namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

Outcome read_text(const std::string& path, std::string& out) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {kBadInput, path + ": expected a file, found a directory", ""};
  std::ifstream file(path, std::ios::binary);
  if (!file) return {kBadInput, path + ": cannot open: " + reason(errno), ""};
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return {kFailed, path + ": cannot read", ""};
  out = text.str();
  return {};
}

constexpr const char* kAuto = "auto";

std::vector<std::string> schedule_names() {
  std::vector<std::string> out = {kAuto};
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i) out.push_back(info.name);
  return out;
}

constexpr uint32_t kMost = uint32_t{1} << 20;

std::string check_dropout(const std::string& text) {
  double p = 0;
  return read_value(text, &p) && (p == -1 || (p >= 0 && p <= 0.99)) ? "" : "'" + text + "', expected -1 or a number from 0 to 0.99";
}

std::string check_partition(const std::string& how) {
  const bool known =
      how == "cost" || how == "uniform" || how == "parameters" || how == "pipedream" || (how.starts_with("type:") && how.size() > 5);
  return known ? "" : "'" + how + "', expected one of cost, uniform, parameters, pipedream, type:OP";
}

uint32_t split_of(const std::string& how) {
  if (how.starts_with("type:")) return WEFT_SPLIT_TYPE;
  if (how == "pipedream") return WEFT_SPLIT_PIPEDREAM;
  return how == "uniform" ? WEFT_SPLIT_UNIFORM : how == "parameters" ? WEFT_SPLIT_PARAMETERS : WEFT_SPLIT_COST;
}

}  // namespace

void add_model_options(Settings& settings, ModelOptions& options) {
  settings.add("--seq-len", options.seq_len, "Tokens per sample; 0: the model's whole context").type("N");
  settings.add("--dropout", options.dropout, "Probability of dropout; -1: what MODEL says").type("P").check(check_dropout);
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
  settings.add("--warmup-depth", options.warm_up, "1f1b: forwards before the first backward, per later rank, or auto").type("K");
  settings.add("--recompute", options.recompute, "What is not kept but made again for the backward: none, stage, every:N nodes, or auto")
      .type("WHAT");
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
      .type("X,...");
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
  settings.add("--lr-schedule", options.curve, "Learning rate over time: constant, or cosine down to 0 at the last step")
      .type("CURVE")
      .one_of({"constant", "cosine"});
  settings.add("--warmup", options.warmup, "Steps of linear warm-up of the learning rate").type("N");
  settings.add("--weight-decay", options.weight_decay, "Weight decay, of matrices alone").type("X").not_negative();
  settings.add("--clip", options.clip, "Clip gradients to this global norm; 0: never").type("X").not_negative();
}

void settle_defaults(const Settings& settings, PlanOptions& plan, OptimizerOptions& optimizer) {
  if (!plan.schedule_file.empty() || !plan.plan_file.empty()) return;
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK && plan.schedule != info.name; ++i) continue;
  if (!info.asynchronous) return;
  if (!settings.given("clip")) optimizer.clip = 0;
  if (plan.schedule != "pipedream" || settings.given("micro-batches")) return;
  if (!settings.given("micro-batch-size")) plan.micro_batch_size *= plan.micro_batches;
  plan.micro_batches = 1;
}

Outcome open_checkpoint(const std::string& command, const std::string& path, CheckpointPtr& out, weft_checkpoint_info& info) {
  weft_error err = WEFT_ERROR_INIT;
  CLI_CALL(weft_checkpoint_open(path.c_str(), Out(out), &err));
  info = WEFT_CHECKPOINT_INFO_INIT;
  CLI_CALL(weft_checkpoint_describe(out.get(), &info));
  if (info.warning) complain(command, info.warning);
  return {};
}

uint32_t stages_of(const PlanOptions& options) {
  if (options.chunks) return options.ranks * options.chunks;
  uint32_t chunks = 0;
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (options.schedule == info.name || options.schedule == kAuto) chunks = std::max(chunks, info.chunks ? info.chunks : 2);
  return options.ranks * std::max(chunks, 1u);
}

Outcome build_model(const ModelOptions& options, uint32_t stages, Built& out) {
  weft_error err = WEFT_ERROR_INIT;
  std::string text = options.model;
  std::error_code ignored;
  if (const std::string name = text.substr(0, text.find(':'));
      options.is_checkpoint || name.find('/') != std::string::npos || std::filesystem::is_directory(text, ignored)) {
    weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
    CLI_TRY(open_checkpoint("", text, out.checkpoint, info));
    if (!info.model)
      return {kBadInput,
              "'" + text + (info.weights_only ? "' holds weights alone, not what model they are of" : "' does not say what model it is of"),
              options.is_checkpoint ? "weft train MODEL --init FILE --steps 0 --checkpoint DIR makes a checkpoint of them"
                                    : "name the model, and give the file with --init"};
    text = info.model;
  }
  if (options.dropout >= 0) text += (text.find(':') == std::string::npos ? ":dropout=" : ",dropout=") + number_text(options.dropout);
  CLI_CALL(weft_model_preset(text.c_str(), options.seq_len, stages, Out(out.model), &out.info, &err));
  return {};
}

namespace {

// The options that a saved plan says already, as it says them. An empty answer, or the key that is not as expected.
class PlanFileReader {
 public:
  explicit PlanFileReader(const nlohmann::json& plan) : plan_(plan), rule_(has(plan, "optimizer") ? plan["optimizer"] : plan) {}

  std::string read(PlanOptions& o, OptimizerOptions& rule, uint64_t& steps) {
    uint32_t warm_up = 0;
    number("ranks", o.ranks), number("micro_batches", o.micro_batches), number("micro_batch_size", o.micro_batch_size),
        number("chunks", o.chunks);
    number("group", o.group), number("warm_up", warm_up), number("memory_limit", o.memory_limit), number("segment", o.segment),
        number("seed", o.seed);
    take(plan_, "schedule", o.schedule, has(plan_, "schedule") && plan_["schedule"].is_string());
    take(plan_, "recompute", o.recompute, has(plan_, "recompute") && plan_["recompute"].is_string());
    take(plan_, "vertical_sync", o.vertical_sync, has(plan_, "vertical_sync") && plan_["vertical_sync"].is_boolean());
    if (o.schedule == "written") o.schedule = "1f1b";  // of the options none says its rows
    o.warm_up = std::to_string(std::max(warm_up, 1u));
    cuts(o.cut);
    optimizer(rule, steps);
    return fault_;
  }

 private:
  static bool has(const nlohmann::json& object, const char* key) { return object.is_object() && object.contains(key); }

  template <typename T>
  void take(const nlohmann::json& from, const char* key, T& to, bool good) {
    if (good)
      to = from[key].get<T>();
    else if (fault_.empty())
      fault_ = key;
  }
  template <typename T>
  void number(const char* key, T& to) {
    const bool is = has(plan_, key) && plan_[key].is_number_unsigned();
    take(plan_, key, to, is && (sizeof(T) > 4 || plan_[key].get<uint64_t>() <= (1u << 20)));
  }
  void cuts(std::string& to) {
    to.clear();
    if (has(plan_, "cuts") && plan_["cuts"].is_array())
      for (const auto& cut : plan_["cuts"]) to += (to.empty() ? "" : ",") + (cut.is_string() ? cut.get<std::string>() : std::string());
    else if (fault_.empty())
      fault_ = "cuts";
  }
  void optimizer(OptimizerOptions& to, uint64_t& steps) {
    for (const auto& [key, value] : {std::pair{"rate", &to.rate}, {"weight_decay", &to.weight_decay}, {"clip", &to.clip}})
      take(rule_, key, *value, has(rule_, key) && rule_[key].is_number());
    for (const auto& [key, value] : {std::pair{"rule", &to.rule}, {"curve", &to.curve}})
      take(rule_, key, *value, has(rule_, key) && rule_[key].is_string());
    take(rule_, "warmup", to.warmup, has(rule_, "warmup") && rule_["warmup"].is_number_unsigned());
    if (to.curve == "cosine") take(rule_, "total", steps, has(rule_, "total") && rule_["total"].is_number_unsigned());
  }

  const nlohmann::json& plan_;
  const nlohmann::json& rule_;
  std::string fault_;
};

}  // namespace

Outcome take_plan_file(const Settings& settings, PlanOptions& options, OptimizerOptions& optimizer, uint64_t& steps) {
  if (options.plan_file.empty()) return {};
  for (const char* name : {"ranks",         "schedule",         "schedule-file",  "chunks",    "group",
                           "warmup-depth",  "recompute",        "memory-limit",   "segment",   "vertical-sync",
                           "micro-batches", "micro-batch-size", "partition",      "cut",       "profile",
                           "speeds",        "link-latency",     "link-bandwidth", "optimizer", "lr",
                           "lr-schedule",   "warmup",           "weight-decay",   "clip",      "seed"})
    if (settings.given(name)) return {kUsage, "--" + std::string(name) + " beside --plan, which says it already", "leave one of them out"};
  if (!options.cluster.empty()) return {kUsage, "--cluster beside --plan, which was made without it or for it", "leave one of them out"};
  std::string text;
  CLI_TRY(read_text(options.plan_file, text));
  const nlohmann::json plan = nlohmann::json::parse(text, nullptr, false);
  uint64_t total = steps;
  const std::string fault = PlanFileReader(plan).read(options, optimizer, total);
  if (!fault.empty())
    return {kBadInput, "'" + options.plan_file + "' is no saved plan: '" + fault + "' is not there or not as expected",
            "weft plan --save writes one"};
  if (total != steps && settings.given("steps"))
    return {kUsage, "--steps is " + std::to_string(steps) + " beside --plan, whose learning rate falls until step " + std::to_string(total),
            "leave --steps out"};
  steps = total;
  return {};
}

Outcome Cutting::fill(const PlanOptions& options, weft_plan_config& config) {
  weft_error err = WEFT_ERROR_INIT;
  names = split(options.cut);
  for (const std::string& name : names) cuts.push_back(name.c_str());
  config.cuts = cuts.data();
  config.n_cuts = static_cast<uint32_t>(cuts.size());
  config.split = split_of(options.partition);
  if (config.split == WEFT_SPLIT_TYPE) config.split_type = options.partition.c_str() + 5;
  if (!options.profile.empty()) CLI_CALL(weft_profile_load(options.profile.c_str(), Out(profile), &err));
  config.profile = profile.get();
  for (const std::string& text : split(options.speeds)) {
    double speed = 0;
    if (!read_value(text, &speed)) return {kUsage, "--speeds: '" + text + "' is no number", ""};
    speeds.push_back(speed);
  }
  if (!speeds.empty() && speeds.size() != options.ranks)
    return {
        kUsage,
        "--speeds has " + std::to_string(speeds.size()) + " numbers, expected one for each of " + std::to_string(options.ranks) + " ranks",
        ""};
  if (!speeds.empty()) config.speeds = speeds.data();
  config.link_latency = options.link_latency;
  config.link_bandwidth = options.link_bandwidth;
  return {};
}

Outcome PlanRequest::fill(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps) {
  weft_error err = WEFT_ERROR_INIT;
  rule_.rule = optimizer.rule == "sgd" ? WEFT_SGD : optimizer.rule == "adam" ? WEFT_ADAM : WEFT_ADAMW;
  rule_.rate = optimizer.rate;
  rule_.curve = optimizer.curve == "cosine" ? WEFT_RATE_COSINE : WEFT_RATE_CONSTANT;
  rule_.warmup = optimizer.warmup;
  rule_.total = rule_.curve == WEFT_RATE_COSINE ? steps : 0;
  rule_.weight_decay = optimizer.weight_decay;
  rule_.clip = optimizer.clip;
  config.ranks = options.ranks;
  config.micro_batches = options.micro_batches;
  config.micro_batch_size = options.micro_batch_size;
  config.schedule = options.schedule.c_str();
  config.chunks = options.chunks;
  config.group = options.group;
  if (options.warm_up == kAuto)
    config.warm_up = WEFT_WARM_UP_AUTO;
  else if (!read_value(options.warm_up, &config.warm_up) || config.warm_up == WEFT_WARM_UP_AUTO)
    return {kUsage, "--warmup-depth is '" + options.warm_up + "', expected a number or auto", ""};
  config.recompute = options.recompute.c_str();
  config.memory_limit = options.memory_limit;
  config.segment = options.segment;
  config.vertical_sync = options.vertical_sync;
  if (!options.schedule_file.empty()) {
    CLI_TRY(read_text(options.schedule_file, rows_));
    if (rows_.find_first_not_of(" \t\r\n") == std::string::npos)
      return {kBadInput, options.schedule_file + ": holds no row of actions", ""};
    config.schedule_text = rows_.c_str();
  }
  CLI_TRY(cutting_.fill(options, config));
  if (!options.cluster.empty()) {
    CLI_CALL(weft_cluster_load(options.cluster.c_str(), Out(cluster_), &err));
    config.cluster = cluster_.get();
  }
  config.seed = options.seed;
  config.optimizer = &rule_;
  return {};
}

Outcome build_plan(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps, Built& out) {
  weft_error err = WEFT_ERROR_INIT;
  if (!options.plan_file.empty()) {
    CLI_CALL(weft_plan_load(out.model.get(), options.plan_file.c_str(), Out(out.plan), &err));
    return {};
  }
  PlanRequest request;
  CLI_TRY(request.fill(options, optimizer, steps));
  CLI_CALL(weft_plan_new(out.model.get(), &request.config, Out(out.plan), &err));
  return {};
}

Outcome take_ranks(PlanOptions& options) {
  if (options.cluster.empty() || options.ranks != 1) return {};
  weft_error err = WEFT_ERROR_INIT;
  ClusterPtr cluster;
  CLI_CALL(weft_cluster_load(options.cluster.c_str(), Out(cluster), &err));
  options.ranks = weft_cluster_ranks(cluster.get());
  return {};
}

Outcome settle_choices(const ModelOptions& model, PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps) {
  CLI_TRY(take_ranks(options));
  if (options.schedule != kAuto && options.warm_up != kAuto) return {};
  Built built;
  CLI_TRY(build_model(model, stages_of(options), built));
  CLI_TRY(build_plan(options, optimizer, steps, built));
  weft_plan_info info = WEFT_PLAN_INFO_INIT;
  weft_plan_describe(built.plan.get(), &info);
  if (options.schedule_file.empty()) options.schedule = info.schedule;
  options.warm_up = std::to_string(std::max(info.warm_up, 1u));
  return {};
}

Outcome make_part(const TensorPtr (&whole)[2], int64_t first, int64_t samples, TensorPtr (&out)[2]) {
  weft_error err = WEFT_ERROR_INIT;
  for (size_t i = 0; i < 2; ++i) {
    weft_desc desc = weft_tensor_desc(whole[i].get());
    constexpr int64_t kElement = 4;  // of both dtypes that presets take
    char* data = static_cast<char*>(weft_tensor_data(whole[i].get())) + first * desc.dims[1] * kElement;
    desc.dims[0] = samples;
    CLI_CALL(weft_tensor_wrap(&desc, data, nullptr, nullptr, Out(out[i]), &err));
  }
  return {};
}

Outcome make_inputs(const weft_preset_info& info, int64_t samples, TensorPtr (&out)[2]) {
  weft_error err = WEFT_ERROR_INIT;
  weft_desc desc = {};
  desc.dtype = info.tokens ? WEFT_I32 : WEFT_F32;
  desc.rank = 2;
  desc.dims[0] = samples;
  desc.dims[1] = info.tokens ? info.seq_len : info.width;
  for (TensorPtr& tensor : out) CLI_CALL(weft_tensor_new(&desc, Out(tensor), &err));
  return {};
}

}  // namespace weft::cli
