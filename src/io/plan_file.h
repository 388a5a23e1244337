// A plan as a file: where the stages of a model begin, its schedule and its settings. What it
// leaves out follows from these.
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

// Settings by name. Which there are, and what each may be, is for their owner to say.
using FileValue = std::variant<bool, uint64_t, double, std::string>;
using FileValues = std::map<std::string, FileValue>;
// What there is, for an error: "a string".
const char* value_kind(const FileValue& value);

struct PlanFile {
  std::string weft;   // who wrote it
  Digest model_hash;  // a plan is valid only for this model
  std::optional<Digest>
      plan_hash;  // of the plan as it was saved; none: whatever plan the rest makes
  std::vector<std::string>
      rows;  // the schedule written out, a row per rank; empty: as the setting "schedule" makes it
  std::vector<std::string> cuts;  // the first nodes of stages 1, 2, ...
  FileValues settings, optimizer;
  friend bool operator==(const PlanFile&, const PlanFile&) = default;
};

// Fails for text that is not UTF-8.
Result<std::string> print_plan(const PlanFile& plan);
Result<PlanFile> parse_plan(std::string_view text);

}  // namespace weft
