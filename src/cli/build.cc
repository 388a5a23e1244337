#include "cli/build.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/lists.h"
#include "cli/train_what.h"

namespace weft::cli {

namespace {

weft_split split_of(const std::string& how) {
  if (how.starts_with("type:")) return WEFT_SPLIT_TYPE;
  if (how == "pipedream") return WEFT_SPLIT_PIPEDREAM;
  return how == "uniform"      ? WEFT_SPLIT_UNIFORM
         : how == "parameters" ? WEFT_SPLIT_PARAMETERS
                               : WEFT_SPLIT_COST;
}

// Replaces the dropout in NAME:key=value,...
std::string with_dropout(const std::string& model, double dropout) {
  const std::string key = "dropout=", value = key + number_text(dropout);
  const size_t colon = model.find(':');
  if (colon == std::string::npos) return model + ":" + value;
  std::string keys;
  bool replaced = false;
  for (const std::string& item : split(model.substr(colon + 1))) {
    const bool is = !replaced && item.starts_with(key);
    keys += (keys.empty() ? "" : ",") + (is ? value : item);
    replaced = replaced || is;
  }
  return model.substr(0, colon + 1) + keys + (replaced ? "" : keys.empty() ? value : "," + value);
}

// Adds the keys of the adapters to MODEL.
Outcome open_adapter(const ModelOptions& options, std::string& model, Built& out) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_TRY(open_checkpoint(options.command, options.adapter, out.adapter, info));
  if (!info.adapters)
    return {kBadInput, "--adapter: '" + options.adapter + "' has no adapter_config.json",
            "name a directory that PEFT or 'weft export' wrote"};
  if (has_adapters(model))
    return {kBadInput, "--adapter: the model has adapters already", "omit --adapter"};
  model += (model.find(':') == model.npos ? ":" : ",") + std::string(info.adapters);
  return {};
}

}  // namespace

Outcome open_checkpoint(const std::string& command, const std::string& path, CheckpointPtr& out,
                        weft_checkpoint_info& info) {
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_checkpoint_open(path.c_str(), Out(out), &err));
  info = sized<weft_checkpoint_info>();
  CLI_CALL(weft_checkpoint_describe(out.get(), &info));
  // A command may open it more than once.
  static std::string told;
  if (info.warning && told != info.warning) {
    told = info.warning;
    complain(command, told);
  }
  return {};
}

// Keys that parameters of the same shapes depend on.
constexpr std::string_view kMeanings[] = {
    "heads=", "key_heads=", "epsilon=", "parallel=", "rotary="};

Outcome check_same_weights(const std::string& model, const std::string& source,
                           const std::string& its_model) {
  const auto items = [](const std::string& text) {
    return split(text.substr(std::min(text.find(':'), text.size() - 1) + 1));
  };
  const std::vector<std::string> wanted = items(model);
  for (const std::string& item : items(its_model)) {
    const std::string key = item.substr(0, item.find('=') + 1);
    if (std::find(std::begin(kMeanings), std::end(kMeanings), key) == std::end(kMeanings)) continue;
    for (const std::string& own : wanted)
      if (own.starts_with(key) && own != item)
        return {kBadInput, "--init: '" + source + "' has " + item + ", MODEL has " + own,
                "use its " + key.substr(0, key.size() - 1) + " in MODEL"};
  }
  return {};
}

void add_checkpoint_options(Parser& parser, std::string& checkpoint, std::string& adapter) {
  parser
      .add("CHECKPOINT", checkpoint,
           "A checkpoint, a directory of checkpoints (the latest is used), or a directory of "
           "Transformers")
      .required()
      .type("");
  parser
      .add("--adapter", adapter,
           "Add the adapters in this directory of PEFT to the model of CHECKPOINT")
      .type("DIR");
}

Outcome load_weights(const Built& built, weft_run* run) {
  weft_error err = sized<weft_error>();
  for (const CheckpointPtr* from : {&built.checkpoint, &built.adapter})
    if (*from) CLI_CALL(weft_run_load(run, from->get(), WEFT_LOAD_WEIGHTS, &err));
  return {};
}

uint32_t stages_of(const PlanOptions& options) {
  if (!options.stage_replicas.empty())
    return static_cast<uint32_t>(split(options.stage_replicas).size());
  const uint32_t ranks = options.pipeline_ranks();
  if (options.chunks) return ranks * options.chunks;
  uint32_t chunks = 0;
  weft_schedule_info info = sized<weft_schedule_info>();
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (options.schedule == info.name || options.schedule == kAuto)
      chunks = std::max(chunks, info.chunks ? info.chunks : 2);
  return ranks * std::max(chunks, 1u);
}

