// The structure of a schedule, row by row, and the places and peaks that follow from it; the proof that it never stands still is
// in deadlock.cc. Actions are counted from 0 within a row, like everything that errors name.
//
// Micro-batches ascend, so what a stage holds at any time is a run of consecutive micro-batches: a ring of `places` (or of a
// peak's size) serves, with micro-batch k in place k mod size. A forward-only schedule keeps nothing beyond F: its peaks are 0,
// and so are the gradient places of an edge that carries no gradient.
#include "plan/check.h"

#include <algorithm>

#include "base/text.h"
#include "plan/deadlock.h"

namespace weft {
namespace {

class Structure {
 public:
  explicit Structure(const Schedule& schedule) : schedule_(schedule) {}

  Status read() {
    WEFT_TRY(read_sizes());
    const auto stages = static_cast<size_t>(schedule_.stages);
    positions.f.resize(stages);
    positions.r.resize(stages);
    positions.i.resize(stages);
    positions.w.resize(stages);
    peaks.resize(stages);
    updates_.resize(stages);
    for (int32_t r = 0; r < schedule_.ranks(); ++r) {
      const auto& row = schedule_.rows[static_cast<size_t>(r)];
      for (size_t a = 0; a < row.size(); ++a)
        if (std::string fault = read_action(r, static_cast<int32_t>(a), row[a]); !fault.empty())
          return Status(Code::invalid, cat("rank ", r, ", action ", a, " (", row[a].text(), "): ", fault));
      if (row.empty()) return Status(Code::invalid, cat("rank ", r, " has no action, expected at least one"));
    }
    return read_ends();
  }

  Positions positions;
  std::vector<StagePeaks> peaks;

 private:
  Status read_sizes() const {
    if (schedule_.stages < 1) return Status(Code::invalid, cat("stages is ", schedule_.stages, ", expected 1 or more"));
    if (schedule_.micro_batches < 1)
      return Status(Code::invalid, cat("micro_batches is ", schedule_.micro_batches, ", expected 1 or more"));
    if (schedule_.updates < 0 || (schedule_.updates > 0 && schedule_.micro_batches % schedule_.updates != 0))
      return Status(Code::invalid, cat(schedule_.micro_batches, " micro-batches make no ", schedule_.updates, " updates of one size"));
    if (schedule_.rank_of_stage.size() != static_cast<size_t>(schedule_.stages))
      return Status(Code::invalid, cat("rank_of_stage has ", schedule_.rank_of_stage.size(), " entries, expected one for each ",
                                       "of ", schedule_.stages, " stages"));
    for (size_t s = 0; s < schedule_.rank_of_stage.size(); ++s)
      if (const int32_t r = schedule_.rank_of_stage[s]; r < 0 || r >= schedule_.ranks())
        return Status(Code::invalid, cat("stage ", s, " is on rank ", r, ", expected one of ", schedule_.ranks(), " ranks"));
    return {};
  }

  // Empty if the action may stand here.
  std::string read_action(int32_t r, int32_t a, const Action& action) {
    if (action.stage < 0 || action.stage >= schedule_.stages)
      return cat("the stages are 0 to ", schedule_.stages - 1);
    const auto s = static_cast<size_t>(action.stage);
    if (schedule_.rank_of_stage[s] != r) return cat("stage ", s, " belongs to rank ", schedule_.rank_of_stage[s]);
    if (schedule_.forward_only && action.kind != Kind::F) return "the schedule is forward only";
    if (action.kind == Kind::O) return read_update(a, action);
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches)
      return cat("the micro-batches are 0 to ", schedule_.micro_batches - 1);

