// zb-auto: a zero-bubble schedule with one stage per rank, made from measured costs and a limit for
// the memory of each rank.
//
// One number determines the order of F and I on a rank: its forwards before the first I
// ("warm-up"); then I and F alternate. Such a schedule can run if the warm-up does not increase
// from rank to rank: F of micro-batch k on rank r comes after I of k - warm_up(r), and what rank r
// needs for it on rank r-1 comes after I of a micro-batch no later. W is placed by time: arrivals
// are known exactly, because an action is placed only after the one that it needs. A rank runs the
// next W
//   - if the next F or I would exceed the cap without it;
//   - if it fits into the wait for the next arrival;
//   - if it does not quite fit, but the wait is longer than the patience of this try, a share of W.
// On the last rank, each I directly follows its F: a W before F delays I no more than one between
// them, and then nothing is recomputed there (lowering/recompute.h).
// Several warm-ups and patiences are tried, as in the scheduler of the zero-bubble authors. The one
// with the shortest makespan is used, because a step ends when all ranks have ended. zb-h1 and
// zb-h2 are among those tried. Of equal ones, the one that needs the least memory is used; to find
// it, the tries are repeated with a limit that the best one so far exceeds.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/text.h"
#include "schedule/rows.h"

namespace weft {
namespace {

struct Cost {
  double forward = 1, input = 1, weight = 1;
  double held = 1, parked = 1;  // from F to I, and from I to W
  double kept = 0;              // of both
  double fixed = 0;
};

struct Costs {
  std::vector<Cost> ranks;
  double latency = 0, cap = 0;  // cap 0: none
  bool own_slots = false, short_spans = false;
  bool fits(double held) const { return cap <= 0 || held <= cap * (1 + kRounding); }
};

Status read_list(const char* name, const std::vector<double>& list, double Cost::*member,
                 std::vector<Cost>& out) {
  if (list.empty()) return {};
  if (list.size() != out.size())
    return Status(Code::invalid, cat("costs.", name, " has ", list.size(),
                                     " entries, expected one for each of ", out.size(), " stages"));
  for (size_t s = 0; s < list.size(); ++s) {
    if (!std::isfinite(list[s]) || list[s] < 0)
      return Status(Code::invalid,
                    cat("costs.", name, " of stage ", s, " is ", list[s], ", expected 0 or more"));
    out[s].*member = list[s];
  }
  return {};
}

Result<Costs> read_costs(const ScheduleSizes& sizes) {
  const ScheduleCosts& in = sizes.costs;
  Costs out{.ranks = std::vector<Cost>(static_cast<size_t>(sizes.ranks)),
            .latency = in.latency,
            .cap = in.cap,
            .own_slots = !in.kept.empty(),
            .short_spans = in.short_spans};
  WEFT_TRY(read_list("forward", in.forward, &Cost::forward, out.ranks));
  WEFT_TRY(read_list("input", in.input, &Cost::input, out.ranks));
  WEFT_TRY(read_list("weight", in.weight, &Cost::weight, out.ranks));
  WEFT_TRY(read_list("held", in.held, &Cost::held, out.ranks));
  WEFT_TRY(read_list("parked", in.parked.empty() ? in.held : in.parked, &Cost::parked, out.ranks));
  WEFT_TRY(read_list("kept", in.kept, &Cost::kept, out.ranks));
  WEFT_TRY(read_list("fixed", in.fixed, &Cost::fixed, out.ranks));
  for (const auto& [name, value] : {std::pair{"latency", in.latency}, {"cap", in.cap}})
    if (!std::isfinite(value) || value < 0)
      return Status(Code::invalid, cat("costs.", name, " is ", value, ", expected 0 or more"));
  double least = 0;
  size_t most = 0;
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    const Cost& cost = out.ranks[r];
    if (cost.kept > std::min(cost.held, cost.parked))
      return Status(Code::invalid, cat("costs.kept of stage ", r, " is ", cost.kept,
                                       ", expected at most ", std::min(cost.held, cost.parked)));
    const double one = cost.fixed + (out.own_slots ? cost.held + cost.parked - cost.kept
                                                   : std::max(cost.held, cost.parked));
    if (one > least) {
      least = one;
      most = r;
    }
  }
  if (!out.fits(least))
    return Status(Code::invalid,
                  cat("the limit of a rank is ", in.cap, ", expected at least ", least,
                      ", which rank ", most, " holds of a single micro-batch"));
  return out;
}

// The state of a rank during the simulation.
struct RankTime {
  double first = -1, now = 0;                  // start of the first action, end of the last
  int32_t f = 0, i = 0, w = 0;                 // number of actions that have run
  int32_t f_to_i = 0, f_to_w = 0, i_to_w = 0;  // most micro-batches at once between the two
  double peak = 0;                             // maximum held at the same time, without own_slots

