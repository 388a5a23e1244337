#include "tune/limit_search.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "partition/schedule_costs.h"
#include "partition/stages.h"
#include "plan/schedule_choice.h"

namespace weft {

namespace {

// Moves the cuts of stages one after another, as long as this reduces the excess over the limits
// or, within the limits, the time of the slowest stage. It is for ranks with several stages, whose
// limit applies to a sum, which a search from stage to stage does not know.
class CutSearch {
 public:
  CutSearch(const std::shared_ptr<const Model>& model, const PlanConfig& config)
      : model_(model), config_(config), ops_(*model, config.micro_batch_size, config.times) {}

  // Starts from the stages of choose_stages; several starts are tried.
  Status start(const std::vector<int32_t>& stage_of_node) {
    cuts_.clear();
    for (size_t i = 1; i < ops_.ids.size(); ++i)
      if (stage_of_node[static_cast<size_t>(ops_.ids[i])] !=
          stage_of_node[static_cast<size_t>(ops_.ids[i - 1])])
        cuts_.push_back(i);
    WEFT_TRY_ASSIGN(Draft draft, drafted(cuts_));
    Judged now = judge(draft);
    for (bool moved = true; moved;) {
      moved = false;
      std::vector<size_t> next = cuts_;
      for (const auto& tried : moves(draft, now.rank)) {
        actions_left_ -= actions_of(draft);
        if (actions_left_ < 0) break;
        auto other = drafted(tried);
        if (!other.ok())
          continue;  // for example, a tied parameter that an asynchronous schedule requires in one
        const Judged judged = judge(other.value());
        if (!(judged < now)) continue;
        now = judged;
        next = tried;
        draft = other.take();
        moved = true;
      }
      cuts_ = std::move(next);
    }
    if (best_ && !(now < best_judged_)) return {};
    best_ = std::move(draft);
    best_judged_ = now;
    return {};
  }

  std::optional<Draft>& best() { return best_; }

 private:
  struct Judged {
    int64_t excess = 0;
    double slowest = 0;  // time of a stage
    size_t rank = 0;     // position with the largest excess; if no rank exceeds its limit, the
                         // position of the slowest stage
    bool operator<(const Judged& other) const {
      return std::pair(excess, slowest) < std::pair(other.excess, other.slowest);
    }
  };

  Result<Draft> drafted(const std::vector<size_t>& cuts) const {
    PlanConfig config = config_;
    for (size_t cut : cuts) config.cuts.push_back(model_->node(ops_.ids[cut]).name);
    return draft_of(model_, config);
  }

  static int64_t actions_of(const Draft& draft) {
    return int64_t{3} * draft.plan->stages() * draft.plan->most_micro_batches();
  }

  // Positions in the pipeline; ranks that share a stage have the same position.
  size_t position_of(const Plan& plan, int32_t rank) const {
    return static_cast<size_t>(plan.position_of(rank) / config_.shard_ranks);
  }

  Judged judge(const Draft& draft) const {
    const Plan& plan = *draft.plan;
    const PlanConfig pipeline = pipeline_config(config_);
    const ScheduleCosts costs =
        schedule_costs(*model_, pipeline, pipeline.times, plan.stage_of_whole);
    Judged out;
    for (int32_t s = 0; s < plan.pipeline_stages(); ++s) {
      const auto i = static_cast<size_t>(s);
      const int32_t rank = plan.first_rank(s);
      const size_t r = position_of(plan, rank);
      const double speed = pipeline.machines.speeds.empty() ? 1 : pipeline.machines.speeds[r];
      const double time =
          (costs.forward[i] + costs.input[i] + costs.weight[i]) / speed / plan.replicas_at(rank);
      if (time <= out.slowest) continue;
      out.slowest = time;
      out.rank = r;
    }
    for (size_t r = 0; r < plan.arena_bytes.size(); ++r)
      out.excess += std::max<int64_t>(0, plan.arena_bytes[r] - limit_of(config_, r));
    if (out.excess > 0) out.rank = position_of(plan, static_cast<int32_t>(draft.excess().first));
    return out;
  }