    auto &f = positions.f[s], &again = positions.r[s], &i = positions.i[s], &w = positions.w[s];
    const bool is_i = action.kind == Kind::I || action.kind == Kind::B, is_w = action.kind == Kind::W || action.kind == Kind::B;
    // An action of unknown kind can only come from a plan read wrongly; it would pass as one that does nothing.
    std::string fault = is_i || is_w || action.kind == Kind::F || action.kind == Kind::R ? "" : "unknown kind of action";
    if (action.kind == Kind::F) fault = append(f, a, action, "F", nullptr, "");
    if (action.kind == Kind::R)
      fault = i.size() > again.size() ? cat("stage ", s, " ran ", s, "I", again.size(), " before, at action ", i[again.size()])
                                      : append(again, a, action, "R", &f, "F");
    if (is_i) fault = append(i, a, action, "I", again.empty() ? &f : &again, again.empty() ? "F" : "R");
    note_peaks(s);
    if (is_w && fault.empty()) fault = append(w, a, action, "W", &i, "I");
    return fault;
  }

  // An update takes the sums of its own micro-batches, whole and unmixed.
  std::string read_update(int32_t a, const Action& action) {
    if (schedule_.updates == 0) return "the schedule is synchronous";
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.updates) return cat("the updates are 0 to ", schedule_.updates - 1);
    const auto s = static_cast<size_t>(action.stage), u = static_cast<size_t>(action.micro_batch);
    auto &w = positions.w[s], &o = updates_[s];
    const size_t whole = (u + 1) * static_cast<size_t>(schedule_.micro_batches / schedule_.updates);
    if (u < o.size()) return cat("stage ", s, " ran ", s, "O", u, " before, at action ", o[u]);
    if (u > o.size()) return cat("stage ", s, " has not run ", s, "O", o.size(), ", and updates ascend");
    if (w.size() < whole) return cat("stage ", s, " has not run ", s, "W", w.size());
    if (w.size() > whole) return cat("stage ", s, " ran ", s, "W", whole, " of the next update before, at action ", w[whole]);
    o.push_back(a);
    return {};
  }

  // The position joins the stage's list if its micro-batch is next in turn and has been through `before`.
  static std::string append(std::vector<int32_t>& list, int32_t a, const Action& action, const char* kind,
                            const std::vector<int32_t>* before, const char* before_kind) {
    const auto k = static_cast<size_t>(action.micro_batch);
    const auto not_run = [&](const char* what, size_t micro_batch) {
      return cat("stage ", action.stage, " has not run ", action.stage, what, micro_batch);
    };
    if (k < list.size()) return cat("stage ", action.stage, " ran ", action.stage, kind, k, " before, at action ", list[k]);
    if (before && k >= before->size()) return not_run(before_kind, k);
    if (k > list.size()) return cat(not_run(kind, list.size()), ", and micro-batches ascend");
    list.push_back(a);
    return {};
  }

  // After an F or an I, before the W of the same action: then the counts are at their highest.
  void note_peaks(size_t s) {
    if (schedule_.forward_only) return;
    const auto between = [](const std::vector<int32_t>& begun, const std::vector<int32_t>& ended) {
      return static_cast<int32_t>(begun.size() - ended.size());
    };
    StagePeaks& peak = peaks[s];
    peak.f_to_r = std::max(peak.f_to_r, between(positions.f[s], positions.r[s]));
    peak.f_to_i = std::max(peak.f_to_i, between(positions.f[s], positions.i[s]));
    peak.f_to_w = std::max(peak.f_to_w, between(positions.f[s], positions.w[s]));
    peak.i_to_w = std::max(peak.i_to_w, between(positions.i[s], positions.w[s]));
  }

