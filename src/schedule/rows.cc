#include "schedule/rows.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace weft {
namespace {

// A schedule contains all actions; larger sizes are probably a mistake and would exhaust the
// memory.
constexpr int64_t kMaxActions = int64_t{1} << 26;

Status check_knobs(const Form& form, const ScheduleSizes& sizes) {
  if (sizes.group < 0)
    return Status(Code::invalid, cat("group is ", sizes.group, ", expected 1 or more"));
  if (sizes.warm_up < 0)
    return Status(Code::invalid, cat("warm_up is ", sizes.warm_up, ", expected 1 or more"));
  if (sizes.group && !form.takes_group)
    return Status(Code::invalid, cat("group is ", sizes.group, ", but schedule '", form.name,
                                     "' has no groups of micro-batches, expected 0; use "
                                     "interleaved, interleaved-zb or 1f1b-delayed-w"));
  if (sizes.warm_up > 1 && !form.takes_warm_up)  // 1 is the default of 1f1b
    return Status(Code::invalid, cat("warm_up is ", sizes.warm_up, ", but schedule '", form.name,
                                     "' has a fixed warm-up, expected 1; use 1f1b"));
  return {};
}

}  // namespace

Status check_sizes(const ScheduleSizes& sizes, int32_t chunks, int32_t kinds) {
  if (sizes.ranks < 1)
    return Status(Code::invalid, cat("ranks is ", sizes.ranks, ", expected 1 or more"));
  if (sizes.micro_batches < 1)
    return Status(Code::invalid,
                  cat("micro_batches is ", sizes.micro_batches, ", expected 1 or more"));
  // Products are limited, so that they do not overflow.
  int64_t actions = kinds;
  for (const int32_t factor : {chunks, sizes.ranks, sizes.micro_batches}) {
    actions *= factor;
    if (actions > kMaxActions)
      return Status(Code::invalid,
                    cat(sizes.ranks, " ranks and ", sizes.micro_batches, " micro-batches with ",
                        chunks, chunks == 1 ? " stage" : " stages", " per rank make more than ",
                        kMaxActions, " actions"));
  }
  return {};
}

Result<Schedule> begin_schedule(const Form& form, const ScheduleSizes& sizes) {
  const ScheduleKind* kind = find_schedule(form.name);
  if (!kind) return Status(Code::internal, cat("schedule '", form.name, "' is not in the table"));
  WEFT_TRY_ASSIGN(const int32_t chunks, chunks_of(*kind, sizes.chunks));
  WEFT_TRY(check_knobs(form, sizes));
  WEFT_TRY(check_sizes(sizes, chunks, form.kinds));

  Schedule schedule;
  schedule.stages = sizes.ranks * chunks;
  schedule.micro_batches = sizes.micro_batches;
  schedule.forward_only = form.kinds == 1;
  for (int32_t s = 0; s < schedule.stages; ++s)
    schedule.rank_of_stage.push_back(form.v_shaped ? std::min(s, schedule.stages - 1 - s)
                                                   : s % sizes.ranks);
  schedule.rows.resize(static_cast<size_t>(sizes.ranks));
  for (auto& row : schedule.rows)
    row.reserve(static_cast<size_t>(sizes.micro_batches) * static_cast<size_t>(chunks) *
                static_cast<size_t>(form.kinds));
  return schedule;
}

namespace {

struct Part {
  Kind kind;
  const std::vector<Item>* items;
  int64_t lag;
  size_t next = 0;
};

// Within a turn, the parts run in the order of the list.
template <size_t N>
void write(std::vector<Action>& row, std::array<Part, N> parts) {
  for (;;) {
    Part* first = nullptr;
    for (Part& part : parts)
      if (part.next < part.items->size() &&
          (!first || (*part.items)[part.next].turn + part.lag <
                         (*first->items)[first->next].turn + first->lag))
        first = &part;
    if (!first) return;
    const Item& item = (*first->items)[first->next++];
    row.push_back({item.stage, first->kind, item.micro_batch});
  }
}

}  // namespace

void write_fused(std::vector<Action>& row, const std::vector<Item>& forward,
                 const std::vector<Item>& back, int64_t lag) {
  write<2>(row, {Part{Kind::F, &forward, 0}, Part{Kind::B, &back, lag}});
}

void write_split(std::vector<Action>& row, const std::vector<Item>& forward,
                 const std::vector<Item>& back, int64_t lag, int64_t weight_lag) {
  write<3>(row, {Part{Kind::F, &forward, 0}, Part{Kind::I, &back, lag},
                 Part{Kind::W, &back, weight_lag}});
}

}  // namespace weft
