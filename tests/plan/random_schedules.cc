#include "random_schedules.h"

#include <algorithm>

namespace weft {
namespace {

std::vector<StageEdge> random_edges(int32_t stages, Dice& dice) {
  std::vector<StageEdge> edges;
  const auto add = [&](int32_t from, int32_t to) {
    edges.push_back({.from = from,
                     .to = to,
                     .gradient = dice.below(5) != 0,
                     .forward_until = Kind{},
                     .gradient_until = Kind::W});
    const Kind kinds[] = {Kind::F, Kind::I, Kind::W};
    edges.back().forward_until = kinds[dice.below(3)];
    edges.back().gradient_until = kinds[1 + dice.below(2)];
  };
  for (int32_t s = 0; s + 1 < stages; ++s)
    if (dice.below(8) != 0) add(s, s + 1);
  for (uint32_t skips = dice.below(4); stages > 1 && skips > 0; --skips) {
    const int32_t from = dice.from_to(0, stages - 2);
    add(from, dice.from_to(from + 1, stages - 1));
  }
  return edges;
}

// How many micro-batches of a stage have been through each kind of action.
struct Progress {
  int32_t f = 0, i = 0, w = 0;
};

class Recorder {
 public:
  Recorder(Case& one, Dice& dice)
      : one_(one), dice_(dice), progress_(static_cast<size_t>(one.schedule.stages)) {}

  // Runs any action whose data is there until none is left. Some stages prefer to go forward, some
  // fuse I and W.
  void record() {
    for (;;) {
      std::vector<Action> choices;
      for (int32_t s = 0; s < one_.schedule.stages; ++s) add_choices(s, choices);
      if (choices.empty()) return;
      const Action action = choices[dice_.below(static_cast<uint32_t>(choices.size()))];
      Progress& done = at(action.stage);
      done.f += action.kind == Kind::F;
      done.i += action.kind == Kind::I || action.kind == Kind::B;
      done.w += action.kind == Kind::W || action.kind == Kind::B;
      const int32_t rank = one_.schedule.rank_of_stage[static_cast<size_t>(action.stage)];
      one_.schedule.rows[static_cast<size_t>(rank)].push_back(action);
    }
  }

 private:
  Progress& at(int32_t stage) { return progress_[static_cast<size_t>(stage)]; }

  void add_choices(int32_t s, std::vector<Action>& choices) {
    const Progress done = at(s);
    bool forward = done.f < one_.schedule.micro_batches;
    bool back = done.i < done.f && !one_.schedule.forward_only;
    for (const StageEdge& edge : one_.edges) {
      if (edge.to == s) forward = forward && at(edge.from).f > done.f;
      if (edge.from == s && edge.gradient) back = back && at(edge.to).i > done.i;
    }
    if (forward) choices.push_back({s, Kind::F, done.f});
    if (back) choices.push_back({s, Kind::I, done.i});
    if (back && done.w == done.i) choices.push_back({s, Kind::B, done.i});
    if (done.w < done.i) choices.push_back({s, Kind::W, done.w});
  }

