// Common parts of the generators of schedules: the checks of sizes, the stages of each rank, and
// rows that are written turn by turn.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace weft {

// The sizes that a generator uses. All other sizes are refused, so that none is ignored.
struct Form {
  std::string_view name;  // as in schedules.def, which says how many stages a rank has
  int32_t kinds = 2;      // actions per stage and micro-batch
  bool v_shaped = false;  // rank r has stages r and 2p - 1 - r; else every p-th from r on
  bool takes_group = false, takes_warm_up = false;
};

// `kinds` actions per stage and micro-batch, and at most the maximum number in all.
Status check_sizes(const ScheduleSizes& sizes, int32_t chunks, int32_t kinds);

// A schedule with stages on ranks and empty rows with reserved memory.
// Chunks are stages / ranks.
Result<Schedule> begin_schedule(const Form& form, const ScheduleSizes& sizes);

// A micro-batch in one of the stages of the rank, and its turn in the order of the rank.
struct Item {
  int64_t turn = 0;
  int32_t stage = 0, micro_batch = 0;
};

// Turn after turn: the forward of that turn, then the backward that is `lag` turns behind its own;
// if I and W are separate, W is `weight_lag` turns behind its own. Both lists ascend by turn.
void write_fused(std::vector<Action>& row, const std::vector<Item>& forward,
                 const std::vector<Item>& back, int64_t lag);
void write_split(std::vector<Action>& row, const std::vector<Item>& forward,
                 const std::vector<Item>& back, int64_t lag, int64_t weight_lag);

}  // namespace weft
