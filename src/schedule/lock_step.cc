#include "schedule/lock_step.h"

#include <algorithm>
#include <cassert>

namespace weft {

namespace {

// How far a stage is in one phase: `count` micro-batches, the last of them at `time`.
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
  std::vector<Progress> forward(stages), back(stages);
  std::vector<std::vector<int32_t>> feeds(stages), backs(stages);  // stages that F and I wait for
  for (const StageEdge& e : edges) {
    feeds[static_cast<size_t>(e.to)].push_back(e.from);
    if (e.gradient) backs[static_cast<size_t>(e.from)].push_back(e.to);
  }
  const auto ready = [](const std::vector<int32_t>& needed, const std::vector<Progress>& of,
                        int32_t micro_batch, int32_t now) {
    for (int32_t s : needed)
      if (!of[static_cast<size_t>(s)].before(now, micro_batch)) return false;
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
      ++next[r];
      moved = 1;
      if (a.kind == Kind::F) forward[s] = {a.micro_batch + 1, now};
      if (is_i) back[s] = {a.micro_batch + 1, now};
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
  return times;
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
