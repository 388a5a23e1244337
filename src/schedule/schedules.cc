// Generators of schedules with one stage per rank: pure functions from sizes to rows. Micro-batches
// ascend in every one of them, so that gradients are summed in the order of a run without a
// pipeline.
#include <algorithm>

#include "schedule/rows.h"

namespace weft {
namespace {

// `warm_up` forwards, then forward and backward in turn, then the remaining backwards.
void fill_row(std::vector<Action>& row, int32_t stage, int32_t micro_batches, int32_t warm_up) {
  for (int32_t k = 0; k < warm_up; ++k) row.push_back({stage, Kind::F, k});
  for (int32_t k = 0; k < micro_batches; ++k) {
    if (k < micro_batches - warm_up) row.push_back({stage, Kind::F, warm_up + k});
    row.push_back({stage, Kind::B, k});
  }
}

}  // namespace

Result<Schedule> make_gpipe(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule schedule, begin_schedule({.name = "gpipe"}, sizes));
  for (int32_t r = 0; r < sizes.ranks; ++r)
    fill_row(schedule.rows[static_cast<size_t>(r)], r, sizes.micro_batches, sizes.micro_batches);
  return schedule;
}

Result<Schedule> make_1f1b(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule schedule,
                  begin_schedule({.name = "1f1b", .takes_warm_up = true}, sizes));
  for (int32_t r = 0; r < sizes.ranks; ++r) {
    // The last rank can run a backward directly after its forward. Each rank before it needs one
    // more micro-batch in flight to stay busy, and another one if a round trip of messages takes as
    // long as a forward and a backward.
    const int64_t wanted = std::max<int64_t>(sizes.warm_up, 1) * (sizes.ranks - 1 - r);
    const auto warm_up = static_cast<int32_t>(std::min<int64_t>(wanted, sizes.micro_batches));
    fill_row(schedule.rows[static_cast<size_t>(r)], r, sizes.micro_batches, warm_up);
  }
  return schedule;
}

// 1f1b with W apart from I: those of `group` micro-batches follow one another, so that each weight
// gradient is one product with as many more rows.
Result<Schedule> make_1f1b_delayed_w(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(
      Schedule schedule,
      begin_schedule({.name = "1f1b-delayed-w", .kinds = 3, .takes_group = true}, sizes));
  const int32_t group = sizes.group > 0 ? sizes.group : kDelayedGroup;
  for (int32_t r = 0; r < sizes.ranks; ++r) {
    std::vector<Action> fused;
    fill_row(fused, r, sizes.micro_batches, std::min(sizes.ranks - 1 - r, sizes.micro_batches));
    auto& row = schedule.rows[static_cast<size_t>(r)];
    int32_t next = 0;  // W
    for (const Action& action : fused) {
      row.push_back(action);
      if (action.kind == Kind::F) continue;
      row.back().kind = Kind::I;
      const int32_t end = action.micro_batch + 1;
      if (end % group == 0 || end == sizes.micro_batches)
        while (next < end) row.push_back({r, Kind::W, next++});
    }
  }
  return schedule;
}

Result<Schedule> make_forward(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule schedule, begin_schedule({.name = "forward", .kinds = 1}, sizes));
  return make_forward(schedule, sizes.micro_batches);
}

// In lock step: a rank runs the last of its stages whose next micro-batch has arrived, so that
// older micro-batches are completed first.
Result<Schedule> make_forward(const Schedule& train, int32_t micro_batches) {
  const int32_t ranks = train.ranks(), stages = train.stages;
  WEFT_TRY(check_sizes({.ranks = ranks, .micro_batches = micro_batches}, 1, 1));
  WEFT_TRY(check_sizes({.ranks = stages, .micro_batches = micro_batches}, 1, 1));
  Schedule schedule{.stages = stages,
                    .micro_batches = micro_batches,
                    .forward_only = true,
                    .rank_of_stage = train.rank_of_stage,
                    .rows = {},
                    .replicas = train.replicas};
  schedule.rows.resize(static_cast<size_t>(ranks));
  if (!schedule.replicas.empty()) {
    for (int32_t s = 0; s < stages; ++s)
      for (int32_t k = 0; k < micro_batches; ++k)
        schedule.rows[static_cast<size_t>(schedule.rank_of(s, k))].push_back({s, Kind::F, k});
    return schedule;
  }
  std::vector<std::vector<int32_t>> stages_of(static_cast<size_t>(ranks));  // descending
  for (int32_t s = stages; s-- > 0;)
    stages_of[static_cast<size_t>(train.rank_of_stage[static_cast<size_t>(s)])].push_back(s);
  for (size_t r = 0; r < stages_of.size(); ++r)
    schedule.rows[r].reserve(stages_of[r].size() * static_cast<size_t>(micro_batches));
  std::vector<int32_t> done(static_cast<size_t>(stages), 0),
      before = done;  // completed micro-batches of each stage, now and in the last slot
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