  double held(const Cost& cost) const { return cost.held * (f - i) + cost.parked * (i - w); }

  void count(Kind kind) {
    ++(kind == Kind::F ? f : kind == Kind::I ? i : w);
    f_to_i = std::max(f_to_i, f - i), f_to_w = std::max(f_to_w, f - w),
    i_to_w = std::max(i_to_w, i - w);
  }

  // The maximum that the rank holds if it runs such actions next.
  double most_with(std::initializer_list<Kind> kinds, const Costs& costs, const Cost& cost) const {
    RankTime next = *this;
    double at_once = 0;
    for (const Kind kind : kinds) {
      next.count(kind);
      at_once = std::max(at_once, next.held(cost));
    }
    return next.most(costs, cost, at_once);
  }
  double most(const Costs& costs, const Cost& cost, double at_once) const {
    if (!costs.own_slots) return cost.fixed + at_once;
    // A micro-batch still has its slot while the remainder after I gets another.
    return cost.fixed + (cost.held - cost.kept) * f_to_i + cost.kept * f_to_w +
           (cost.parked - cost.kept) * i_to_w;
  }

  void run(Kind kind, double there, const Cost& cost) {
    const double start = std::max(now, there);
    if (first < 0) first = start;
    now = start + (kind == Kind::F ? cost.forward : kind == Kind::I ? cost.input : cost.weight);
    count(kind);
    peak = std::max(peak, held(cost));
  }
};

struct Try {
  std::vector<int32_t> warm_up;
  double patience =
      0;  // patience: the share of W that a rank waits to be ready for the next arrival
  int32_t punctual = 0;  // for this number of last micro-batches, no W delays an I
};

// The times of the actions that have run, and of the arrivals of their results.
class Clock {
 public:
  Clock(const Costs& costs, int32_t micro_batches)
      : costs_(costs),
        micro_batches_(micro_batches),
        ranks_(costs.ranks.size()),
        ends_(2 * costs.ranks.size() * static_cast<size_t>(micro_batches), -1) {}

  const std::vector<RankTime>& ranks() const { return ranks_; }

  // The time at which the data of the next F or I of the rank has arrived; below 0: not known yet.
  double arrival(size_t r, Kind kind) const {
    const bool forward = kind == Kind::F, edge = forward ? r == 0 : r + 1 == ranks_.size();
    const int32_t k = forward ? ranks_[r].f : ranks_[r].i;
    if (edge) return forward ? 0 : end(r, Kind::F, k);
    const double made = end(forward ? r - 1 : r + 1, kind, k);
    return made < 0 ? made : made + costs_.latency;
  }

  void run(size_t r, Kind kind, double there) {
    RankTime& rank = ranks_[r];
    const int32_t k = kind == Kind::F ? rank.f : rank.i;
    rank.run(kind, there, costs_.ranks[r]);
    if (kind != Kind::W) ends_[index(r, kind, k)] = rank.now;
  }

