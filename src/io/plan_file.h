// A plan as a file: the first nodes of the stages, the schedule and the settings. They determine
// the rest of the plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

// Settings by name. The owner of the settings checks names and values.
using FileValue = std::variant<bool, uint64_t, double, std::string>;
using FileValues = std::map<std::string, FileValue>;
// For an error: the kind of a value, "a string", and the value itself.
const char* value_kind(const FileValue& value);
std::string value_text(const FileValue& value);

struct PlanFile {
  std::string weft;   // who wrote it
  Digest model_hash;  // a plan is valid only for this model
  std::optional<Digest>
      plan_hash;  // of the saved plan; none: the resulting plan is not compared with a hash
  std::vector<std::string>
      rows;  // the schedule as text, a row per rank; empty: the setting "schedule" determines it
  std::vector<std::string> cuts;  // the first nodes of stages 1, 2, ...
  FileValues settings, optimizer;
  std::vector<FileValues> groups;  // of parameters
  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};

// Fails for text that is not UTF-8.
Result<std::string> print_plan(const PlanFile& plan);
Result<PlanFile> parse_plan(std::string_view text);

}  // namespace weft
