// Schedules in a V that keep few activations (Qi et al. 2024, "Pipeline Parallelism with
// Controllable Memory"): v-half keeps about half of what 1f1b does, v-min about a third, for more
// idle time than zb-v.
//
// Both are a block of six slots per micro-batch that repeats: the forward and the I of each of a
// rank's two stages start at different slots modulo 6, and two slots remain for W. A micro-batch
// then stays on every rank for the same time, so that all ranks have the same peak. The slots only
// determine the order of F and I and the peak. Then the block is compressed: in lock step each rank
// runs its next F or I if its data and the peak allow it, otherwise the next W, otherwise it waits.
// This has no deadlock: a rank that waits has no W to run, so that it holds at most as much as the
// block at the same position, and the block can run.
#include <algorithm>
#include <array>

#include "schedule/rows.h"

namespace weft {
namespace {

constexpr int32_t kBlock = 6;

// Start of F of the first stage, F of the second, I of the second, I of the first, for micro-batch
// 0.
using Starts = std::array<int64_t, 4>;

Starts half_starts(int64_t p, int64_t r) {
  const int64_t d = p % 2 == 0 ? 3 : 0;  // so that no two are equal modulo 6
  return {2 * r, 3 * p - r - 2, 3 * p + d + 2 * r - 1, 6 * p + d - r - 2};
}

Starts min_starts(int64_t p, int64_t r) {
  const int64_t d = p % 3 == 0 ? 2 : 0;
  return {r, 2 * p - r - 1, 2 * p + d + r, 4 * p + d - r - 1};
}

struct Rank {
  std::vector<Action> order;  // of F and I
  size_t next = 0;
  std::vector<Action> due;  // W, in the order of their I
  size_t oldest = 0;
  int32_t held = 0, peak = 0;
};

// The order of the block, and its peak if each W runs in the first free slot.
Rank read_block(const Starts& starts, int32_t rank, int32_t stages, int32_t micro_batches) {
  const int32_t second = stages - 1 - rank;
  const std::array<Action, 4> parts = {
      Action{rank, Kind::F, 0}, {second, Kind::F, 0}, {second, Kind::I, 0}, {rank, Kind::I, 0}};
  Rank out;
  int64_t due = 0;
  const int64_t end = starts[3] + int64_t{kBlock} * micro_batches;
  for (int64_t slot = 0; slot < end; ++slot) {
    const size_t before = out.order.size();
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t since = slot - starts[i];
      if (since < 0 || since % kBlock || since / kBlock >= micro_batches) continue;
      out.order.push_back({parts[i].stage, parts[i].kind, static_cast<int32_t>(since / kBlock)});
      due += parts[i].kind == Kind::I;
      out.held += parts[i].kind == Kind::F;
      out.peak = std::max(out.peak, out.held);
    }
    if (out.order.size() == before && due > 0) --due, --out.held;
  }
  out.held = 0;
  return out;
}

class Squeeze {
 public:
  Squeeze(Schedule& schedule, Starts (*starts)(int64_t p, int64_t r))
      : schedule_(schedule),
        forwards_(static_cast<size_t>(schedule.stages), 0),
        inputs_(forwards_) {
    for (int32_t r = 0; r < schedule.ranks(); ++r)
      ranks_.push_back(
          read_block(starts(schedule.ranks(), r), r, schedule.stages, schedule.micro_batches));
  }

  void run() {
    for (int64_t left = int64_t{3} * schedule_.stages * schedule_.micro_batches; left > 0;) {
      const std::vector<int32_t> forwards = forwards_,
                                 inputs = inputs_;  // values at the start of the slot
      for (size_t r = 0; r < ranks_.size(); ++r)
        left -= step(ranks_[r], schedule_.rows[r], forwards, inputs);
    }
  }

 private:
  bool step(Rank& rank, std::vector<Action>& row, const std::vector<int32_t>& forwards,
            const std::vector<int32_t>& inputs) {
    if (rank.next < rank.order.size()) {
      const Action& action = rank.order[rank.next];
      const auto s = static_cast<size_t>(action.stage);
      const bool forward = action.kind == Kind::F;
      const bool there = forward ? s == 0 || forwards[s - 1] > action.micro_batch
                                 : s + 1 == inputs.size() || inputs[s + 1] > action.micro_batch;
      if (there && (!forward || rank.held < rank.peak)) {
        ++(forward ? forwards_ : inputs_)[s];
        if (forward) ++rank.held;
        if (!forward) rank.due.push_back({action.stage, Kind::W, action.micro_batch});
        row.push_back(action);
        ++rank.next;
        return true;
      }
    }
    if (rank.oldest == rank.due.size()) return false;
    row.push_back(rank.due[rank.oldest++]);
    --rank.held;
    return true;
  }

  Schedule& schedule_;
  std::vector<Rank> ranks_;
  std::vector<int32_t> forwards_, inputs_;  // per stage: completed micro-batches
};

Result<Schedule> make(std::string_view name, const ScheduleSizes& sizes,
                      Starts (*starts)(int64_t p, int64_t r)) {
  WEFT_TRY_ASSIGN(Schedule schedule,
                  begin_schedule({.name = name, .kinds = 3, .v_shaped = true}, sizes));
  Squeeze(schedule, starts).run();
  return schedule;
}

}  // namespace

Result<Schedule> make_v_half(const ScheduleSizes& sizes) {
  return make("v-half", sizes, half_starts);
}

Result<Schedule> make_v_min(const ScheduleSizes& sizes) { return make("v-min", sizes, min_starts); }

}  // namespace weft
