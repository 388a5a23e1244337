#include "plan/places.h"

#include <algorithm>
#include <cassert>

namespace weft {

StageTimes lock_step(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  const size_t stages = static_cast<size_t>(schedule.stages), m = static_cast<size_t>(schedule.micro_batches);
  StageTimes times(stages);
  for (auto& stage : times)
    for (auto& phase : stage) phase.assign(m, -1);
  std::vector<std::vector<int32_t>> feeds(stages), backs(stages);   // stages that F and I wait for
  for (const StageEdge& e : edges) {
    feeds[static_cast<size_t>(e.to)].push_back(e.from);
    if (e.gradient) backs[static_cast<size_t>(e.from)].push_back(e.to);
  }
  auto ready = [&](const Action& a, int32_t now) {
    const bool forward = a.kind == Kind::F;
    if (a.kind != Kind::F && a.kind != Kind::I && a.kind != Kind::B) return true;
    for (int32_t s : (forward ? feeds : backs)[static_cast<size_t>(a.stage)]) {
      const int32_t t = times[static_cast<size_t>(s)][forward ? kPhaseF : kPhaseI][static_cast<size_t>(a.micro_batch)];
      if (t < 0 || t >= now) return false;
    }
    return true;
  };
  std::vector<size_t> next(schedule.rows.size(), 0);
  for (int32_t now = 0, moved = 1; moved; ++now) {
    moved = 0;
    for (size_t r = 0; r < schedule.rows.size(); ++r) {
      if (next[r] == schedule.rows[r].size()) continue;
      const Action& a = schedule.rows[r][next[r]];
      if (!ready(a, now)) continue;
      ++next[r];
      moved = 1;
      if (a.kind == Kind::O) continue;
      auto& stage = times[static_cast<size_t>(a.stage)];
      const size_t mb = static_cast<size_t>(a.micro_batch);
      if (a.kind == Kind::F) stage[kPhaseF][mb] = now;
      if (a.kind == Kind::R) stage[kPhaseR][mb] = now;
      if (a.kind == Kind::I || a.kind == Kind::B) stage[kPhaseI][mb] = now;
      if (a.kind == Kind::W || a.kind == Kind::B) stage[kPhaseW][mb] = now;
    }
  }
  return times;
}

int32_t places_needed(const std::vector<int32_t>& begin, const std::vector<int32_t>& end) {
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
