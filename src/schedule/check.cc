// The structure of a schedule, row by row, and the slots and peaks that follow from it; the proof
// that it has no deadlock is in deadlock.cc. Actions are counted from 0 within a row, as in all
// errors.
//
// Micro-batches ascend. Therefore a stage always holds consecutive micro-batches, and a ring of
// `slots` (or of the size of a peak) is sufficient, with micro-batch k in slot k mod size. A
// forward-only schedule keeps nothing beyond F: its peaks are 0, and so are the gradient slots of
// an edge that carries no gradient.
#include "schedule/check.h"

#include <algorithm>

#include "base/text.h"
#include "schedule/deadlock.h"

namespace weft {
namespace {

class Structure {
 public:
  explicit Structure(const Schedule& schedule) : schedule_(schedule) {}

  Status read() {
    WEFT_TRY(read_sizes());
    counts_.resize(static_cast<size_t>(schedule_.cells()));
    peaks.resize(static_cast<size_t>(schedule_.stages));
    for (int32_t r = 0; r < schedule_.ranks(); ++r) {
      const auto& row = schedule_.rows[static_cast<size_t>(r)];
      for (size_t a = 0; a < row.size(); ++a)
        if (!read_action(r, row[a]))
          return Status(Code::invalid,
                        cat("rank ", r, ", action ", a, " (", row[a].text(), "): ", fault_));
      if (row.empty())
        return Status(Code::invalid, cat("rank ", r, " has no action, expected at least one"));
    }
    return read_ends();
  }

  bool has_r(int32_t stage) const { return counts_[cell(stage, 0)].r > 0; }

  std::vector<StagePeaks> peaks;

 private:
  Status read_sizes() const {
    if (schedule_.stages < 1)
      return Status(Code::invalid, cat("stages is ", schedule_.stages, ", expected 1 or more"));
    if (schedule_.micro_batches < 1)
      return Status(Code::invalid,
                    cat("micro_batches is ", schedule_.micro_batches, ", expected 1 or more"));
    if (schedule_.updates < 0 ||
        (schedule_.updates > 0 && schedule_.micro_batches % schedule_.updates != 0))
      return Status(Code::invalid,
                    cat(schedule_.micro_batches, " micro-batches cannot be divided into ",
                        schedule_.updates, " equal updates"));
    if (schedule_.rank_of_stage.size() != static_cast<size_t>(schedule_.stages))
      return Status(Code::invalid,
                    cat("rank_of_stage has ", schedule_.rank_of_stage.size(),
                        " entries, expected one for each ", "of ", schedule_.stages, " stages"));
    for (size_t s = 0; s < schedule_.rank_of_stage.size(); ++s)
      if (const int32_t r = schedule_.rank_of_stage[s]; r < 0 || r >= schedule_.ranks())
        return Status(Code::invalid, cat("stage ", s, " is on rank ", r, ", expected one of ",
                                         schedule_.ranks(), " ranks"));
    return schedule_.replicas.empty() ? Status() : read_replicas();
  }

  // Stages are on consecutive ranks.
  Status read_replicas() const {
    if (schedule_.replicas.size() != static_cast<size_t>(schedule_.stages))
      return Status(Code::invalid,
                    cat("replicas has ", schedule_.replicas.size(),
                        " entries, expected one for each of ", schedule_.stages, " stages"));
    int32_t next = 0;
    for (int32_t s = 0; s < schedule_.stages; ++s) {
      const int32_t own = schedule_.replicas_of(s),
                    first = schedule_.rank_of_stage[static_cast<size_t>(s)];
      if (own < 1 || first != next || own > schedule_.ranks() - first)
        return Status(Code::invalid,
                      cat("stage ", s, " has ", own, " replicas from rank ", first,
                          " on, expected the ranks from ", next, " to ", schedule_.ranks() - 1));
      if (schedule_.micro_batches != schedule_.updates && schedule_.updates > 0 &&
          own != schedule_.replicas_of(0))
        return Status(
            Code::invalid,
            "stages with unlike numbers of replicas take updates of one micro-batch each");
      if (schedule_.updates % own != 0)
        return Status(Code::invalid, cat(schedule_.updates, " updates of a segment are not a ",
                                         "multiple of the ", own, " replicas of stage ", s));
      next += own;
    }
    return {};
  }

