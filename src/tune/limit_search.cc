#include "tune/limit_search.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "partition/schedule_costs.h"
#include "partition/stages.h"
#include "plan/schedule_choice.h"
#include "tune/packed_choice.h"

namespace weft {

namespace {

PlanConfig unlimited(PlanConfig config) {
  config.memory_limit = 0;
  config.machines.memory.clear();
  return config;
}

// `bytes`: per rank.
template <typename Bytes>
Status check_limits(const PlanConfig& config, size_t ranks, Bytes&& bytes) {
  size_t rank = 0;
  int64_t most = 0;
  for (size_t r = 0; r < ranks; ++r)
    if (const int64_t over = bytes(r) - limit_of(config, r); over > most) {
      most = over;
      rank = r;
    }
  if (most == 0) return {};
  return Status(Code::invalid, cat("rank ", rank, " needs ", bytes_text(bytes(rank)),
                                   ", the limit is ", bytes_text(limit_of(config, rank))));
}

Status check_limits(const Plan& plan) {
  return check_limits(plan.config, plan.arena_bytes.size(),
                      [&plan](size_t r) { return plan.arena_bytes[r]; });
}

Result<Draft> draft_checked(Outline outline) {
  WEFT_TRY_ASSIGN(Draft draft, draft_of(std::move(outline)));
  WEFT_TRY(check_limits(*draft.plan));
  return draft;
}

// zb-auto with a limit: the shortest of the orders for the cuts by times, of the orders for the
// cuts of those plans of zb-h1 and zb-h2 that do not exceed the limit, and of these plans
// themselves. So it is never worse than they are.
class OrderWithin {
 public:
  OrderWithin(const std::shared_ptr<const Model>& model, const PlanConfig& config, KnownRuns& known)
      : model_(model), config_(config), replica_(replica_config(config)), known_(known) {}

  Result<Outline> run() {
    std::vector<std::vector<std::string>> cuts;
    for (const auto make : {make_zb_h1, make_zb_h2}) {
      PlanConfig written = config_;
      WEFT_TRY_ASSIGN(const Schedule rows,
                      make({.ranks = replica_.ranks, .micro_batches = replica_.micro_batches}));
      written.schedule_text = rows.text();
      WEFT_TRY_ASSIGN(const bool fits, offer(written));
      if (fits) cuts.push_back(cuts_);
    }
    if (cuts.empty() && cuts_by_bytes(config_)) {  // a limit below theirs: 1f1b keeps less
      PlanConfig fused = config_;
      fused.schedule = "1f1b";
      if (auto stages = choose_stages(*model_, fused, replica_.ranks, known_); stages.ok())
        cuts.push_back(cuts_of(*model_, stages.value()));
    }
    PlanConfig made = config_;
    if (cuts_by_bytes(config_)) {
      WEFT_TRY_ASSIGN(const std::vector<int32_t> stages,
                      choose_stages(*model_, unlimited(config_), replica_.ranks, known_));
      made.cuts = cuts_of(*model_, stages);
    }
    WEFT_TRY(offer(made).status());
    const Status why = why_;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (!cuts_by_bytes(config_) || cuts[i] == made.cuts || (i > 0 && cuts[i] == cuts[0]))
        continue;
      made.cuts = cuts[i];
      WEFT_TRY(offer(made).status());
    }
    if (best_) return std::move(*best_);
    return why;
  }

 private:
  // Whether there is such a plan within the limits; otherwise `why_` has the reason. Sets `cuts_`.
  Result<bool> offer(const PlanConfig& config) {
    auto outline = outline_of(model_, config, known_);
    why_ = outline.status();
    if (!why_.ok()) return false;
    const Plan& plan = outline.value().plan;
    const std::vector<RankBytes>& ranks = outline.value().bytes;
    why_ = check_limits(plan.config, ranks.size(), [&ranks](size_t r) { return ranks[r].all; });
    if (!why_.ok()) return false;
    cuts_ = plan.config.cuts;
    WEFT_TRY_ASSIGN(const double time, listed_time(outline.value().train, outline.value().costs));
    int64_t bytes = 0;
    for (const RankBytes& rank : ranks) bytes = std::max(bytes, rank.all);
    const double same = kRounding * time_;
    if (best_ && (time > time_ + same || (time >= time_ - same && bytes >= bytes_))) return true;
    best_ = outline.take();
    time_ = time;
    bytes_ = bytes;
    return true;
  }

  const std::shared_ptr<const Model>& model_;
  const PlanConfig& config_;
  const PlanConfig replica_;
  KnownRuns& known_;
  std::optional<Outline> best_;
  std::vector<std::string> cuts_;
  Status why_;
  double time_ = 0;
  int64_t bytes_ = 0;
};

Result<Outline> best_outline(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                             KnownRuns& known) {
  const bool listed = config.memory_limit > 0 && config.schedule_text.empty() &&
                      is_from_costs(config.schedule) && config.shard_ranks == 1 &&
                      makes(*model, config, Mode::train);
  if (!listed) return outline_of(model, config, known);
  if (config.recompute != "auto") return OrderWithin(model, config, known).run();
  // If another order is sufficient, nothing is recomputed.
  PlanConfig once = config;
  once.recompute = "none";
  auto whole = OrderWithin(model, once, known).run();
  if (!whole.ok()) return OrderWithin(model, config, known).run();
  whole.value().plan.config.recompute = config.recompute;
  return whole;
}

Result<Draft> best_draft(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                         KnownRuns& known) {
  WEFT_TRY_ASSIGN(Outline outline, best_outline(model, config, known));
  return draft_checked(std::move(outline));
}

Outline with_packed(Outline outline, std::string packed) {
  outline.plan.config.packed = std::move(packed);
  return outline;
}

// The choices are those without packed weights, which take what the limits leave.
Result<Draft> draft_below_limit(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                                KnownRuns& known) {
  PlanConfig chosen = config;
  chosen.packed.clear();
  WEFT_TRY_ASSIGN(Outline outline, best_outline(model, chosen, known));
  if (outline.train.updates > 0) return draft_checked(std::move(outline));
  if (config.packed != kAllPacked)  // of a stored plan
    return draft_checked(with_packed(std::move(outline), config.packed));
  WEFT_TRY_ASSIGN(Draft all, draft_of(with_packed(outline, kAllPacked)));
  if (check_limits(*all.plan).ok()) return all;
  WEFT_TRY_ASSIGN(Draft none, draft_of(outline));
  const std::string names = packed_within_limits(*none.plan, *all.plan);
  if (!names.empty())
    if (auto some = draft_checked(with_packed(std::move(outline), names)); some.ok()) return some;
  WEFT_TRY(check_limits(*none.plan));
  return none;
}

// Whether no step changes some weights.
bool has_constants(const Model& model, const PlanConfig& config) {
  return !makes(model, config, Mode::train) ||
         std::any_of(model.params().begin(), model.params().end(),
                     [](const Param& param) { return param.training.frozen; });
}

}  // namespace

bool is_limited(const PlanConfig& config) {
  return config.memory_limit > 0 || !config.machines.memory.empty();
}

Result<Draft> draft_within(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                           KnownRuns& known) {
  if (!is_limited(config) || config.packed.empty() || config.shard == "parameters")
    return best_draft(model, config, known);
  auto draft = draft_below_limit(model, config, known);
  if (draft.ok() || !has_constants(*model, config)) return draft;
  // Weights that are stored only as the products read them need no memory to be packed in.
  auto packed = best_draft(model, config, known);
  return packed.ok() ? std::move(packed) : std::move(draft);
}

}  // namespace weft