  double makespan() const {
    double out = 0;
    for (const RankTime& rank : ranks_) out = std::max(out, rank.now);
    return out;
  }
  double most_held() const {
    double out = 0;
    for (size_t r = 0; r < ranks_.size(); ++r)
      out = std::max(out, ranks_[r].most(costs_, costs_.ranks[r], ranks_[r].peak));
    return out;
  }
  double longest_span() const {
    double out = 0;
    for (const RankTime& rank : ranks_) out = std::max(out, rank.now - rank.first);
    return out;
  }

 private:
  size_t index(size_t r, Kind kind, int32_t k) const {
    return (2 * r + (kind == Kind::F ? 0 : 1)) * static_cast<size_t>(micro_batches_) +
           static_cast<size_t>(k);
  }
  double end(size_t r, Kind kind, int32_t k) const { return ends_[index(r, kind, k)]; }

  const Costs& costs_;
  const int32_t micro_batches_;
  std::vector<RankTime> ranks_;
  std::vector<double> ends_;  // of F and I of each rank; below 0: has not run
};

// Calls step(r) for each rank until it returns that the rank must wait, and again when an adjacent
// rank has run.
template <typename Step>
void run_all(size_t ranks, Step&& step) {
  std::vector<size_t> movable;
  for (size_t r = ranks; r-- > 0;) movable.push_back(r);
  while (!movable.empty()) {
    const size_t r = movable.back();
    movable.pop_back();
    for (std::optional<Kind> ran = step(r); ran; ran = step(r)) {
      if (*ran == Kind::F && r + 1 < ranks) movable.push_back(r + 1);
      if (*ran == Kind::I && r > 0) movable.push_back(r - 1);
    }
  }
}

// Writes the rows of a try.
class Lister {
 public:
  Lister(const Costs& costs, const Try& one, Schedule& schedule)
      : costs_(costs), try_(one), schedule_(schedule), clock_(costs, schedule.micro_batches) {}

  const Clock& run() {
    run_all(costs_.ranks.size(), [this](size_t r) { return step(r); });
    for (size_t r = 0; r < costs_.ranks.size(); ++r)
      while (clock_.ranks()[r].w < schedule_.micro_batches) put(r, Kind::W, 0);
    return clock_;
  }

 private:
  std::optional<Kind> step(size_t r) {
    const RankTime& rank = clock_.ranks()[r];
    if (rank.i == schedule_.micro_batches) return {};
    const bool forward = rank.f < schedule_.micro_batches && rank.f < try_.warm_up[r] + rank.i;
    const Kind kind = forward ? Kind::F : Kind::I;
    const double there = clock_.arrival(r, kind);
    if (there < 0) return {};
    if (r + 1 < costs_.ranks.size()) {
      put_due(r, {kind}, there);
    } else if (forward) {
      put_due(r, {Kind::F, Kind::I}, there);
    }
    put(r, kind, there);
    return kind;
  }

  // Those W that run before the next F or I, or before the next F and its I.
  void put_due(size_t r, std::initializer_list<Kind> next, double there) {
    const RankTime& rank = clock_.ranks()[r];
    const Cost& cost = costs_.ranks[r];
    while (costs_.cap > 0 && due(rank) && !costs_.fits(rank.most_with(next, costs_, cost)))
      put(r, Kind::W, 0);
    while (due(rank) && rank.now + cost.weight <= there + kRounding * there) put(r, Kind::W, 0);
    const bool late_is_fine =
        *next.begin() == Kind::F || rank.i + try_.punctual < schedule_.micro_batches;
    if (due(rank) && late_is_fine &&
        there - rank.now > try_.patience * cost.weight + kRounding * there)
      put(r, Kind::W, 0);
  }

  static bool due(const RankTime& rank) { return rank.w < rank.i; }

  void put(size_t r, Kind kind, double there) {
    const RankTime& rank = clock_.ranks()[r];
    const int32_t k = kind == Kind::F ? rank.f : kind == Kind::I ? rank.i : rank.w;
    schedule_.rows[r].push_back({static_cast<int32_t>(r), kind, k});
    clock_.run(r, kind, there);
  }

