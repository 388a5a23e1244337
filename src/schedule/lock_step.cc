#include "schedule/lock_step.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace weft {

namespace {

// The progress of a cell in one phase: `count` micro-batches, the last one at `time`.
struct Progress {
  int32_t count = 0, time = -1;
  bool before(int32_t now, int32_t micro_batch) const {
    return micro_batch < count - (time == now ? 1 : 0);
  }
};

class Player {
 public:
  Player(const Schedule& schedule, const std::vector<StageEdge>& edges)
      : schedule_(schedule),
        times_(static_cast<size_t>(schedule.stages)),
        forward_(static_cast<size_t>(schedule.cells())),
        back_(forward_),
        feeds_(times_.size()),
        backs_(times_.size()) {
    for (const StageEdge& e : edges) {
      feeds_[static_cast<size_t>(e.to)].push_back(e.from);
      if (e.gradient) backs_[static_cast<size_t>(e.from)].push_back(e.to);
    }
  }

  StageTimes run() {
    std::vector<size_t> next(schedule_.rows.size(), 0);
    for (bool moved = true; moved; ++now_) {
      moved = false;
      for (size_t r = 0; r < next.size(); ++r) {
        if (next[r] == schedule_.rows[r].size() || !runs(schedule_.rows[r][next[r]])) continue;
        ++next[r];
        moved = true;
      }
    }
    for (size_t r = 0; r < next.size(); ++r)
      if (next[r] < schedule_.rows[r].size()) return {};
    return std::move(times_);
  }

 private:
  size_t cell(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(schedule_.cell_of(stage, micro_batch));
  }
  bool has_run(const std::vector<Progress>& phase, int32_t stage, int32_t micro_batch) const {
    return phase[cell(stage, micro_batch)].before(now_, schedule_.turn_of(stage, micro_batch));
  }
  bool ready(const std::vector<int32_t>& needed, const std::vector<Progress>& phase,
             int32_t micro_batch) const {
    return std::all_of(needed.begin(), needed.end(),
                       [&](int32_t stage) { return has_run(phase, stage, micro_batch); });
  }
  // All replicas have run their last backward of the update.
  bool complete(const Action& update) const {
    const int32_t own = schedule_.replicas_of(update.stage);
    for (int32_t i = 0; own > 1 && i < own; ++i)
      if (!has_run(back_, update.stage, schedule_.last_of(update.stage, update.micro_batch, i)))
        return false;
    return true;
  }

  void note(const Action& a, Phase phase) {
    std::vector<int32_t>& list = times_[static_cast<size_t>(a.stage)][phase];
    if (list.empty()) list.resize(static_cast<size_t>(schedule_.micro_batches));
    list[static_cast<size_t>(a.micro_batch)] = now_;
  }

  bool runs(const Action& a) {
    const size_t s = static_cast<size_t>(a.stage);
    const bool is_i = a.kind == Kind::I || a.kind == Kind::B;
    if (a.kind == Kind::F && !ready(feeds_[s], forward_, a.micro_batch)) return false;
    if (is_i && !ready(backs_[s], back_, a.micro_batch)) return false;
    if (a.kind == Kind::O && !complete(a)) return false;
    const Progress progress = {schedule_.turn_of(a.stage, a.micro_batch) + 1, now_};
    if (a.kind == Kind::F) forward_[cell(a.stage, a.micro_batch)] = progress;
    if (is_i) back_[cell(a.stage, a.micro_batch)] = progress;
    if (a.kind == Kind::F) note(a, kPhaseF);
    if (a.kind == Kind::R) note(a, kPhaseR);
    if (is_i) note(a, kPhaseI);
    if (a.kind == Kind::W || a.kind == Kind::B) note(a, kPhaseW);
    return true;
  }

  const Schedule& schedule_;
  int32_t now_ = 0;
  StageTimes times_;
  std::vector<Progress> forward_, back_;             // per cell
  std::vector<std::vector<int32_t>> feeds_, backs_;  // per stage: those that F and I wait for
};

}  // namespace

StageTimes lock_step(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  return Player(schedule, edges).run();
}

StageTimes lock_step_of_chain(const Schedule& schedule) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < schedule.stages; ++s)
    edges.push_back({.from = s, .to = s + 1, .gradient = !schedule.forward_only});
  return lock_step(schedule, edges);
}

int32_t slots_needed(const std::vector<int32_t>& begin, const std::vector<int32_t>& end) {
  assert(begin.size() == end.size());
  int32_t most = 0;
  size_t taken = 0;
  for (size_t k = 0; k < end.size(); ++k) {
    while (taken < begin.size() && begin[taken] <= end[k]) ++taken;
    most = std::max(most, static_cast<int32_t>(taken - k));
  }
  return most;
}

}  // namespace weft
