#include "schedule/chain_time.h"

#include <algorithm>
#include <limits>

namespace weft {

namespace {

class Player {
 public:
  Player(const Schedule& schedule, const ScheduleCosts& costs, const std::vector<ChainEdge>& edges)
      : schedule_(schedule), costs_(costs), edges_(edges), free_(schedule.rows.size(), 0.0) {
    const auto all =
        static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches);
    for (auto* times : {&forward_, &backward_, &released_}) times->assign(all, -1);
    for (auto* times : {&busy_forward_, &busy_backward_}) times->assign(edges.size(), 0);
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

  static bool is_forward(const Action& action) { return action.kind == Kind::F; }
  static bool is_backward(const Action& action) {
    return action.kind == Kind::I || action.kind == Kind::B;
  }

  // When what the action needs of the stage before it is there; below 0 if that has not run.
  double arrival(const Action& action) const {
    const int32_t from = action.stage + (is_forward(action) ? -1 : 1);
    const bool needs = is_forward(action) || is_backward(action);
    if (!needs || from < 0 || from == schedule_.stages) return 0;
    return (is_forward(action) ? forward_ : backward_)[at(from, action.micro_batch)];
  }

  // The edge over which the action sends; null: none.
  const ChainEdge* edge_of(const Action& action) const {
    if (!is_forward(action) && !is_backward(action)) return nullptr;
    const int32_t to = action.stage + (is_forward(action) ? 1 : -1);
    if (to < 0 || to == schedule_.stages) return nullptr;
    const bool sent = schedule_.rank_of(to, action.micro_batch) !=
                      schedule_.rank_of(action.stage, action.micro_batch);
    return sent ? &edges_[static_cast<size_t>(std::min(to, action.stage))] : nullptr;
  }

  // When the value before what the action makes has been sent, for which its receiver has a slot;
  // below 0 if that slot is not free yet.
  double room(const Action& action, const ChainEdge* edge) const {
    if (edge == nullptr) return 0;
    const int32_t slots = is_forward(action) ? edge->forward_slots : edge->gradient_slots,
                  last = action.micro_batch - 1 - slots;
    if (slots == 0 || last < 0) return 0;
    return released_[at(action.stage + (is_forward(action) ? 1 : -1), last)];
  }

  // When what the action has made at `end` is at the stage that needs it.
  double sent(const Action& action, const ChainEdge* edge, double end) {
    if (edge == nullptr) return end;
    auto& busy = is_forward(action) ? busy_forward_ : busy_backward_;
    double& until = busy[static_cast<size_t>(edge - edges_.data())];
    until = std::max(until, end) + edge->transfer;
    return until + edge->latency;
  }

  bool runs(size_t rank, const Action& action) {
    const ChainEdge* const edge = edge_of(action);
    const double there = arrival(action);
    const double free = room(action, edge);
    if (there < 0 || free < 0) return false;
    const double end = std::max({free_[rank], there, free}) + cost(action);
    const size_t own = at(action.stage, action.micro_batch);
    const Kind last = schedule_.forward_only ? Kind::F : Kind::W;
    free_[rank] = end;
    if (is_forward(action)) forward_[own] = sent(action, edge, end);
    if (is_backward(action)) backward_[own] = sent(action, edge, end);
    if (action.kind == last || action.kind == Kind::B) released_[own] = end;
    return true;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  const std::vector<ChainEdge>& edges_;
  std::vector<double> free_;  // per rank
  // Per stage and micro-batch: when its output, and its gradient, are where they are needed, and
  // when its slots are free; below 0: not yet.
  std::vector<double> forward_, backward_, released_;
  std::vector<double> busy_forward_, busy_backward_;  // per edge: until then
};

}  // namespace

double chain_time(const Schedule& schedule, const ScheduleCosts& costs,
                  const std::vector<ChainEdge>& edges) {
  return Player(schedule, costs, edges).run();
}

}  // namespace weft