  const Costs& costs_;
  const Try& try_;
  Schedule& schedule_;
  Clock clock_;
};

// The times of rows that do not contain times.
Clock played(const Costs& costs, const Schedule& schedule) {
  Clock clock(costs, schedule.micro_batches);
  std::vector<size_t> next(schedule.rows.size(), 0);
  run_all(schedule.rows.size(), [&](size_t r) -> std::optional<Kind> {
    if (next[r] == schedule.rows[r].size()) return {};
    while (next[r] < schedule.rows[r].size() && schedule.rows[r][next[r]].kind == Kind::R)
      ++next[r];  // its time is part of I
    const Kind kind = schedule.rows[r][next[r]].kind;
    const double there = kind == Kind::W ? 0 : clock.arrival(r, kind);
    if (there < 0) return {};
    clock.run(r, kind, there);
    ++next[r];
    return kind;
  });
  return clock;
}

// The maximum number of forwards between F and I under the limit, at least that of the next rank.
std::vector<int32_t> warm_ups(const Costs& costs, const std::vector<double>& wanted,
                              int32_t micro_batches) {
  std::vector<int32_t> out(wanted.size());
  double most = 1;
  for (size_t r = wanted.size(); r-- > 0;) {
    most = std::max(most, wanted[r]);
    out[r] = static_cast<int32_t>(std::clamp<double>(most, 1, micro_batches));
  }
  for (size_t r = 0; r < out.size(); ++r) {
    const Cost& cost = costs.ranks[r];
    if (costs.cap > 0 && cost.held > 0) {
      // The last of them must still run I, which may keep more than it frees.
      const double last =
          costs.own_slots ? cost.held + cost.parked - cost.kept : std::max(cost.held, cost.parked);
      const double room =
          1 + std::floor((costs.cap * (1 + kRounding) - cost.fixed - last) / cost.held);
      out[r] = static_cast<int32_t>(std::clamp<double>(room, 1, out[r]));
    }
    if (r > 0) out[r] = std::min(out[r], out[r - 1]);
  }
  return out;
}

// As many forwards as fit into the time until the first gradient comes back, two per later rank,
// one; each also with one more.
std::vector<std::vector<int32_t>> all_warm_ups(const Costs& costs, int32_t micro_batches) {
  std::vector<std::vector<int32_t>> out;
  const size_t p = costs.ranks.size();
  for (const int extra : {0, 1})
    for (const int way : {3, 2, 1}) {
      std::vector<double> wanted(p);
      double round_trip = 0;
      for (size_t r = p; r-- > 0;) {
        const Cost& cost = costs.ranks[r];
        const double fit = cost.forward > 0 ? std::floor(round_trip / cost.forward) : micro_batches;
        wanted[r] =
            r + 1 == p ? 1 : 1 + extra + (way == 3 ? fit : way * static_cast<double>(p - 1 - r));
        round_trip += cost.forward + cost.input + 2 * costs.latency;
      }
      out.push_back(warm_ups(costs, wanted, micro_batches));
    }
  return out;
}

class Best {
 public:
  Best(const Costs& costs, const std::function<std::vector<double>(const Schedule&)>& excess,
       Schedule empty)
      : costs_(costs), excess_(excess), empty_(std::move(empty)) {}

  void offer(Schedule schedule, const Clock& clock) {
    if (!costs_.fits(clock.most_held())) return;
    std::array<double, 3> price = {clock.makespan(), clock.most_held(), clock.longest_span()};
    if (costs_.short_spans) std::swap(price[1], price[2]);
    for (size_t i = 0; found_ && i < price.size(); ++i) {
      if (price[i] > price_[i] + kRounding * price_[i]) return;
      if (price[i] < price_[i] - kRounding * price_[i]) break;
      if (i + 1 == price.size()) return;
    }
    if (excess_ && !fits_exactly(schedule)) return;
    found_ = std::move(schedule);
    price_ = price;
  }

  void offer(const Try& one) {
    Schedule schedule = empty_;
    Lister lister(costs_, one, schedule);
    const Clock& clock = lister.run();
    offer(std::move(schedule), clock);
  }

