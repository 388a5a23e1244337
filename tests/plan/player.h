// Plays a schedule against the clock: an action starts when its rank is free and its data is there,
// takes its cost, and a message to another rank takes the latency. Sends cost nothing and links
// have no limit. Stages form a chain. Written for tests: literal, and with nothing shared with what
// the library predicts times by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace weft {

struct Played {
  bool ran = false;  // every action; else times are those of the part that ran
  std::vector<std::vector<double>> start;  // [rank][action]
  std::vector<double> first, last,
      busy;  // per rank: start of its first action, end of its last, sum of its actions
  std::vector<double> held;  // per rank: most that its micro-batches held at once
  double makespan = 0;

  double idle(size_t rank) const {
    return makespan - busy[rank];
  }  // from common start to common end
  double idle_in_span(size_t rank) const { return last[rank] - first[rank] - busy[rank]; }
  double most_idle() const;
  double most_idle_in_span() const;
  double most_held() const;
};

// Lists of costs may be empty: 1 for each stage. B costs as much as I and W, R as much as F.
Played play(const Schedule& schedule, const ScheduleCosts& costs = {});

// Costs with F, I and W of a whole rank shared evenly by its chunks; a chunk holds 1 / chunks too.
ScheduleCosts shared_costs(const Schedule& schedule, double forward, double input, double weight,
                           double latency = 0);

// A drawing in lock step: every action takes one slot, B too, and a message none. One row per
// stage, the stages of a rank one after the other, and "." where it is idle or at another stage.
// Forwards are digits, backwards letters: 0 and a belong to micro-batch 0, 1 and b to 1, and so on.
// Where I and W are apart, I is drawn with letters and W with capitals.
std::vector<std::string> timetable(const Schedule& schedule);

// In which slot of the drawing an action runs.
std::map<std::string, int32_t> slots(const Schedule& schedule);

}  // namespace weft