  // The number of completed micro-batches of a stage, per phase, and of updates.
  struct Counts {
    int32_t f = 0, r = 0, i = 0, w = 0, o = 0;
  };

  // Whether the action is allowed here; otherwise sets `fault_` to the reason.
  bool read_action(int32_t r, const Action& action) {
    if (action.stage < 0 || action.stage >= schedule_.stages)
      return no(cat("the stages are 0 to ", schedule_.stages - 1));
    const int32_t stage = action.stage, first = schedule_.rank_of_stage[static_cast<size_t>(stage)],
                  own = schedule_.replicas_of(stage);
    if (r < first || r >= first + own)
      return no(cat("stage ", stage, " belongs to rank ", first,
                    own > 1 ? cat(" to ", first + own - 1) : std::string()));
    if (schedule_.forward_only && action.kind != Kind::F) return no("the schedule is forward only");
    if (action.kind == Kind::O) return read_update(action, r);
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches)
      return no(cat("the micro-batches are 0 to ", schedule_.micro_batches - 1));
    if (const int32_t owner = schedule_.rank_of(stage, action.micro_batch); owner != r)
      return no(
          cat("micro-batch ", action.micro_batch, " of stage ", stage, " belongs to rank ", owner));

    Counts& n = counts_[cell(stage, action.micro_batch)];
    const Turn f{Kind::F, n.f}, again{Kind::R, n.r}, i{Kind::I, n.i};
    switch (action.kind) {
      case Kind::F: return take(action, Kind::F, n.f, nullptr) && note_peaks(stage, n);
      case Kind::R:
        if (n.i > n.r) return no(ran_before(r, stage, Kind::I, at_turn(action, n.r)));
        return take(action, Kind::R, n.r, &f);
      case Kind::I:
        return take(action, Kind::I, n.i, n.r > 0 ? &again : &f) && note_peaks(stage, n);
      case Kind::W: return take(action, Kind::W, n.w, &i);
      case Kind::B: {
        if (!take(action, Kind::I, n.i, n.r > 0 ? &again : &f) || !note_peaks(stage, n))
          return false;
        const Turn now{Kind::I, n.i};
        return take(action, Kind::W, n.w, &now);
      }
      case Kind::O: break;
    }
    // It can only come from an error of a reader. It must not count as an action without an effect.
    return no("unknown kind of action");
  }

  bool no(std::string why) {
    fault_ = std::move(why);
    return false;
  }

  // An update needs the complete sums of its own micro-batches and no others.
  bool read_update(const Action& action, int32_t rank) {
    if (schedule_.updates == 0) return no("the schedule is synchronous");
    const int32_t s = action.stage, u = action.micro_batch, own = schedule_.replicas_of(s),
                  replica = rank - schedule_.rank_of_stage[static_cast<size_t>(s)];
    if (u < 0 || u >= schedule_.updates_of(s))
      return no(cat("the updates are 0 to ", schedule_.updates_of(s) - 1));
    Counts& n = counts_[cell(s, replica)];
    const int32_t whole = (u + 1) * schedule_.per_update();
    if (u < n.o) return no(ran_before(rank, s, Kind::O, u));
    if (u > n.o) return no(cat("stage ", s, " has not run ", s, "O", n.o, ", and updates ascend"));
    if (n.w < whole) return no(not_run(rank, s, Kind::W, n.w * own + replica));
    if (n.w > whole)
      return no(ran_before(rank, s, Kind::W, whole * own + replica, " of the next update"));
    ++n.o;
    return true;
  }

