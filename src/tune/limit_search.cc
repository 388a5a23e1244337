#include "tune/limit_search.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "partition/schedule_costs.h"
#include "partition/stages.h"
#include "plan/schedule_choice.h"

namespace weft {

namespace {

PlanConfig unlimited(PlanConfig config) {
  config.memory_limit = 0;
  config.machines.memory.clear();
  return config;
}

Status over_limit(const Draft& draft) {
  const auto [rank, bytes] = draft.excess();
  if (bytes <= 0) return {};
  const Plan& plan = *draft.plan;
  return Status(Code::invalid, cat("rank ", rank, " needs ", plan.arena_bytes[rank],
                                   " bytes, the limit is ", limit_of(plan.config, rank)));
}

Result<Draft> draft_checked(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  WEFT_TRY_ASSIGN(Draft draft, draft_of(model, config));
  WEFT_TRY(over_limit(draft));
  return draft;
}

// zb-auto with a limit: the shortest of the orders for the cuts by times, of the orders for the
// cuts of those plans of zb-h1 and zb-h2 that do not exceed the limit, and of these plans
// themselves. So it is never worse than they are.
class OrderWithin {
 public:
  OrderWithin(const std::shared_ptr<const Model>& model, const PlanConfig& config)
      : model_(model), config_(config), replica_(replica_config(config)) {}

  Result<Draft> run() {
    std::vector<std::vector<std::string>> cuts;
    for (const auto make : {make_zb_h1, make_zb_h2}) {
      PlanConfig written = config_;
      WEFT_TRY_ASSIGN(const Schedule rows,
                      make({.ranks = replica_.ranks, .micro_batches = replica_.micro_batches}));
      written.schedule_text = rows.text();
      auto draft = draft_checked(model_, written);
      if (!draft.ok()) continue;
      cuts.push_back(draft.value().plan->config.cuts);
      WEFT_TRY(offer(draft.take()));
    }
    if (cuts.empty() && cuts_by_bytes(config_)) {  // a limit below theirs: 1f1b keeps less
      PlanConfig fused = config_;
      fused.schedule = "1f1b";
      if (auto draft = draft_checked(model_, fused); draft.ok())
        cuts.push_back(draft.value().plan->config.cuts);
    }
    PlanConfig made = config_;
    if (cuts_by_bytes(config_)) {
      WEFT_TRY_ASSIGN(const std::vector<int32_t> stages,
                      choose_stages(*model_, unlimited(config_), replica_.ranks));
      made.cuts = cuts_of(*model_, stages);
    }
    auto first = draft_checked(model_, made);
    if (first.ok()) WEFT_TRY(offer(first.take()));
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (!cuts_by_bytes(config_) || cuts[i] == made.cuts || (i > 0 && cuts[i] == cuts[0]))
        continue;
      made.cuts = cuts[i];
      auto draft = draft_checked(model_, made);
      if (draft.ok()) WEFT_TRY(offer(draft.take()));
    }
    if (best_) return std::move(*best_);
    return first.status();
  }

 private:
  Status offer(Draft draft) {
    const Plan& plan = *draft.plan;
    const PlanConfig c = replica_config(plan.config);
    ScheduleCosts costs =
        at_speeds(schedule_costs(*model_, c, c.times, plan.stage_of_whole), c.machines.speeds);
    WEFT_TRY(add_bytes(*model_, plan.config, c.times, plan.stage_of_whole, costs));
    costs.cap = 0;
    WEFT_TRY_ASSIGN(const double time, listed_time(plan.mode(Mode::train).schedule, costs));
    const int64_t bytes = *std::max_element(plan.arena_bytes.begin(), plan.arena_bytes.end());
    if (best_ && (time > time_ || (time == time_ && bytes >= bytes_))) return {};
    best_ = std::move(draft);
    time_ = time;
    bytes_ = bytes;
    return {};
  }

  const std::shared_ptr<const Model>& model_;
  const PlanConfig& config_;
  const PlanConfig replica_;
  std::optional<Draft> best_;
  double time_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

Result<Draft> draft_within(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  const bool listed = config.memory_limit > 0 && config.schedule_text.empty() &&
                      config.schedule == "zb-auto" && config.shard_ranks == 1 &&
                      makes(*model, config, Mode::train);
  if (!listed) return draft_checked(model, config);
  if (config.recompute != "auto") return OrderWithin(model, config).run();
  // If another order is sufficient, nothing is recomputed.
  PlanConfig once = config;
  once.recompute = "none";
  if (auto draft = OrderWithin(model, once).run(); draft.ok()) {
    draft.value().plan->config.recompute = config.recompute;
    return draft;
  }
  return OrderWithin(model, config).run();
}

}  // namespace weft
