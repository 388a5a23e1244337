#include "schedule/lock_step.h"

#include <algorithm>
#include <cassert>

namespace weft {

namespace {

// The progress of a cell in one phase: `count` micro-batches, the last one at `time`.
struct Progress {
  int32_t count = 0, time = -1;
  bool before(int32_t now, int32_t micro_batch) const {
    return micro_batch < count - (time == now ? 1 : 0);
  }
};

}  // namespace

StageTimes lock_step(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  const size_t stages = static_cast<size_t>(schedule.stages),
               m = static_cast<size_t>(schedule.micro_batches);
  StageTimes times(stages);
  std::vector<Progress> forward(static_cast<size_t>(schedule.cells())), back = forward;
  std::vector<std::vector<int32_t>> feeds(stages), backs(stages);  // stages that F and I wait for
  for (const StageEdge& e : edges) {
    feeds[static_cast<size_t>(e.to)].push_back(e.from);
    if (e.gradient) backs[static_cast<size_t>(e.from)].push_back(e.to);
  }
  const auto cell = [&schedule](int32_t s, int32_t micro_batch) {
    return static_cast<size_t>(schedule.cell_of(s, micro_batch));
  };
  const auto has_run = [&](const std::vector<Progress>& phase, int32_t s, int32_t micro_batch,
                           int32_t now) {
    return phase[cell(s, micro_batch)].before(now, schedule.turn_of(s, micro_batch));
  };
  const auto ready = [&](const std::vector<int32_t>& needed, const std::vector<Progress>& phase,
                         int32_t micro_batch, int32_t now) {
    return std::all_of(needed.begin(), needed.end(),
                       [&](int32_t s) { return has_run(phase, s, micro_batch, now); });
  };
  // All replicas have run their last backward of the update.
  const auto complete = [&](const Action& update, int32_t now) {
    const int32_t own = schedule.replicas_of(update.stage);
    for (int32_t i = 0; own > 1 && i < own; ++i)
      if (!has_run(back, update.stage, schedule.last_of(update.stage, update.micro_batch, i), now))
        return false;
    return true;
  };
  std::vector<size_t> next(schedule.rows.size(), 0);
  for (int32_t now = 0, moved = 1; moved; ++now) {
    moved = 0;
    for (size_t r = 0; r < schedule.rows.size(); ++r) {
      if (next[r] == schedule.rows[r].size()) continue;
      const Action& a = schedule.rows[r][next[r]];
      const size_t s = static_cast<size_t>(a.stage);
      const bool is_i = a.kind == Kind::I || a.kind == Kind::B;
      if (a.kind == Kind::F && !ready(feeds[s], forward, a.micro_batch, now)) continue;
      if (is_i && !ready(backs[s], back, a.micro_batch, now)) continue;
      if (a.kind == Kind::O && !complete(a, now)) continue;
      ++next[r];
      moved = 1;
      const Progress progress = {schedule.turn_of(a.stage, a.micro_batch) + 1, now};
      if (a.kind == Kind::F) forward[cell(a.stage, a.micro_batch)] = progress;
      if (is_i) back[cell(a.stage, a.micro_batch)] = progress;
      const auto note = [&](Phase phase) {
        std::vector<int32_t>& list = times[s][phase];
        if (list.empty()) list.resize(m);
        list[static_cast<size_t>(a.micro_batch)] = now;
      };
      if (a.kind == Kind::F) note(kPhaseF);
      if (a.kind == Kind::R) note(kPhaseR);
      if (is_i) note(kPhaseI);
      if (a.kind == Kind::W || a.kind == Kind::B) note(kPhaseW);
    }
  }
  for (size_t r = 0; r < next.size(); ++r)
    if (next[r] < schedule.rows[r].size()) return {};
  return times;
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
