// A schedule: for each rank the actions it runs, in order. Data, made by a pure function; printable, comparable, checkable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

enum class Kind : uint8_t {
  F,  // forward
  I,  // input gradients
  W,  // weight gradients
  B,  // I and W, fused
};
char kind_letter(Kind kind);

struct Action {
  int32_t stage = 0;
  Kind kind = Kind::F;
  int32_t micro_batch = 0;
  friend bool operator==(const Action&, const Action&) = default;
  std::string text() const;  // "2F0"
};

struct Schedule {
  int32_t stages = 0;
  int32_t micro_batches = 0;
  bool forward_only = false;
  std::vector<int32_t> rank_of_stage;       // [stages]
  std::vector<std::vector<Action>> rows;    // [ranks]
  friend bool operator==(const Schedule&, const Schedule&) = default;

  int32_t ranks() const { return static_cast<int32_t>(rows.size()); }
  // One row per rank: "0F0 0F1 0B0 0B1\n...". parse_schedule reads it back.
  std::string text() const;
};

struct ScheduleSizes {
  int32_t ranks = 1, micro_batches = 1;
};

// A row of the table of schedules (schedules.def): name, one-line description, generator.
struct ScheduleKind {
  std::string_view name, about;
  Result<Schedule> (*make)(const ScheduleSizes& sizes);
};
const ScheduleKind* find_schedule(std::string_view name);
const std::vector<ScheduleKind>& all_schedules();

Result<Schedule> make_gpipe(const ScheduleSizes& sizes);     // GPipe (Huang et al. 2019), backward ascending
Result<Schedule> make_1f1b(const ScheduleSizes& sizes);      // PipeDream-flush / 1F1B (Narayanan et al. 2021)
Result<Schedule> make_forward(const ScheduleSizes& sizes);   // inference and evaluation

Result<Schedule> parse_schedule(std::string_view text);

}  // namespace weft
