// Generators of schedules with one stage per rank: pure functions from sizes to rows. Micro-batches ascend in every one of them,
// so that gradients are summed in the order of a run without a pipeline.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "plan/schedule.h"

namespace weft {
namespace {

// A schedule is written out in full; sizes beyond this are a slip of the pen and would only end in exhausted memory.
constexpr int64_t kMaxActions = int64_t{1} << 26;

Status check_sizes(const ScheduleSizes& sizes, int64_t actions_per_micro_batch) {
  if (sizes.ranks < 1) return Status(Code::invalid, cat("ranks is ", sizes.ranks, ", expected 1 or more"));
  if (sizes.micro_batches < 1)
    return Status(Code::invalid, cat("micro_batches is ", sizes.micro_batches, ", expected 1 or more"));
  // Two positive 31-bit numbers and a small factor: the product fits 64 bits.
  const int64_t actions = actions_per_micro_batch * sizes.ranks * sizes.micro_batches;
  if (actions > kMaxActions)
    return Status(Code::invalid, cat(sizes.ranks, " ranks and ", sizes.micro_batches, " micro-batches make ", actions,
                                     " actions, expected at most ", kMaxActions));
  return {};
}

// Stage r on rank r; rows empty but with room for what will be in them.
Schedule straight(const ScheduleSizes& sizes, bool forward_only) {
  Schedule schedule;
  schedule.stages = sizes.ranks;
  schedule.micro_batches = sizes.micro_batches;
  schedule.forward_only = forward_only;
  schedule.rank_of_stage.resize(static_cast<size_t>(sizes.ranks));
  std::iota(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), 0);
  schedule.rows.resize(static_cast<size_t>(sizes.ranks));
  for (auto& row : schedule.rows) row.reserve(static_cast<size_t>(sizes.micro_batches) * (forward_only ? 1 : 2));
  return schedule;
}

// `warm_up` forwards, then forward and backward in turn, then the backwards that are left.
void fill_row(std::vector<Action>& row, int32_t stage, int32_t micro_batches, int32_t warm_up) {
  for (int32_t k = 0; k < warm_up; ++k) row.push_back({stage, Kind::F, k});
  for (int32_t k = 0; k < micro_batches; ++k) {
    if (k < micro_batches - warm_up) row.push_back({stage, Kind::F, warm_up + k});
    row.push_back({stage, Kind::B, k});
  }
}

}  // namespace

Result<Schedule> make_gpipe(const ScheduleSizes& sizes) {
  WEFT_TRY(check_sizes(sizes, 2));
  Schedule schedule = straight(sizes, false);
  for (int32_t r = 0; r < sizes.ranks; ++r)
    fill_row(schedule.rows[static_cast<size_t>(r)], r, sizes.micro_batches, sizes.micro_batches);
  return schedule;
}

Result<Schedule> make_1f1b(const ScheduleSizes& sizes) {
  WEFT_TRY(check_sizes(sizes, 2));
  Schedule schedule = straight(sizes, false);
  for (int32_t r = 0; r < sizes.ranks; ++r) {
    // The last rank can turn a micro-batch round at once; each rank before it needs one more in flight to stay busy.
    const int32_t warm_up = std::min(sizes.ranks - 1 - r, sizes.micro_batches);
    fill_row(schedule.rows[static_cast<size_t>(r)], r, sizes.micro_batches, warm_up);
  }
  return schedule;
}

Result<Schedule> make_forward(const ScheduleSizes& sizes) {
  WEFT_TRY(check_sizes(sizes, 1));
  return make_forward(straight(sizes, true).rank_of_stage, sizes.ranks, sizes.micro_batches);
}

// In lock step: a rank runs the deepest of its stages whose next micro-batch is there, so that what has begun is finished first.
Result<Schedule> make_forward(const std::vector<int32_t>& rank_of_stage, int32_t ranks, int32_t micro_batches) {
  const auto stages = static_cast<int32_t>(rank_of_stage.size());
  WEFT_TRY(check_sizes({.ranks = stages, .micro_batches = micro_batches}, 1));
  Schedule schedule{.stages = stages, .micro_batches = micro_batches, .forward_only = true, .rank_of_stage = rank_of_stage, .rows = {}};
  schedule.rows.resize(static_cast<size_t>(ranks));
  std::vector<std::vector<int32_t>> stages_of(static_cast<size_t>(ranks));   // descending
  for (int32_t s = stages; s-- > 0;) stages_of[static_cast<size_t>(rank_of_stage[static_cast<size_t>(s)])].push_back(s);
  std::vector<int32_t> done(rank_of_stage.size(), 0), before = done;   // micro-batches through each stage, now and a slot ago
  for (int64_t left = int64_t{stages} * micro_batches; left > 0; before = done)
    for (size_t r = 0; r < stages_of.size(); ++r)
      for (int32_t s : stages_of[r]) {
        const auto i = static_cast<size_t>(s);
        if (done[i] == micro_batches || (s > 0 && before[i - 1] <= done[i])) continue;
        schedule.rows[r].push_back({s, Kind::F, done[i]++});
        --left;
        break;
      }
  return schedule;
}

}  // namespace weft