  size_t cell(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(schedule_.cell_of(stage, micro_batch));
  }
  // The micro-batch of this turn in the cell of the action.
  int32_t at_turn(const Action& action, int32_t turn) const {
    const int32_t own = schedule_.replicas_of(action.stage);
    return turn * own + action.micro_batch % own;
  }

  // A phase, and its number of completed micro-batches.
  struct Turn {
    Kind kind;
    int32_t count;
  };

  // Counts the micro-batch if it is the next one and has completed `before`.
  bool take(const Action& action, Kind kind, int32_t& count, const Turn* before) {
    const int32_t k = schedule_.turn_of(action.stage, action.micro_batch);
    if (k == count && (!before || k < before->count)) {
      ++count;
      return true;
    }
    const int32_t rank = schedule_.rank_of(action.stage, action.micro_batch);
    if (k < count) return no(ran_before(rank, action.stage, kind, action.micro_batch));
    if (before && k >= before->count)
      return no(not_run(rank, action.stage, before->kind, at_turn(action, k)));
    return no(cat(not_run(rank, action.stage, kind, at_turn(action, count)),
                  ", and micro-batches ascend"));
  }

  // The action as the row names it, or would: B is I and W.
  std::string name_of(int32_t rank, int32_t stage, Kind kind, int32_t micro_batch) const {
    bool has_b = false;
    for (const Action& a : schedule_.rows[static_cast<size_t>(rank)]) {
      if (a.stage != stage) continue;
      has_b = has_b || a.kind == Kind::B;
      if (a.micro_batch == micro_batch && (a.kind == Kind::I || a.kind == Kind::W))
        return Action{stage, kind, micro_batch}.text();
    }
    const bool in_b = has_b && (kind == Kind::I || kind == Kind::W);
    return Action{stage, in_b ? Kind::B : kind, micro_batch}.text();
  }

  std::string not_run(int32_t rank, int32_t stage, Kind kind, int32_t micro_batch) const {
    return cat("stage ", stage, " has not run ", name_of(rank, stage, kind, micro_batch));
  }

  // For an action that has been checked.
  std::string ran_before(int32_t rank, int32_t stage, Kind kind, int32_t micro_batch,
                         std::string_view of_what = {}) const {
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    const bool in_b = kind == Kind::I || kind == Kind::W;
    const auto it = std::find_if(row.begin(), row.end(), [&](const Action& a) {
      return a.stage == stage && a.micro_batch == micro_batch &&
             (a.kind == kind || (in_b && a.kind == Kind::B));
    });
    return cat("stage ", stage, " ran ", it->text(), of_what, " before, at action ",
               it - row.begin());
  }

  // After an F or an I, before the W of the same action: then the counts are at their highest.
  bool note_peaks(int32_t stage, const Counts& n) {
    if (schedule_.forward_only) return true;
    StagePeaks& peak = peaks[static_cast<size_t>(stage)];
    peak.f_to_r = std::max(peak.f_to_r, n.f - n.r);
    peak.f_to_i = std::max(peak.f_to_i, n.f - n.i);
    peak.f_to_w = std::max(peak.f_to_w, n.f - n.w);
    peak.i_to_w = std::max(peak.i_to_w, n.i - n.w);
    return true;
  }

  // All actions were in order, so that a count that is too small lacks its last micro-batches.
  Status read_ends() const {
    for (int32_t s = 0; s < schedule_.stages; ++s)
      for (int32_t i = 0; i < schedule_.replicas_of(s); ++i) WEFT_TRY(read_end(s, i));
    return {};
  }