Outcome only_adapters(const std::string& path) {
  return {kBadInput, "'" + path + "' contains only adapters",
          "name the model that they are for; train, generate, eval and export take this directory "
          "with --adapter"};
}

Outcome build_model(const ModelOptions& options, uint32_t stages, Built& out) {
  std::string text = options.model;
  std::error_code ignored;
  if (const std::string name = text.substr(0, text.find(':'));
      options.is_checkpoint || name.find('/') != std::string::npos ||
      std::filesystem::is_directory(text, ignored)) {
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    CLI_TRY(open_checkpoint(options.command, text, out.checkpoint, info));
    if (!info.model && info.adapters) return only_adapters(text);
    if (!info.model)
      return {kBadInput,
              "'" + text +
                  (info.weights_only ? "' contains only weights, and does not name their model"
                                     : "' does not name its model"),
              options.is_checkpoint
                  ? "'weft train MODEL --init FILE --steps 0 --checkpoint DIR' makes a checkpoint "
                    "of them"
                  : "use the name of the model as MODEL, and the file with --init"};
    text = info.model;
  }
  return make_preset(text, options, stages, out);
}

Outcome make_preset(std::string text, const ModelOptions& options, uint32_t stages, Built& out) {
  weft_error err = sized<weft_error>();
  if (options.dropout >= 0) text = with_dropout(text, options.dropout);
  if (!options.adapter.empty()) CLI_TRY(open_adapter(options, text, out));
  TrainWhat what;
  if (const std::string fault = read_train_what(options.train, what); !fault.empty())
    return {kUsage, "--train: " + fault, ""};
  CLI_TRY(add_adapters(what, text));
  const auto make = options.packed ? weft_model_packed : weft_model_preset;
  CLI_CALL(make(text.c_str(), options.seq_len, stages, Out(out.model), &out.info, &err));
  // The whole context of newer models, of 131072 tokens and more, needs terabytes.
  constexpr int64_t kDefaultLength = 1024;
  if (options.seq_len == 0 && out.info.context > kDefaultLength)
    CLI_CALL(make(text.c_str(), kDefaultLength, stages, Out(out.model), &out.info, &err));
  return {};
}

Outcome Cutting::fill(const PlanOptions& options, weft_plan_config& config) {
  weft_error err = sized<weft_error>();
  names = split(options.cut);
  for (const std::string& name : names) cuts.push_back(name.c_str());
  config.cuts = cuts.data();
  config.n_cuts = static_cast<uint32_t>(cuts.size());
  config.split = split_of(options.partition);
  if (config.split == WEFT_SPLIT_TYPE) config.split_type = options.partition.c_str() + 5;
  if (!options.profile.empty())
    CLI_CALL(weft_profile_load(options.profile.c_str(), Out(profile), &err));
  config.profile = profile.get();
  for (const std::string& text : split(options.speeds)) {
    double speed = 0;
    if (!read_value(text, &speed))
      return {kUsage, "--speeds: '" + text + "', expected a number", ""};
    speeds.push_back(speed);
  }
  if (!speeds.empty() && speeds.size() != options.ranks)
    return {kUsage,
            "--speeds has " + std::to_string(speeds.size()) +
                " numbers, expected one for each of " + std::to_string(options.ranks) + " ranks",
            ""};
  if (!speeds.empty()) config.speeds = speeds.data();
  config.n_speeds = static_cast<uint32_t>(speeds.size());
  constexpr double kMostLatency = 1e9;
  if (options.link_latency > kMostLatency)
    return {kUsage, "--link-latency is more than 1e9 seconds", ""};
  config.link_latency_ns = std::llround(options.link_latency * 1e9);
  config.link_bandwidth = options.link_bandwidth;
  return {};
}

namespace {

// A field of a configuration, from the value of an option that has been checked.
template <typename T>
void set(T& to, const T& from) {
  to = from;
}
void set(uint32_t& to, bool from) { to = from; }
void set(const char*& to, const std::string& from) { to = from.c_str(); }
void set(weft_rule& to, const std::string& from) { to = rule_named(from); }
void set(weft_rate_curve& to, const std::string& from) { to = curve_named(from); }
void set(uint32_t& to, const std::string& from) {
  to = WEFT_WARM_UP_AUTO;
  if (from != kAuto) (void)read_value(from, &to);
}

}  // namespace

