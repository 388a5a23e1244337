#include "schedule/chain_time.h"

#include <algorithm>
#include <limits>

namespace weft {

namespace {

class Player {
 public:
  Player(const Schedule& schedule, const ScheduleCosts& costs, const std::vector<EdgeSlots>& slots)
      : schedule_(schedule), costs_(costs), slots_(slots), free_(schedule.rows.size(), 0.0) {
    const auto all =
        static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches);
    forward_.assign(all, -1);
    backward_.assign(all, -1);
    released_.assign(all, -1);
  }

  double run() {
    std::vector<size_t> next(schedule_.rows.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < next.size(); ++r)
        while (next[r] < schedule_.rows[r].size() && runs(r, schedule_.rows[r][next[r]])) {
          ++next[r];
          moved = true;
        }
    }
    for (size_t r = 0; r < next.size(); ++r)
      if (next[r] < schedule_.rows[r].size()) return std::numeric_limits<double>::infinity();
    return *std::max_element(free_.begin(), free_.end());
  }

 private:
  size_t at(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }

  double cost(const Action& action) const {
    const auto s = static_cast<size_t>(action.stage);
    switch (action.kind) {
      case Kind::F: return costs_.forward[s];
      case Kind::R: return costs_.again.empty() ? costs_.forward[s] : costs_.again[s];
      case Kind::I: return costs_.input[s];
      case Kind::W: return costs_.weight[s];
      case Kind::B: return costs_.input[s] + costs_.weight[s];
      default: return 0;
    }
  }

  // When what the action needs of the stage before it is there; below 0 if that has not run.
  double arrival(const Action& action) const {
    const bool forward = action.kind == Kind::F;
    const int32_t from = action.stage + (forward ? -1 : 1);
    const bool needs = forward || action.kind == Kind::I || action.kind == Kind::B;
    if (!needs || from < 0 || from == schedule_.stages) return 0;
    const double end = (forward ? forward_ : backward_)[at(from, action.micro_batch)];
    const bool sent = schedule_.rank_of(from, action.micro_batch) !=
                      schedule_.rank_of(action.stage, action.micro_batch);
    return end >= 0 && sent ? end + costs_.latency : end;
  }

  // When the value before what the action makes has been sent, for which its receiver has a slot;
  // below 0 if that slot is not free yet.
  double room(const Action& action) const {
    const bool forward = action.kind == Kind::F;
    const int32_t to = action.stage + (forward ? 1 : -1);
    const bool makes = forward || action.kind == Kind::I || action.kind == Kind::B;
    if (slots_.empty() || !makes || to < 0 || to == schedule_.stages) return 0;
    if (schedule_.rank_of(to, action.micro_batch) ==
        schedule_.rank_of(action.stage, action.micro_batch))
      return 0;
    const EdgeSlots& edge = slots_[static_cast<size_t>(std::min(to, action.stage))];
    const int32_t releases = action.micro_batch - 1 - (forward ? edge.forward : edge.gradient);
    return releases < 0 ? 0 : released_[at(to, releases)];
  }

  bool runs(size_t rank, const Action& action) {
    const double there = arrival(action), free = room(action);
    if (there < 0 || free < 0) return false;
    free_[rank] = std::max({free_[rank], there, free}) + cost(action);
    const size_t own = at(action.stage, action.micro_batch);
    const Kind last = schedule_.forward_only ? Kind::F : Kind::W;
    if (action.kind == Kind::F) forward_[own] = free_[rank];
    if (action.kind == Kind::I || action.kind == Kind::B) backward_[own] = free_[rank];
    if (action.kind == last || action.kind == Kind::B) released_[own] = free_[rank];
    return true;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  const std::vector<EdgeSlots>& slots_;
  std::vector<double> free_;  // per rank
  // Per stage and micro-batch: the end of F, of I, and of what uses its slots; below 0: not yet.
  std::vector<double> forward_, backward_, released_;
};

}  // namespace

double chain_time(const Schedule& schedule, const ScheduleCosts& costs,
                  const std::vector<EdgeSlots>& slots) {
  return Player(schedule, costs, slots).run();
}

}  // namespace weft
