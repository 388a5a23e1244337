// Deadlock freedom as a topological sort. The graph has the actions as its nodes and three kinds of
// arrows:
//
// * Program order: an action runs after the one before it in its row.
// * Data: F of micro-batch k at `to` runs after F of k at `from`, and for a gradient, I of k at
//   `from` after I of k at `to`.
// * Grant: with n slots, the message of k uses slot k mod n. It, and the action that receives
//   it, comes after the action that releases the slot of k - n: `forward_until` at `to`,
//   `gradient_until` at `from`.
//
// An update of a stage with replicas runs after the last W of each of them, which sends its sums.
//
// A sender does not wait for a grant: its outgoing value waits in a slot of the sender, and the
// lowering plans enough of them. So no arrow leads from a grant to the action that makes the
// tensor. If both stages are on one rank, the same arrows apply.
//
// An action has one predecessor in its row. Therefore the graph is not built: each rank is walked
// to its first action that must wait, and further when that wait ends. Micro-batches ascend, so
// that one count per phase describes what a stage has run. If the walk ends early, every remaining
// rank waits for a remaining rank, and following the waits leads to a cycle.
#include "schedule/deadlock.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "schedule/lock_step.h"

namespace weft {
namespace {

// A cycle can contain a thousand ranks; an error shows the first few.
constexpr size_t kShownWaits = 8;

// An action that another action needs: a phase of a stage for a micro-batch.
struct Need {
  Phase phase = kPhaseF;
  int32_t stage = 0, micro_batch = 0;
};

struct Spot {
  int32_t rank = 0, position = 0;
};

Phase phase_of(Kind kind) {
  return kind == Kind::F   ? kPhaseF
         : kind == Kind::R ? kPhaseR
         : kind == Kind::W ? kPhaseW
                           : kPhaseI;  // B is W as well
}

class Walk {
 public:
  Walk(const Schedule& schedule, const std::vector<StageEdge>& edges,
       const std::vector<EdgeSlots>& slots)
      : schedule_(schedule),
        edges_(edges),
        slots_(slots),
        into_(static_cast<size_t>(schedule.stages)),
        back_into_(into_.size()),
        cells_(static_cast<size_t>(schedule.cells())),
        ranks_(schedule.rows.size()) {
    for (size_t e = 0; e < edges.size(); ++e) {
      into_[static_cast<size_t>(edges[e].to)].push_back(e);
      if (edges[e].gradient && !schedule.forward_only)
        back_into_[static_cast<size_t>(edges[e].from)].push_back(e);
    }
  }

  Status run() {
    std::vector<int32_t> movable;
    for (int32_t r = schedule_.ranks(); r-- > 0;) movable.push_back(r);
    while (!movable.empty()) {
      const int32_t r = movable.back();
      movable.pop_back();
      advance(r, movable);
    }
    for (int32_t r = 0; r < schedule_.ranks(); ++r)
      if (!at_end(r)) return cycle_from(r);
    return {};
  }

 private:
  struct RankState {
    int32_t next = 0;          // the first action that has not run
    size_t arrow = 0;          // arrows into it that are already satisfied
    Need waits_for;            // if it waits
    int32_t next_waiter = -1;  // rank that waits for the same stage and phase
  };
  struct CellState {
    std::array<int32_t, kPhases> ran = {};  // micro-batches
    std::array<int32_t, kPhases> waiters = {-1, -1, -1,
                                            -1};  // first rank that waits for more of them, or -1
  };

  RankState& rank(int32_t r) { return ranks_[static_cast<size_t>(r)]; }
  CellState& cell(int32_t stage, int32_t micro_batch) {
    return cells_[static_cast<size_t>(schedule_.cell_of(stage, micro_batch))];
  }
  int32_t home(const Need& need) const { return schedule_.rank_of(need.stage, need.micro_batch); }
  const std::vector<Action>& row(int32_t r) const { return schedule_.rows[static_cast<size_t>(r)]; }
  bool at_end(int32_t r) { return static_cast<size_t>(rank(r).next) == row(r).size(); }

  // Arrows into an action other than program order, two per edge: data, then grant. False when
  // there are no more of them.
  bool arrow(const Action& action, size_t index, bool& exists, Need& from) const {
    if (action.kind == Kind::W || action.kind == Kind::R) return false;
    const int32_t own = schedule_.replicas_of(action.stage);
    if (action.kind == Kind::O) {
      exists = true;
      const auto replica = static_cast<int32_t>(index);
      if (own == 1 || replica >= own) return false;
      from = {kPhaseW, action.stage, schedule_.last_of(action.stage, action.micro_batch, replica)};
      return true;
    }
    const bool forward = action.kind == Kind::F;
    const auto& list = (forward ? into_ : back_into_)[static_cast<size_t>(action.stage)];
    if (index / 2 >= list.size()) return false;
    const StageEdge& edge = edges_[list[index / 2]];
    const EdgeSlots& slots = slots_[list[index / 2]];
    exists = true;
    if (index % 2 == 0) {
      from = {forward ? kPhaseF : kPhaseI, forward ? edge.from : edge.to, action.micro_batch};
      return true;
    }
    const int32_t earlier = action.micro_batch - own * (forward ? slots.forward : slots.gradient);
    exists = earlier >= 0;
    const Kind until = !forward                 ? edge.gradient_until
                       : schedule_.forward_only ? Kind::F
                                                : edge.forward_until;
    if (exists) from = {phase_of(until), action.stage, earlier};
    return true;
  }