  Case& one_;
  Dice& dice_;
  std::vector<Progress> progress_;
};

}  // namespace

namespace {

// A schedule of the table with sizes that it takes: whatever a generator makes must be able to run.
Schedule random_from_table(int32_t ranks, int32_t micro_batches, Dice& dice) {
  const ScheduleKind& kind =
      all_schedules()[dice.below(static_cast<uint32_t>(all_schedules().size()))];
  ScheduleSizes sizes{.ranks = ranks, .micro_batches = micro_batches};
  if (kind.asynchronous) return make_gpipe(sizes).take();  // see async_test.cc
  if (kind.chunks == 0) sizes.chunks = dice.from_to(0, 4);
  if (kind.make({.group = 1}).ok()) sizes.group = dice.from_to(0, micro_batches + 1);
  if (kind.make({.warm_up = 2}).ok()) sizes.warm_up = dice.from_to(0, 3);
  return kind.make(sizes).take();
}

}  // namespace

Case random_valid_case(Dice& dice) {
  Case one;
  const int32_t ranks = dice.from_to(1, 5), micro_batches = dice.from_to(1, 7);
  if (dice.below(2) == 0) {
    one.schedule = random_from_table(ranks, micro_batches, dice);
    one.edges = random_edges(one.schedule.stages, dice);
    return one;
  }
  Schedule& schedule = one.schedule;
  schedule.stages = ranks + dice.from_to(0, ranks);
  schedule.micro_batches = micro_batches;
  schedule.forward_only = dice.below(8) == 0;
  schedule.rows.resize(static_cast<size_t>(ranks));
  // Every rank has a stage; the others go anywhere.
  for (int32_t s = 0; s < schedule.stages; ++s)
    schedule.rank_of_stage.push_back(s < ranks ? s : dice.from_to(0, ranks - 1));
  for (size_t s = schedule.rank_of_stage.size(); s > 1; --s)
    std::swap(schedule.rank_of_stage[s - 1],
              schedule.rank_of_stage[dice.below(static_cast<uint32_t>(s))]);
  one.edges = random_edges(schedule.stages, dice);
  Recorder(one, dice).record();
  return one;
}

namespace {

// Any order in which every stage of the row runs its own actions ascending, F before I before W,
// whatever other ranks need.
void redraw(std::vector<Action>& row, int32_t stages, Dice& dice) {
  std::vector<Progress> progress(static_cast<size_t>(stages));
  const auto may_run = [&](const Action& action) {
    if (action.stage < 0 || action.stage >= stages) return false;
    const Progress& done = progress[static_cast<size_t>(action.stage)];
    const int32_t k = action.micro_batch;
    switch (action.kind) {
      case Kind::F: return done.f == k;
      case Kind::R: return done.f > k;  // none is drawn
      case Kind::O: return false;       // nor is any of these
      case Kind::I: return done.i == k && done.f > k;
      case Kind::W: return done.w == k && done.i > k;
      case Kind::B: return done.i == k && done.w == k && done.f > k;
    }
    return false;
  };
  std::vector<Action> left = row, drawn;
  for (;;) {
    std::vector<size_t> choices;
    for (size_t a = 0; a < left.size(); ++a)
      if (may_run(left[a])) choices.push_back(a);
    if (choices.empty()) break;
    const size_t a = choices[dice.below(static_cast<uint32_t>(choices.size()))];
    Progress& done = progress[static_cast<size_t>(left[a].stage)];
    done.f += left[a].kind == Kind::F;
    done.i += left[a].kind == Kind::I || left[a].kind == Kind::B;
    done.w += left[a].kind == Kind::W || left[a].kind == Kind::B;
    drawn.push_back(left[a]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(a));
  }
  drawn.insert(drawn.end(), left.begin(),
               left.end());  // what an earlier change has left without a place
  row = drawn;
}

}  // namespace

void corrupt(Schedule& schedule, Dice& dice) {
  std::vector<Action>& row = schedule.rows[dice.below(static_cast<uint32_t>(schedule.rows.size()))];
  if (row.empty()) return;
  const auto pick = [&] { return dice.below(static_cast<uint32_t>(row.size())); };
  const uint32_t a = pick(), b = pick();
  switch (dice.below(13)) {
    case 0:
    case 1: std::swap(row[a], row[b]); break;
    case 2:
      std::rotate(row.begin() + std::min(a, b), row.begin() + std::min(a, b) + 1,
                  row.begin() + std::max(a, b) + 1);
      break;
    case 3: row.erase(row.begin() + a); break;
    case 4: {
      const Action copy = row[a];
      row.insert(row.begin() + b, copy);
      break;
    }
    case 5: row[a].kind = static_cast<Kind>(dice.below(5)); break;
    case 6:
      if (dice.below(2) == 0) {
        row[a].micro_batch = dice.from_to(-1, schedule.micro_batches);
      } else {
        row[a].stage = dice.from_to(-1, schedule.stages);
      }
      break;
    case 7:
      std::swap(row, schedule.rows[dice.below(static_cast<uint32_t>(schedule.rows.size()))]);
      break;
    case 8: std::swap(row[a].kind, row[b].kind); break;
    case 9: {
      std::vector<Action>& other =
          schedule.rows[dice.below(static_cast<uint32_t>(schedule.rows.size()))];
      const Action moved = row[a];
      row.erase(row.begin() + a);
      other.insert(other.begin() + dice.below(static_cast<uint32_t>(other.size() + 1)), moved);
      break;
    }
    default: redraw(row, schedule.stages, dice);
  }
}

}  // namespace weft
