#include "cli/saved_plan.h"

#include <algorithm>

#include "cli/files.h"
#include "cli/parameter_groups.h"
#include "cli/read_json.h"
#include "cli/train_what.h"

namespace weft::cli {

namespace {

// Returns the first key that is missing or has a wrong value, or an empty string.
class PlanFileReader {
 public:
  explicit PlanFileReader(const nlohmann::json& plan)
      : plan_(plan), rule_(has(plan, "optimizer") ? plan["optimizer"] : plan) {}

  std::string read(PlanOptions& o, OptimizerOptions& rule, uint64_t& steps) {
#define PLAN_OPTION(field, ...) read(plan_, #field, o.field);
#define OPTIMIZER_OPTION(field, ...) read(rule_, #field, rule.field);
#include "plan/settings.def"
    read(plan_, "seed", o.seed);
    uint32_t data = 1, shared = 1;
    read(plan_, "data", data);
    read(plan_, "shard_ranks", shared);
    const uint64_t pipelines = uint64_t{data} * shared;
    if (pipelines == 0 || o.ranks % pipelines != 0)
      fail(std::to_string(o.ranks) + " ranks are not a multiple of 'data' times 'shard_ranks', " +
           std::to_string(pipelines));
    o.mesh.clear();  // of a checkpoint
    o.cluster.clear();
    if (pipelines > 1)
      o.mesh = "data=" + std::to_string(data) + ",stage=" + std::to_string(o.ranks / pipelines) +
               ",tensor=" + std::to_string(shared);
    if (o.schedule == "written") o.schedule = "1f1b";  // no option can name its rows
    if (o.warm_up == "0") o.warm_up = "1";             // of a schedule without a warm-up
    cuts(o.cut);
    if (!adds_adapters(rule.train)) rule.train = "all";
    rule.freeze.clear();
    groups(rule.param_groups);
    if (rule.curve != "constant") read(rule_, "total", steps);
    return fault_;
  }

 private:
  void fail(const std::string& fault) {
    if (fault_.empty()) fault_ = fault;
  }

  static bool has(const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key);
  }

  template <typename T>
  void read(const nlohmann::json& from, const char* key, T& to) {
    if (!has(from, key))
      fail(std::string("the key '") + key + "' is missing");
    else if (!take(from[key], to))
      fail(std::string("the key '") + key + "' cannot be " + shown(from[key]));
  }
  static std::string shown(const nlohmann::json& value) {
    constexpr size_t kMost = 64;  // characters
    if (value.is_structured()) return std::string("an ") + value.type_name();
    const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
    return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  }
  static bool take(const nlohmann::json& from, bool& to) {
    if (from.is_boolean()) to = from.get<bool>();
    return from.is_boolean();
  }
  static bool take(const nlohmann::json& from, double& to) {
    if (from.is_number()) to = from.get<double>();
    return from.is_number();
  }
  static bool take(const nlohmann::json& from, uint64_t& to) {
    if (from.is_number_unsigned()) to = from.get<uint64_t>();
    return from.is_number_unsigned();
  }
  static bool take(const nlohmann::json& from, uint32_t& to) {
    uint64_t number = 0;
    if (!take(from, number) || number > (1u << 20)) return false;
    to = static_cast<uint32_t>(number);
    return true;
  }
  // The option may take a number as text.
  static bool take(const nlohmann::json& from, std::string& to) {
    uint32_t number = 0;
    if (from.is_string())
      to = from.get<std::string>();
    else if (take(from, number))
      to = std::to_string(number);
    else
      return false;
    return true;
  }
  void cuts(std::string& to) {
    to.clear();
    if (has(plan_, "cuts") && plan_["cuts"].is_array())
      for (const auto& cut : plan_["cuts"])
        to += (to.empty() ? "" : ",") + (cut.is_string() ? cut.get<std::string>() : std::string());
    else
      fail("the key 'cuts' is missing or no list");
  }
  // Absent if the plan has none.
  void groups(std::string& to) {
    to.clear();
    std::vector<ParameterGroup> all;
    if (!has(plan_, "groups")) return;
    if (!plan_["groups"].is_array()) fail("the key 'groups' is no list");
    for (const nlohmann::json& item : plan_["groups"]) {
      ParameterGroup& group = all.emplace_back();
      read(item, "pattern", group.pattern);
      read(item, "frozen", group.frozen);
      read(item, "rate_factor", group.rate_factor);
      read(item, "weight_decay_factor", group.weight_decay_factor);
    }
    to = groups_text(all);
  }
  const nlohmann::json& plan_;
  const nlohmann::json& rule_;
  std::string fault_;
};

}  // namespace

Outcome take_plan_file(const StoredOptions& settings, PlanOptions& options,
                       OptimizerOptions& optimizer, uint64_t& steps) {
  if (options.plan_file.empty()) return {};
  std::vector<std::string> names = {"schedule-file", "partition", "cut",        "seed",
                                    "mesh",          "freeze",    "param-group"};
#define PLAN_OPTION(field, value, type, section, option, ...) \
  names.push_back(StoredOptions::name_of(option));
#define OPTIMIZER_OPTION(field, value, type, section, option, ...) \
  names.push_back(StoredOptions::name_of(option));
#include "plan/settings.def"
  // The plan is that of a model with adapters, which the option adds.
  if (!adds_adapters(optimizer.train)) names.push_back("train");
  CLI_TRY(settings.check_not_combined(names, "--plan, which contains it"));
  const char* const made = "--plan, which is already made";
  CLI_TRY(settings.check_not_combined(
      {"cluster", "profile", "speeds", "link-latency", "link-bandwidth"}, made));
  std::string text;
  CLI_TRY(read_text(options.plan_file, kMostText, text));
  const nlohmann::json plan = read_json(text);
  uint64_t total = steps;
  const std::string fault =
      text.empty() ? "it is empty"
      : plan.is_discarded()
          ? "expected JSON of at most " + std::to_string(kMostJsonLevels) + " levels"
          : PlanFileReader(plan).read(options, optimizer, total);
  if (!fault.empty())
    return {kBadInput, "'" + options.plan_file + "' is not a saved plan: " + fault,
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
