// Zero-bubble schedules with one stage per rank (Qi et al. 2023): the weight gradient W has no
// consumer on another rank, so that it fills the time in which a rank would wait. The lag is in
// micro-batches, so that any m is possible: missing micro-batches have no turn.
//
// zb-h1 keeps p micro-batches on every rank: p-1-r forwards ahead, the current one, and r whose W
// is postponed. zb-h2 has 2(p-1-r) forwards ahead and postpones 2r, so 2p-1 in all. If F = I = W,
// every rank is then busy from its first action to its last.
#include "schedule/rows.h"

namespace weft {
namespace {

Result<Schedule> make(std::string_view name, const ScheduleSizes& sizes, int32_t ahead) {
  WEFT_TRY_ASSIGN(Schedule schedule, begin_schedule({.name = name, .kinds = 3}, sizes));
  const int32_t p = schedule.ranks();
  for (int32_t r = 0; r < p; ++r) {
    std::vector<Item> items;
    for (int32_t k = 0; k < sizes.micro_batches; ++k) items.push_back({k, r, k});
    const int64_t lag = int64_t{ahead} * (p - 1 - r);
    write_split(schedule.rows[static_cast<size_t>(r)], items, items, lag, lag + int64_t{ahead} * r);
  }
  return schedule;
}

}  // namespace

Result<Schedule> make_zb_h1(const ScheduleSizes& sizes) { return make("zb-h1", sizes, 1); }

Result<Schedule> make_zb_h2(const ScheduleSizes& sizes) { return make("zb-h2", sizes, 2); }

}  // namespace weft
