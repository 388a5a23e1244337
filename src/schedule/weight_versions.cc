#include "schedule/weight_versions.h"

#include <algorithm>
#include <functional>

#include "base/text.h"

namespace weft {

namespace {

using Row = std::vector<Action>;

// Replicas of a stage have the same rows, each for its micro-batches.
const Row& row_of(const Schedule& schedule, int32_t stage) {
  return schedule.rows[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])];
}

int32_t update_of(const Schedule& schedule, const Action& action) {
  return action.kind == Kind::O ? action.micro_batch
                                : schedule.update_of(action.stage, action.micro_batch);
}

// Per update: the number of updates before its first forward.
std::vector<int32_t> newest(const Schedule& schedule, int32_t stage) {
  std::vector<int32_t> out(static_cast<size_t>(schedule.updates_of(stage)), -1);
  int32_t made = 0;
  for (const Action& action : row_of(schedule, stage)) {
    if (action.stage != stage) continue;
    if (action.kind == Kind::O) ++made;
    if (int32_t& version = out[static_cast<size_t>(update_of(schedule, action))];
        action.kind == Kind::F && version < 0)
      version = made;
  }
  return out;
}

// The most versions from the oldest one that is still read to the one that an update writes.
int32_t most_at_once(const Schedule& schedule, int32_t stage,
                     const std::vector<int32_t>& of_update) {
  const Row& row = row_of(schedule, stage);
  int32_t most = 1, oldest = schedule.updates_of(stage);
  for (size_t a = row.size(); a-- > 0;) {
    if (row[a].stage != stage) continue;
    const int32_t update = update_of(schedule, row[a]);
    if (row[a].kind == Kind::O)
      most = std::max(most, update + 2 - std::min(oldest, update + 1));
    else
      oldest = std::min(oldest, of_update[static_cast<size_t>(update)]);
  }
  return most;
}

int32_t most_in_flight(const Schedule& schedule, int32_t stage) {
  int32_t most = 1, begun = 0;
  for (const Action& action : row_of(schedule, stage)) {
    if (action.stage != stage) continue;
    const int32_t update = update_of(schedule, action);
    if (action.kind == Kind::F && schedule.last_of(stage, update, 0) == action.micro_batch)
      begun = update + 1;
    if (action.kind == Kind::O) most = std::max(most, begun - update);
  }
  return most;
}

}  // namespace

Result<std::vector<WeightVersions>> weight_versions(const Schedule& schedule, bool vertical_sync) {
  const std::vector<int32_t>& replicas = schedule.replicas;
  if (vertical_sync &&
      std::adjacent_find(replicas.begin(), replicas.end(), std::not_equal_to()) != replicas.end())
    return Status(Code::invalid,
                  "vertical sync requires stages with the same number of updates, and therefore of "
                  "replicas");
  std::vector<WeightVersions> out(static_cast<size_t>(schedule.stages));
  for (int32_t s = 0; s < schedule.stages; ++s) {
    WeightVersions& stage = out[static_cast<size_t>(s)];
    stage.of_update = newest(schedule, s);
    stage.round = schedule.per_update() * schedule.replicas_of(s);
    for (size_t u = 0; vertical_sync && u < stage.of_update.size(); ++u) {
      const int32_t chosen = out[0].of_update[u];
      if (chosen > stage.of_update[u])
        return Status(Code::invalid,
                      cat("vertical sync: stage ", s, " has ", stage.of_update[u],
                          " updates behind it when update ", u, " begins, stage 0 had ", chosen));
      stage.of_update[u] = chosen;
    }
    stage.count = most_at_once(schedule, s, stage.of_update);
    stage.in_flight = most_in_flight(schedule, s);
  }
  return out;
}

}  // namespace weft
