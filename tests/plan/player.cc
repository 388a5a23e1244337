#include "player.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double cost_of(const std::vector<double>& list, int32_t stage) {
  return list.empty() ? 1 : list[static_cast<size_t>(stage)];
}

class Player {
 public:
  Player(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule), costs_(costs), next_(schedule.rows.size(), 0) {
    const size_t all =
        static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches);
    forward_.assign(all, -1);
    back_.assign(all, -1);
    out_.start.resize(schedule.rows.size());
    out_.first.resize(schedule.rows.size());
    out_.last.resize(schedule.rows.size());
    out_.busy.resize(schedule.rows.size());
    out_.held.resize(schedule.rows.size());
    holds_.resize(schedule.rows.size());
  }

  Played run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < schedule_.rows.size(); ++r)
        while (next_[r] < schedule_.rows[r].size() && try_run(r, schedule_.rows[r][next_[r]])) {
          ++next_[r];
          moved = true;
        }
    }
    out_.ran = true;
    for (size_t r = 0; r < schedule_.rows.size(); ++r) {
      out_.ran = out_.ran && next_[r] == schedule_.rows[r].size();
      out_.makespan = std::max(out_.makespan, out_.last[r]);
    }
    return out_;
  }

 private:
  double& at(std::vector<double>& ends, int32_t stage, int32_t micro_batch) {
    return ends[static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) +
                static_cast<size_t>(micro_batch)];
  }

  // When what the action needs from another stage is there; below 0 if that has not run.
  double arrival(const Action& action) {
    const bool forward = action.kind == Kind::F;
    const int32_t from = action.stage + (forward ? -1 : 1);
    if (action.kind == Kind::W || action.kind == Kind::R || from < 0 || from == schedule_.stages)
      return 0;
    const double end = at(forward ? forward_ : back_, from, action.micro_batch);
    const auto rank = [&](int32_t stage) {
      return schedule_.rank_of_stage[static_cast<size_t>(stage)];
    };
    return end < 0 || rank(from) == rank(action.stage) ? end : end + costs_.latency;
  }

  bool try_run(size_t r, const Action& action) {
    const double there = arrival(action);
    if (there < 0) return false;
    const int32_t s = action.stage;
    double cost = 0;
    if (action.kind == Kind::F || action.kind == Kind::R) cost += cost_of(costs_.forward, s);
    if (action.kind == Kind::I || action.kind == Kind::B) cost += cost_of(costs_.input, s);
    if (action.kind == Kind::W || action.kind == Kind::B) cost += cost_of(costs_.weight, s);
    const double start = std::max(there, out_.last[r]);
    if (out_.start[r].empty()) out_.first[r] = start;
    out_.start[r].push_back(start);
    out_.last[r] = start + cost;
    out_.busy[r] += cost;
    if (action.kind == Kind::F) {
      at(forward_, s, action.micro_batch) = out_.last[r];
      holds_[r] += cost_of(costs_.held, s);
      out_.held[r] = std::max(out_.held[r], holds_[r]);
    }
    const double held = cost_of(costs_.held, s),
                 parked = costs_.parked.empty() ? held : cost_of(costs_.parked, s);
    if (action.kind == Kind::I || action.kind == Kind::B) {
      at(back_, s, action.micro_batch) = out_.last[r];
      holds_[r] -= held - parked;
      out_.held[r] = std::max(out_.held[r], holds_[r]);
    }
    if (action.kind == Kind::W || action.kind == Kind::B) holds_[r] -= parked;
    return true;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  std::vector<size_t> next_;
  std::vector<double> forward_,
      back_;  // [stage][micro-batch]: when its F, its I ended; below 0: not yet
  std::vector<double> holds_;
  Played out_;
};

double most(size_t count, auto&& value) {
  double out = 0;
  for (size_t r = 0; r < count; ++r) out = std::max(out, value(r));
  return out;
}

}  // namespace

double Played::most_idle() const {
  return most(busy.size(), [&](size_t r) { return idle(r); });
}
double Played::most_idle_in_span() const {
  return most(busy.size(), [&](size_t r) { return idle_in_span(r); });
}
double Played::most_held() const { return *std::max_element(held.begin(), held.end()); }

Played play(const Schedule& schedule, const ScheduleCosts& costs) {
  return Player(schedule, costs).run();
}

ScheduleCosts shared_costs(const Schedule& schedule, double forward, double input, double weight,
                           double latency) {
  const auto stages = static_cast<size_t>(schedule.stages);
  const double chunks = static_cast<double>(schedule.stages) / schedule.ranks();
  const auto share = [&](double whole) { return std::vector<double>(stages, whole / chunks); };
  return {.forward = share(forward),
          .input = share(input),
          .weight = share(weight),
          .held = share(1),
          .latency = latency};
}

namespace {

char drawn(const Action& action) {
  const char first = action.kind == Kind::F ? '0' : action.kind == Kind::W ? 'A' : 'a';
  return static_cast<char>(first + action.micro_batch);
}

// Halves, so that B, which is I and W, takes a slot as well.
ScheduleCosts slot_costs(const Schedule& schedule) {
  bool fused = false, split = false;
  for (const auto& row : schedule.rows)
    for (const Action& action : row) {
      fused = fused || action.kind == Kind::B;
      split = split || action.kind == Kind::I;
    }
  const auto all = [&](double cost) {
    return std::vector<double>(static_cast<size_t>(schedule.stages), cost);
  };
  if (fused && !split) return {.forward = all(1), .input = all(1), .weight = all(0), .held = {}};
  return {.forward = all(1), .input = all(1), .weight = all(1), .held = {}};
}

}  // namespace

std::vector<std::string> timetable(const Schedule& schedule) {
  const Played played = play(schedule, slot_costs(schedule));
  const auto width = static_cast<size_t>(std::lround(played.makespan));
  std::vector<std::string> out;
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (int32_t s = 0; s < schedule.stages; ++s) {
      if (schedule.rank_of_stage[static_cast<size_t>(s)] != static_cast<int32_t>(r)) continue;
      std::string row(width, '.');
      for (size_t a = 0; a < played.start[r].size(); ++a) {
        const Action& action = schedule.rows[r][a];
        if (action.stage != s) continue;
        const auto slot = static_cast<size_t>(std::lround(played.start[r][a]));
        row[slot] = drawn(action);
      }
      out.push_back(row);
    }
  return out;
}

std::map<std::string, int32_t> slots(const Schedule& schedule) {
  const Played played = play(schedule, slot_costs(schedule));
  std::map<std::string, int32_t> out;
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (size_t a = 0; a < played.start[r].size(); ++a)
      out[schedule.rows[r][a].text()] = static_cast<int32_t>(std::lround(played.start[r][a]));
  return out;
}

}  // namespace weft
