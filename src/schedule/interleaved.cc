// Generators whose ranks have stages r, r + p, r + 2p, ... ("chunks"): a micro-batch passes all
// ranks once per chunk.
//
// Micro-batches pass in groups of g: a group passes chunk 0, then chunk 1, and so on; backward, the
// last chunk is first. All ranks run forwards in the same order and backwards in the same order;
// only the lag of the backwards differs.
//
// Proof that no size can deadlock. Number the items of that order k = 0, 1, ... with groups of G =
// max(g, p). Let F of item k on rank r be at time 2k + a r and the backward of item k at 2 (k +
// (v-1) G) + 2 a (p-1) + 1 - a r, with a = 1 or 2. Then every arrow leads to a later time: along
// the ranks by a; from the last rank round to the first, and back, since 2G > a (p-1); from the
// last stage's F of a micro-batch to its backward by 1. In the order of these times rank r runs the
// backward of item k right after F of item k + w with w = a (p-1-r) + (v-1) G, which is the rule.
// If g < p, or the last group is short, the groups have gaps in place of micro-batches: leaving out
// whole micro-batches leaves all other arrows as they were. W waits for nothing but its own I.
#include <algorithm>

#include "schedule/rows.h"

namespace weft {
namespace {

struct Order {
  std::vector<Item> forward, back;
  int64_t chunk_turns = 0;  // G: turns that a group takes per chunk
};

Order order_of(const Schedule& schedule, int32_t rank, int32_t group) {
  const int32_t p = schedule.ranks(), v = schedule.stages / p, m = schedule.micro_batches;
  const int32_t g = std::min(group ? group : p, m);
  Order order;
  order.chunk_turns = v == 1 ? g : std::max(g, p);  // no return, no gaps
  order.forward.reserve(static_cast<size_t>(m) * static_cast<size_t>(v));
  order.back.reserve(order.forward.capacity());
  int64_t turn = 0;
  for (int64_t first = 0; first < m; first += g)
    for (int32_t c = 0; c < v; ++c, turn += order.chunk_turns)
      for (int32_t j = 0; j < g && first + j < m; ++j) {
        const auto k = static_cast<int32_t>(first) + j;
        order.forward.push_back({turn + j, c * p + rank, k});
        order.back.push_back({turn + j, (v - 1 - c) * p + rank, k});
      }
  return order;
}

}  // namespace

Result<Schedule> make_interleaved(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule schedule,
                  begin_schedule({.name = "interleaved", .takes_group = true}, sizes));
  const int32_t p = schedule.ranks(), v = schedule.stages / p;
  for (int32_t r = 0; r < p; ++r) {
    const Order order = order_of(schedule, r, sizes.group);
    // With one chunk, no message returns to rank 0: one forward ahead per later rank, as in 1f1b.
    const int64_t ahead = v == 1 ? 1 : 2;
    write_fused(schedule.rows[static_cast<size_t>(r)], order.forward, order.back,
                ahead * (p - 1 - r) + (v - 1) * order.chunk_turns);
  }
  return schedule;
}

Result<Schedule> make_interleaved_zb(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(
      Schedule schedule,
      begin_schedule({.name = "interleaved-zb", .kinds = 3, .takes_group = true}, sizes));
  const int32_t p = schedule.ranks(), v = schedule.stages / p;
  for (int32_t r = 0; r < p; ++r) {
    const Order order = order_of(schedule, r, sizes.group);
    const int64_t lag = p - 1 - r + (v - 1) * order.chunk_turns;
    // Later ranks have fewer forwards ahead, and can postpone as many more weight gradients to the
    // end.
    write_split(schedule.rows[static_cast<size_t>(r)], order.forward, order.back, lag, lag + r);
  }
  return schedule;
}

// Breadth first: all micro-batches through a chunk, then the next chunk; backward from the last
// chunk, ascending so that gradients are summed in the order of a run without a pipeline.
Result<Schedule> make_looped_bfs(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule schedule, begin_schedule({.name = "looped-bfs"}, sizes));
  const int32_t p = schedule.ranks(), v = schedule.stages / p, m = schedule.micro_batches;
  for (int32_t r = 0; r < p; ++r) {
    auto& row = schedule.rows[static_cast<size_t>(r)];
    for (int32_t c = 0; c < v; ++c)
      for (int32_t k = 0; k < m; ++k) row.push_back({c * p + r, Kind::F, k});
    for (int32_t c = v; c-- > 0;)
      for (int32_t k = 0; k < m; ++k) row.push_back({c * p + r, Kind::B, k});
  }
  return schedule;
}

}  // namespace weft