  // Nothing was out of turn, so a list that is short lacks its last micro-batches.
  Status read_ends() const {
    const auto all = static_cast<size_t>(schedule_.micro_batches);
    for (size_t s = 0; s < positions.f.size(); ++s) {
      const auto missing = [&](const char* kind, size_t micro_batch) {
        const int32_t r = schedule_.rank_of_stage[s];
        return Status(Code::invalid, cat("rank ", r, ", action ", schedule_.rows[static_cast<size_t>(r)].size(),
                                         " (end of row): stage ", s, " has not run ", s, kind, micro_batch));
      };
      if (positions.f[s].size() < all) return missing("F", positions.f[s].size());
      if (schedule_.forward_only) continue;
      if (!positions.r[s].empty() && positions.r[s].size() < all) return missing("R", positions.r[s].size());
      if (positions.i[s].size() < all) return missing("I", positions.i[s].size());
      if (positions.w[s].size() < all) return missing("W", positions.w[s].size());
      if (updates_[s].size() < static_cast<size_t>(schedule_.updates)) return missing("O", updates_[s].size());
    }
    return {};
  }

  const Schedule& schedule_;
  std::vector<std::vector<int32_t>> updates_;   // per stage: where its O stand
};

Status check_edges(const Schedule& schedule, const Positions& positions, const std::vector<StageEdge>& edges) {
  for (size_t e = 0; e < edges.size(); ++e) {
    const StageEdge& edge = edges[e];
    const auto fault = [&](std::string_view text) {
      return Status(Code::invalid, cat("edge ", e, " (stage ", edge.from, " to ", edge.to, "): ", text));
    };
    if (edge.from < 0 || edge.to >= schedule.stages) return fault(cat("the stages are 0 to ", schedule.stages - 1));
    if (edge.from >= edge.to) return fault("expected a tensor to travel to a later stage");
    if (edge.forward_until > Kind::W) return fault(cat("forward_until is ", kind_letter(edge.forward_until), ", expected F, R, I or W"));
    if (edge.forward_until == Kind::R && positions.r[static_cast<size_t>(edge.to)].empty())
      return fault(cat("forward_until is R, but stage ", edge.to, " has no R"));
    if (edge.gradient && edge.gradient_until != Kind::I && edge.gradient_until != Kind::W)
      return fault(cat("gradient_until is ", kind_letter(edge.gradient_until), ", expected I or W"));
  }
  return {};
}

// The most micro-batches that hold a landing at once, in the receiver's program order. A landing is held from the start of the
// action that receives it to the end of the one that releases it, so these are the receiver's peaks.
EdgePlaces held(const StageEdge& edge, const std::vector<StagePeaks>& peaks, bool forward_only) {
  EdgePlaces most{.forward = 1, .gradient = 0};
  if (forward_only) return most;
  const StagePeaks& to = peaks[static_cast<size_t>(edge.to)];
  if (edge.forward_until == Kind::R) most.forward = to.f_to_r;
  if (edge.forward_until == Kind::I) most.forward = to.f_to_i;
  if (edge.forward_until == Kind::W) most.forward = to.f_to_w;
  if (edge.gradient) most.gradient = edge.gradient_until == Kind::W ? peaks[static_cast<size_t>(edge.from)].i_to_w : 1;
  return most;
}

}  // namespace

Result<Checked> check_schedule(const Schedule& schedule, const std::vector<StageEdge>& edges, int32_t slack) {
  if (slack < 0) return Status(Code::invalid, cat("slack is ", slack, ", expected 0 or more"));
  Structure structure(schedule);
  WEFT_TRY(structure.read());
  WEFT_TRY(check_edges(schedule, structure.positions, edges));

  Checked checked;
  checked.peaks = std::move(structure.peaks);
  const auto with_slack = [&](int32_t most) {
    return static_cast<int32_t>(std::min(int64_t{most} + slack, int64_t{schedule.micro_batches}));
  };
  checked.places.reserve(edges.size());
  for (const StageEdge& edge : edges) {
    const EdgePlaces most = held(edge, checked.peaks, schedule.forward_only);
    checked.places.push_back({with_slack(most.forward), most.gradient ? with_slack(most.gradient) : 0});
  }
  WEFT_TRY(check_deadlock(schedule, structure.positions, edges, checked.places));
  return checked;
}

}  // namespace weft