  Status read_end(int32_t s, int32_t replica) const {
    const int32_t own = schedule_.replicas_of(s), after = schedule_.micro_batches - 1 - replica,
                  all = after < 0 ? 0 : after / own + 1;
    const Counts& n = counts_[cell(s, replica)];
    const auto missing = [&](Kind kind, int32_t number) {
      const int32_t r = schedule_.rank_of(s, replica);
      return Status(Code::invalid,
                    cat("rank ", r, ", action ", schedule_.rows[static_cast<size_t>(r)].size(),
                        " (end of row): ", not_run(r, s, kind, number)));
    };
    const auto missing_turn = [&](Kind kind, int32_t turn) {
      return missing(kind, turn * own + replica);
    };
    if (n.f < all) return missing_turn(Kind::F, n.f);
    if (schedule_.forward_only) return {};
    if (n.r > 0 && n.r < all) return missing_turn(Kind::R, n.r);
    if (n.i < all) return missing_turn(Kind::I, n.i);
    if (n.w < all) return missing_turn(Kind::W, n.w);
    if (n.o < schedule_.updates_of(s)) return missing(Kind::O, n.o);
    return {};
  }

  const Schedule& schedule_;
  std::vector<Counts> counts_;  // per cell
  std::string fault_;
};

Status check_edges(const Schedule& schedule, const Structure& structure,
                   const std::vector<StageEdge>& edges) {
  for (size_t e = 0; e < edges.size(); ++e) {
    const StageEdge& edge = edges[e];
    const auto fault = [&](std::string_view text) {
      return Status(Code::invalid,
                    cat("edge ", e, " (stage ", edge.from, " to ", edge.to, "): ", text));
    };
    if (edge.from < 0 || edge.to >= schedule.stages)
      return fault(cat("the stages are 0 to ", schedule.stages - 1));
    if (edge.from >= edge.to) return fault("expected a tensor to travel to a later stage");
    if (edge.forward_until > Kind::W)
      return fault(
          cat("forward_until is ", kind_letter(edge.forward_until), ", expected F, R, I or W"));
    if (edge.forward_until == Kind::R && !structure.has_r(edge.to))
      return fault(cat("forward_until is R, but stage ", edge.to, " has no R"));
    if (edge.gradient && edge.gradient_until != Kind::I && edge.gradient_until != Kind::W)
      return fault(
          cat("gradient_until is ", kind_letter(edge.gradient_until), ", expected I or W"));
  }
  return {};
}

// The maximum number of micro-batches that hold a slot at the same time, in the receiver's program
// order. A slot is held from the start of the action that receives into it to the end of the action
// that releases it, so that these are the peaks of the receiver.
EdgeSlots held(const StageEdge& edge, const std::vector<StagePeaks>& peaks, bool forward_only) {
  EdgeSlots most{.forward = 1, .gradient = 0};
  if (forward_only) return most;
  const StagePeaks& to = peaks[static_cast<size_t>(edge.to)];
  if (edge.forward_until == Kind::R) most.forward = to.f_to_r;
  if (edge.forward_until == Kind::I) most.forward = to.f_to_i;
  if (edge.forward_until == Kind::W) most.forward = to.f_to_w;
  if (edge.gradient)
    most.gradient =
        edge.gradient_until == Kind::W ? peaks[static_cast<size_t>(edge.from)].i_to_w : 1;
  return most;
}

}  // namespace

Result<Checked> check_schedule(const Schedule& schedule, const std::vector<StageEdge>& edges,
                               int32_t slack) {
  if (slack < 0) return Status(Code::invalid, cat("slack is ", slack, ", expected 0 or more"));
  Structure structure(schedule);
  WEFT_TRY(structure.read());
  WEFT_TRY(check_edges(schedule, structure, edges));

  Checked checked;
  checked.peaks = std::move(structure.peaks);
  const auto with_slack = [&](int32_t most) {
    return static_cast<int32_t>(std::min(int64_t{most} + slack, int64_t{schedule.micro_batches}));
  };
  checked.slots.reserve(edges.size());
  for (const StageEdge& edge : edges) {
    const EdgeSlots most = held(edge, checked.peaks, schedule.forward_only);
    checked.slots.push_back(
        {with_slack(most.forward), most.gradient ? with_slack(most.gradient) : 0});
  }
  WEFT_TRY(check_deadlock(schedule, edges, checked.slots));
  return checked;
}

}  // namespace weft