  std::optional<Schedule>& found() { return found_; }
  // The smallest excess of the orders that were refused for it since the last call; empty: there
  // was none.
  std::vector<double> take_excess() { return std::exchange(least_excess_, {}); }
  double most_held() const { return price_[costs_.short_spans ? 2 : 1]; }

 private:
  bool fits_exactly(const Schedule& schedule) {
    std::vector<double> excess = excess_(schedule);
    const auto most = [](const std::vector<double>& list) {
      return *std::max_element(list.begin(), list.end());
    };
    if (most(excess) <= 0) return true;
    if (least_excess_.empty() || most(excess) < most(least_excess_))
      least_excess_ = std::move(excess);
    return false;
  }

  const Costs& costs_;
  const std::function<std::vector<double>(const Schedule&)>& excess_;
  const Schedule empty_;
  std::vector<double> least_excess_;
  std::optional<Schedule> found_;
  std::array<double, 3> price_ = {};
};

// The number of tries is bounded by time: for large schedules only a few are made, the most
// promising first.
constexpr int64_t kTriedActions = int64_t{1} << 24;

int64_t actions_of(const ScheduleSizes& sizes) {
  return int64_t{3} * sizes.ranks * sizes.micro_batches;
}

void try_all(const Costs& costs, const ScheduleSizes& sizes, Best& best, int64_t& left) {
  const auto ways = all_warm_ups(costs, sizes.micro_batches);
  for (const int32_t punctual : {1, 0})
    for (const double patience : {0.5, 0., 1.})
      for (const auto& warm_up : ways) {
        if (left < 0 && best.found()) return;
        best.offer({.warm_up = warm_up, .patience = patience, .punctual = punctual});
        left -= actions_of(sizes);
      }
}

}  // namespace

Result<Schedule> make_zb_auto(const ScheduleSizes& sizes) {
  WEFT_TRY_ASSIGN(Schedule empty, begin_schedule({.name = "zb-auto", .kinds = 3}, sizes));
  WEFT_TRY_ASSIGN(Costs costs, read_costs(sizes));
  const double cap = costs.cap;
  Best best(costs, sizes.costs.excess, std::move(empty));
  int64_t left = kTriedActions;
  for (const auto make : {make_zb_h1, make_zb_h2}) {
    if (left < kTriedActions / 2) break;
    WEFT_TRY_ASSIGN(Schedule closed,
                    make({.ranks = sizes.ranks, .micro_batches = sizes.micro_batches}));
    const Clock clock = played(costs, closed);
    best.offer(std::move(closed), clock);
    left -= actions_of(sizes);
  }
  try_all(costs, sizes, best, left);
  // The costs do not include messages in transit. Ranks without enough memory for them get a lower
  // limit for the rest.
  for (std::vector<double> excess; left > 0 && !(excess = best.take_excess()).empty();) {
    for (size_t r = 0; r < excess.size(); ++r)
      if (excess[r] > 0) costs.ranks[r].fixed += std::max(excess[r], costs.cap / 256);
    try_all(costs, sizes, best, left);
  }
  for (double held = INFINITY; best.found() && left > 0 && best.most_held() < held;) {
    held = best.most_held();
    costs.cap = held * (1 - 2 * kRounding);
    if (costs.cap > 0) try_all(costs, sizes, best, left);
  }
  if (!best.found())
    return Status(Code::invalid,
                  cat("every order of actions that was tried for ", sizes.ranks,
                      " ranks exceeds the limit of ", cap, "; a fixed schedule may need less"));
  return std::move(*best.found());
}

Result<double> listed_time(const Schedule& schedule, const ScheduleCosts& costs) {
  WEFT_TRY_ASSIGN(Costs read, read_costs({.ranks = schedule.ranks(),
                                          .micro_batches = schedule.micro_batches,
                                          .costs = costs}));
  return played(read, schedule).makespan();
}

}  // namespace weft
