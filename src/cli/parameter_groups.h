// Parameter groups as text: "PATTERN,..." of --freeze, and "PATTERN:rate=X,decay=Y,frozen;..." of
// --param-group.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/outcome.h"

namespace weft::cli {

struct ParameterGroup {
  std::string pattern;
  bool frozen = false;
  double rate_factor = 1, weight_decay_factor = 1;
};

// Appends the groups of a value of --param-group; returns the fault, or an empty text.
std::string read_groups(const std::string& text, std::vector<ParameterGroup>& out);
std::string check_groups(const std::string& text);
// The value of --param-group.
std::string groups_text(const std::vector<ParameterGroup>& groups);

// The groups of the three options; the array refers to this object. Those of --train come first,
// those of --param-group last.
struct ParameterGroups {
  std::vector<ParameterGroup> list;
  std::vector<weft_parameter_group> array;
  Outcome fill(const OptimizerOptions& options, weft_plan_config& config);
};

}  // namespace weft::cli