  // True if the next action of `r` can run; else `waits_for` is the action that it needs first.
  bool ready(int32_t r) {
    RankState& state = rank(r);
    const Action& action = row(r)[static_cast<size_t>(state.next)];
    bool exists = false;
    for (Need from; arrow(action, state.arrow, exists, from); ++state.arrow)
      if (exists && cell(from.stage, from.micro_batch).ran[from.phase] <=
                        schedule_.turn_of(from.stage, from.micro_batch)) {
        state.waits_for = from;
        return false;
      }
    return true;
  }

  void advance(int32_t r, std::vector<int32_t>& movable) {
    RankState& state = rank(r);
    while (!at_end(r)) {
      if (!ready(r)) {
        const Need& need = state.waits_for;
        int32_t& first = cell(need.stage, need.micro_batch).waiters[need.phase];
        state.next_waiter = first;
        first = r;
        return;
      }
      const Action& action = row(r)[static_cast<size_t>(state.next)];
      if (action.kind != Kind::O) count(action, phase_of(action.kind), movable);
      if (action.kind == Kind::B) count(action, kPhaseW, movable);
      ++state.next;
      state.arrow = 0;
    }
  }

  // The next micro-batch of the phase has run; ranks that waited for it can continue.
  void count(const Action& action, Phase phase, std::vector<int32_t>& movable) {
    CellState& state = cell(action.stage, action.micro_batch);
    const int32_t ran = ++state.ran[phase];
    for (int32_t* link = &state.waiters[phase]; *link >= 0;) {
      RankState& waiter = rank(*link);
      const Need& need = waiter.waits_for;
      if (schedule_.turn_of(need.stage, need.micro_batch) < ran) {
        movable.push_back(*link);
        *link = waiter.next_waiter;
      } else {
        link = &waiter.next_waiter;
      }
    }
  }

  Status cycle_from(int32_t r) {
    // After as many hops as there are ranks, the walk is on the cycle.
    for (size_t hop = 0; hop < ranks_.size(); ++hop) r = home(rank(r).waits_for);
    // The text begins with the lowest rank, so that a cycle has one text.
    for (int32_t on = home(rank(r).waits_for), end = r; on != end; on = home(rank(on).waits_for))
      r = std::min(r, on);
    std::string text = cat("rank ", r, ", action ", rank(r).next, " (", text_at({r, rank(r).next}),
                           "): waits in a cycle: for ");
    size_t waits = 0;
    int32_t at = r;
    do {
      const Spot need = find(rank(at).waits_for);
      if (waits++ < kShownWaits) {
        if (at != r) text += ", which waits for ";
        text += cat(text_at(need), " (rank ", need.rank, ", action ", need.position, ")");
        const int32_t head = rank(need.rank).next;
        if (head != need.position)
          text += cat(", behind ", text_at({need.rank, head}), " (action ", head, ")");
      }
      at = need.rank;
    } while (at != r);
    if (waits > kShownWaits) text += cat(", and on over ", waits - kShownWaits, " more ranks");
    return Status(Code::invalid, std::move(text));
  }

  // The position of that action, which has not run.
  Spot find(const Need& need) {
    Spot spot{home(need), rank(home(need)).next};
    const auto is_it = [&need](const Action& a) {
      return a.stage == need.stage && a.micro_batch == need.micro_batch && a.kind != Kind::O &&
             (phase_of(a.kind) == need.phase || (a.kind == Kind::B && need.phase == kPhaseW));
    };
    while (!is_it(row(spot.rank)[static_cast<size_t>(spot.position)])) ++spot.position;
    return spot;
  }

  std::string text_at(Spot spot) const {
    return row(spot.rank)[static_cast<size_t>(spot.position)].text();
  }

  const Schedule& schedule_;
  const std::vector<StageEdge>& edges_;
  const std::vector<EdgeSlots>& slots_;
  std::vector<std::vector<size_t>> into_,
      back_into_;  // per stage: edges whose tensor, or gradient, it receives
  std::vector<CellState> cells_;
  std::vector<RankState> ranks_;
};

}  // namespace

Status check_deadlock(const Schedule& schedule, const std::vector<StageEdge>& edges,
                      const std::vector<EdgeSlots>& slots) {
  return Walk(schedule, edges, slots).run();
}

}  // namespace weft
