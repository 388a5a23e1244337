#include "cli/saved_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/build.h"

namespace weft::cli {

namespace {

// Returns the first key that is missing or has a wrong value, or an empty string.
class PlanFileReader {
 public:
  explicit PlanFileReader(const nlohmann::json& plan)
      : plan_(plan), rule_(has(plan, "optimizer") ? plan["optimizer"] : plan) {}

  std::string read(PlanOptions& o, OptimizerOptions& rule, uint64_t& steps) {
    uint32_t warm_up = 0, data = 1, shared = 1;
    number("ranks", o.ranks);
    number("data", data);
    number("shard_ranks", shared);
    if (data > 1 || shared > 1)
      o.mesh = "data=" + std::to_string(data) +
               ",stage=" + std::to_string(o.ranks / std::max(data * shared, 1u)) +
               ",tensor=" + std::to_string(shared);
    number("micro_batches", o.micro_batches);
    number("micro_batch_size", o.micro_batch_size);
    number("chunks", o.chunks);
    number("group", o.group);
    number("warm_up", warm_up);
    number("memory_limit", o.memory_limit);
    number("segment", o.segment);
    number("gradient_groups", o.gradient_groups);
    number("tensor", o.tensor);
    number("seed", o.seed);
    take(plan_, "schedule", o.schedule, has(plan_, "schedule") && plan_["schedule"].is_string());
    take(plan_, "recompute", o.recompute,
         has(plan_, "recompute") && plan_["recompute"].is_string());
    take(plan_, "vertical_sync", o.vertical_sync,
         has(plan_, "vertical_sync") && plan_["vertical_sync"].is_boolean());
    if (o.schedule == "written")
      o.schedule = "1f1b";  // no option can name the rows of a written schedule
    o.warm_up = std::to_string(std::max(warm_up, 1u));
    cuts(o.cut);
    optimizer(rule, steps);
    return fault_;
  }

 private:
  static bool has(const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key);
  }

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
      for (const auto& cut : plan_["cuts"])
        to += (to.empty() ? "" : ",") + (cut.is_string() ? cut.get<std::string>() : std::string());
    else if (fault_.empty())
      fault_ = "cuts";
  }
  void optimizer(OptimizerOptions& to, uint64_t& steps) {
    for (const auto& [key, value] :
         {std::pair{"rate", &to.rate}, {"weight_decay", &to.weight_decay}, {"clip", &to.clip}})
      take(rule_, key, *value, has(rule_, key) && rule_[key].is_number());
    for (const auto& [key, value] : {std::pair{"rule", &to.rule}, {"curve", &to.curve}})
      take(rule_, key, *value, has(rule_, key) && rule_[key].is_string());
    take(rule_, "warmup", to.warmup, has(rule_, "warmup") && rule_["warmup"].is_number_unsigned());
    if (to.curve == "cosine")
      take(rule_, "total", steps, has(rule_, "total") && rule_["total"].is_number_unsigned());
  }

  const nlohmann::json& plan_;
  const nlohmann::json& rule_;
  std::string fault_;
};

}  // namespace

Outcome take_plan_file(const StoredOptions& settings, PlanOptions& options,
                       OptimizerOptions& optimizer, uint64_t& steps) {
  if (options.plan_file.empty()) return {};
  for (const char* name : {"ranks",         "schedule",
                           "schedule-file", "chunks",
                           "group",         "warmup-depth",
                           "recompute",     "memory-limit",
                           "segment",       "vertical-sync",
                           "micro-batches", "micro-batch-size",
                           "partition",     "cut",
                           "profile",       "speeds",
                           "link-latency",  "link-bandwidth",
                           "optimizer",     "lr",
                           "lr-schedule",   "warmup",
                           "weight-decay",  "clip",
                           "seed",          "gradient-groups",
                           "mesh",          "tensor"})
    if (settings.given(name))
      return {kUsage,
              "--" + std::string(name) + " cannot be combined with --plan, which contains it",
              "remove one of the two"};
  if (!options.cluster.empty())
    return {kUsage, "--cluster cannot be combined with --plan, which is already made",
            "remove one of the two"};
  std::string text;
  CLI_TRY(read_text(options.plan_file, text));
  const nlohmann::json plan = nlohmann::json::parse(text, nullptr, false);
  uint64_t total = steps;
  const std::string fault = PlanFileReader(plan).read(options, optimizer, total);
  if (!fault.empty())
    return {kBadInput,
            "'" + options.plan_file + "' is not a saved plan: the key '" + fault +
                "' is missing or has a wrong value",
            "'weft plan --save FILE' writes a plan"};
  if (total != steps && settings.given("steps"))
    return {kUsage,
            "--steps is " + std::to_string(steps) + ", expected " + std::to_string(total) +
                ", the last step of the learning rate in --plan",
            "remove --steps"};
  steps = total;
  return {};
}

}  // namespace weft::cli
