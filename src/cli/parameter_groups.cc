#include "cli/parameter_groups.h"

#include <algorithm>
#include <cmath>

#include "cli/handles.h"
#include "cli/json.h"
#include "cli/lists.h"
#include "cli/parser.h"
#include "cli/train_what.h"

namespace weft::cli {

namespace {

std::string read_setting(const std::string& text, ParameterGroup& group) {
  group.frozen = group.frozen || text == "frozen";
  if (text == "frozen") return "";
  const size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  double* const to = key == "rate"    ? &group.rate_factor
                     : key == "decay" ? &group.weight_decay_factor
                                      : nullptr;
  if (!to || equals == text.size())
    return "'" + text + "', expected rate=X, decay=X or frozen after PATTERN:";
  const bool good = read_value(text.substr(equals + 1), to) && std::isfinite(*to) && *to >= 0;
  return good ? "" : "'" + text + "', expected a finite number of 0 or more";
}

}  // namespace

std::string read_groups(const std::string& text, std::vector<ParameterGroup>& out) {
  for (const std::string& item : split(text, ';')) {
    ParameterGroup& group = out.emplace_back();
    const size_t colon = item.rfind(':');
    group.pattern = item.substr(0, colon);
    if (group.pattern.empty()) return "'" + item + "', expected PATTERN:rate=X,decay=X";
    if (colon == item.npos) continue;
    for (const std::string& setting : split(item.substr(colon + 1)))
      if (const std::string fault = read_setting(setting, group); !fault.empty()) return fault;
  }
  return "";
}

std::string check_groups(const std::string& text) {
  std::vector<ParameterGroup> groups;
  return read_groups(text, groups);
}

std::string groups_text(const std::vector<ParameterGroup>& groups) {
  std::string out;
  for (const ParameterGroup& group : groups)
    out += (out.empty() ? "" : ";") + group.pattern + ":rate=" + number_text(group.rate_factor) +
           ",decay=" + number_text(group.weight_decay_factor) + (group.frozen ? ",frozen" : "");
  return out;
}

Outcome ParameterGroups::fill(const OptimizerOptions& options, weft_plan_config& config) {
  // A checkpoint may contain other texts than the options accept.
  TrainWhat what;
  if (const std::string fault = read_train_what(options.train, what); !fault.empty())
    return {kUsage, "--train: " + fault, ""};
  if (!what.patterns.empty()) list.push_back({"*", true});
  for (const std::string& pattern : what.patterns) list.push_back({pattern});
  for (const std::string& pattern : split(options.freeze)) list.push_back({pattern, true});
  if (const std::string fault = read_groups(options.param_groups, list); !fault.empty())
    return {kUsage, "--param-group: " + fault, ""};
  for (const ParameterGroup& group : list) {
    weft_parameter_group& to = array.emplace_back(defaults(weft_parameter_group_init));
    to.pattern = group.pattern.c_str();
    to.frozen = group.frozen;
    to.rate_factor = group.rate_factor;
    to.weight_decay_factor = group.weight_decay_factor;
  }
  config.groups = array.data();
  config.n_groups = static_cast<uint32_t>(array.size());
  return {};
}

}  // namespace weft::cli