  // Cuts that reduce the stages of a rank. The next stages may pass nodes on to later ones. A move
  // of several nodes can succeed if a move of one node does not, because a value that is sent at
  // that cut may be large.
  std::vector<std::vector<size_t>> moves(const Draft& draft, size_t rank) const {
    std::vector<std::vector<size_t>> out;
    const auto is_on = [&](size_t stage) {
      return position_of(*draft.plan, draft.plan->first_rank(static_cast<int32_t>(stage))) == rank;
    };
    for (size_t c = 0; c < cuts_.size(); ++c) {
      if (is_on(c))
        for (size_t last = c; last < cuts_.size() && last < c + kPassed; ++last)
          add_shifted(c, last, -1, out);
      if (is_on(c + 1))
        for (size_t first = c + 1; first-- > 0 && first + kPassed > c;)
          add_shifted(first, c, 1, out);
    }
    return out;
  }

  // With the cuts from `first` to `last` moved by 1, 2 and 3 nodes.
  void add_shifted(size_t first, size_t last, int64_t way,
                   std::vector<std::vector<size_t>>& out) const {
    for (const int64_t nodes : {1, 2, 3}) {
      std::vector<size_t> cuts = cuts_;
      for (size_t c = first; c <= last; ++c)
        cuts[c] = static_cast<size_t>(static_cast<int64_t>(cuts[c]) + way * nodes);
      bool sound = cuts.back() < ops_.ids.size();  // a negative one wraps around
      for (size_t c = 0; c < cuts.size(); ++c) sound = sound && cuts[c] > (c > 0 ? cuts[c - 1] : 0);
      if (sound) out.push_back(std::move(cuts));
    }
  }

  static constexpr size_t kPassed = 8;       // maximum number of stages that pass nodes on
  int64_t actions_left_ = int64_t{1} << 28;  // of all drafts, which limits the time of the search
  const std::shared_ptr<const Model>& model_;
  const PlanConfig& config_;
  const OpNodes ops_;
  std::vector<size_t> cuts_;
  std::optional<Draft> best_;
  Judged best_judged_;
};

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

// With the order of actions of the configuration.
Result<Draft> draft_kept(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  auto draft = draft_of(model, config);
  const Status refused = draft.ok() ? over_limit(draft.value()) : draft.status();
  if (!cuts_by_bytes(config)) return refused.ok() ? std::move(draft) : Result<Draft>(refused);
  const PlanConfig pipeline = pipeline_config(config);
  WEFT_TRY_ASSIGN(const ScheduleChoice choice, choose_schedule(pipeline));
  // The partition for one rank per stage knows the bytes of a stage, but not those of replicas and
  // of ranks that share stages.
  const bool exact = choice.stages == config.ranks;
  if (choice.stages == pipeline.ranks && (refused.ok() || (exact && !draft.ok()))) return draft;
  CutSearch search(model, config);
  if (draft.ok()) WEFT_TRY(search.start(draft.value().plan->stage_of_whole));
  Status last;
  for (const SplitBy split : {SplitBy::cost, SplitBy::parameters, SplitBy::uniform}) {
    if (split != SplitBy::cost && search.best() && over_limit(*search.best()).ok()) break;
    PlanConfig other = unlimited(pipeline);
    other.split = split;
    WEFT_TRY_ASSIGN(const std::vector<int32_t> stages, choose_stages(*model, other, choice.stages));
    last = search.start(stages);
  }
  if (!search.best()) return last;
  WEFT_TRY(over_limit(*search.best()));
  return std::move(*search.best());
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
      auto draft = draft_kept(model_, written);
      if (!draft.ok()) continue;
      cuts.push_back(draft.value().plan->config.cuts);
      WEFT_TRY(offer(draft.take()));
    }
    if (cuts.empty() && cuts_by_bytes(config_)) {  // a limit below theirs: 1f1b keeps less
      PlanConfig fused = config_;
      fused.schedule = "1f1b";
      if (auto draft = draft_kept(model_, fused); draft.ok())
        cuts.push_back(draft.value().plan->config.cuts);
    }
    PlanConfig made = config_;
    if (cuts_by_bytes(config_)) {
      WEFT_TRY_ASSIGN(const std::vector<int32_t> stages,
                      choose_stages(*model_, unlimited(replica_), replica_.ranks));
      made.cuts = cuts_of(*model_, stages);
    }
    auto first = draft_kept(model_, made);
    if (first.ok()) WEFT_TRY(offer(first.take()));
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (!cuts_by_bytes(config_) || cuts[i] == made.cuts || (i > 0 && cuts[i] == cuts[0]))
        continue;
      made.cuts = cuts[i];
      auto draft = draft_kept(model_, made);
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
    WEFT_TRY(add_bytes(*model_, c, c.times, plan.stage_of_whole, costs));
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
  if (!listed) return draft_kept(model, config);
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