Outcome PlanRequest::fill(const PlanOptions& options, const OptimizerOptions& optimizer,
                          uint64_t steps) {
  weft_error err = sized<weft_error>();
#define OPTIMIZER_OPTION(field, ...) set(rule_.field, optimizer.field);
#define PLAN_OPTION(field, ...) set(config.field, options.field);
#include "plan/settings.def"
  // --steps 0 trains nothing; the curve must still be valid.
  if (rule_.curve != WEFT_RATE_CONSTANT) rule_.total = steps ? steps : optimizer.warmup + 1;
  if (options.data > 0) {
    axes_[0] = {"data", options.data, 0};
    axes_[1] = {"stage", options.pipeline_ranks(), 0};
    axes_[2] = {"tensor", options.shard_ranks, 0};
  } else {
    axes_[0] = {kAuto, options.ranks, 0};
  }
  config.axes = axes_;
  config.n_axes = options.data > 0 ? 3 : 1;
  config.ranks = 1;  // the axes replace it
  config.step_kinds = options.step_kinds;
  config.seed = options.seed;
  if (!options.schedule_file.empty()) {
    CLI_TRY(read_text(options.schedule_file, kMostText, rows_));
    if (rows_.find_first_not_of(" \t\r\n") == std::string::npos)
      return {kBadInput, options.schedule_file + ": contains no row of actions", ""};
    config.schedule_text = rows_.c_str();
  }
  CLI_TRY(cutting_.fill(options, config));
  CLI_TRY(groups_.fill(optimizer, config));
  if (!options.cluster.empty()) {
    CLI_CALL(weft_cluster_load(options.cluster.c_str(), Out(cluster_), &err));
    config.cluster = cluster_.get();
  }
  config.optimizer = &rule_;
  return {};
}

Outcome build_plan(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps,
                   Built& out) {
  weft_error err = sized<weft_error>();
  if (!options.plan_file.empty()) {
    CLI_CALL(weft_plan_load(out.model.get(), options.plan_file.c_str(), Out(out.plan), &err));
    return {};
  }
  PlanRequest request;
  CLI_TRY(request.fill(options, optimizer, steps));
  const weft_status status = weft_plan_new(out.model.get(), &request.config, Out(out.plan), &err);
  if (status >= 0) return {};
  return about_file(failed(status, err), options.schedule_file, {"schedule", "the schedule"});
}

Outcome take_ranks(PlanOptions& options) {
  if (options.cluster.empty() || options.ranks != 1 ||
      (!options.mesh.empty() && options.mesh != kAuto))
    return {};
  weft_error err = sized<weft_error>();
  ClusterPtr cluster;
  CLI_CALL(weft_cluster_load(options.cluster.c_str(), Out(cluster), &err));
  options.ranks = weft_cluster_ranks(cluster.get());
  return {};
}

std::string schedule_text(const weft_plan_info& info) {
  const std::string name = info.schedule;
  return info.group > 0 ? name + " group " + std::to_string(info.group) : name;
}

Outcome settle_choices(const ModelOptions& model, PlanOptions& options,
                       const OptimizerOptions& optimizer, uint64_t steps) {
  CLI_TRY(take_ranks(options));
  if (options.schedule != kAuto && options.warm_up != kAuto) return {};
  Built built;
  CLI_TRY(build_model(model, stages_of(options), built));
  CLI_TRY(build_plan(options, optimizer, steps, built));
  weft_plan_info info = sized<weft_plan_info>();
  weft_plan_describe(built.plan.get(), &info);
  if (options.schedule_file.empty()) options.schedule = info.schedule;
  options.warm_up = std::to_string(std::max(info.warm_up, 1u));
  if (info.group > 0) options.group = info.group;
  return {};
}

Outcome make_part(std::span<const TensorPtr> whole, int64_t first, int64_t samples,
                  std::span<TensorPtr> out) {
  weft_error err = sized<weft_error>();
  for (size_t i = 0; i < whole.size(); ++i) {
    weft_desc desc = weft_tensor_desc(whole[i].get());
    constexpr int64_t kElement = 4;  // of both types of inputs
    char* data =
        static_cast<char*>(weft_tensor_data(whole[i].get())) + first * desc.dims[1] * kElement;
    desc.dims[0] = samples;
    CLI_CALL(weft_tensor_wrap(&desc, data, nullptr, nullptr, Out(out[i]), &err));
  }
  return {};
}

Outcome make_inputs(const weft_preset_info& info, int64_t samples, std::span<TensorPtr> out) {
  weft_error err = sized<weft_error>();
  weft_desc desc = {};
  desc.dtype = info.tokens ? WEFT_I32 : WEFT_F32;
  desc.n_dims = 2;
  desc.dims[0] = samples;
  desc.dims[1] = info.tokens ? info.seq_len : info.width;
  for (TensorPtr& tensor : out) CLI_CALL(weft_tensor_new(&desc, Out(tensor), &err));
  return {};
}

}  // namespace weft::cli
