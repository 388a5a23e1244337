#include "tune/compare.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "ops/op.h"
#include "plan/schedule_choice.h"
#include "tune/make_plan.h"

namespace weft {

namespace {

// Deeper warm-ups need more memory without a further gain: a depth of 2 hides a latency of up to a
// forward and a backward.
constexpr int32_t kDeepest = 4;

// What a schedule has a choice of.
struct Choice {
  int32_t warm_up = 0, group = 0;
};

std::vector<Choice> choices_of(const ScheduleKind& kind, const PlanConfig& config) {
  std::vector<Choice> out;
  if (kind.name == "1f1b") {
    if (config.warm_up != kAutoWarmUp) return {{.warm_up = config.warm_up}};
    for (int32_t k = 1; k <= (config.ranks > 1 ? kDeepest : 1); ++k) out.push_back({.warm_up = k});
    return out;
  }
  if (kind.name != "1f1b-delayed-w") return {{}};
  if (config.group > 0) return {{.group = config.group}};
  out.push_back({.group = kDelayedGroup});
  const int32_t most = (config.micro_batches + config.data - 1) / config.data;  // of a replica
  if (config.schedule == kAutoSchedule && most > kDelayedGroup)
    out.push_back({.group = kMostTogether});
  return out;
}

Status measure(Planner& planner, PlanConfig config, const Cluster* cluster, Candidate& out) {
  const int64_t limit = config.memory_limit;
  auto plan = planner.plan(config);
  // If only the size prevents it, the table shows by how much.
  if (!plan.ok() && (limit > 0 || !config.machines.memory.empty())) {
    config.memory_limit = 0;
    config.machines.memory.clear();
    if (config.recompute == "auto") config.recompute = "stage";
    if (auto larger = planner.plan(config); larger.ok()) plan = std::move(larger);
  }
  if (!plan.ok()) return plan.status();
  out.chunks = plan.value()->pipeline_stages() * plan.value()->config.shard_ranks /
               plan.value()->positions();
  out.over = !check_memory(*plan.value(), cluster, limit).ok();
  WEFT_TRY_ASSIGN(out.prediction, predict(plan.value(), cluster, false));
  out.config = plan.value()->config;
  return {};
}

// The smallest of those that fit and are, within the precision of a prediction, the fastest.
int32_t best_of(const std::vector<Candidate>& candidates) {
  constexpr double kSame = 1.001;
  const auto fits = [](const Candidate& c) { return c.refused.ok() && !c.over; };
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates)
    if (fits(c)) least = std::min(least, c.prediction.seconds);
  int32_t best = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    if (!fits(c) || c.prediction.seconds > least * kSame) continue;
    if (best < 0 ||
        c.prediction.peak_bytes() < candidates[static_cast<size_t>(best)].prediction.peak_bytes())
      best = static_cast<int32_t>(i);
  }
  return best;
}

std::string name_of(const Candidate& c) {
  if (c.mesh.data > 0) return c.mesh.text();
  std::string name = c.schedule;
  if (c.warm_up > 1) name += cat(" warm-up ", c.warm_up);
  if (c.group > 0) name += cat(" group ", c.group);
  return name;
}

// The smallest one that could be planned, which was cut without a limit, and each reason for others
// once, after their names.
std::string why_none(const std::vector<Candidate>& candidates) {
  const Candidate* smallest = nullptr;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Candidate& c : candidates) {
    if (c.refused.ok()) {
      if (!smallest || c.prediction.peak_bytes() < smallest->prediction.peak_bytes()) smallest = &c;
      continue;
    }
    auto at = std::find_if(reasons.begin(), reasons.end(),
                           [&](const auto& r) { return r.first == c.refused.text(); });
    if (at == reasons.end()) at = reasons.insert(at, {c.refused.text(), {}});
    std::vector<std::string>& names = at->second;
    std::string name = c.mesh.data > 0 ? c.mesh.text() : c.schedule;
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  std::string out;
  if (smallest)
    out = cat("the smallest plan without a limit, ", name_of(*smallest), ", needs ",
              bytes_text(smallest->prediction.peak_bytes()),
              " on its largest rank; within a limit it can need less");
  for (const auto& [reason, names] : reasons) {
    for (size_t i = 0; i < names.size(); ++i)
      out += cat(i > 0 ? ", " : out.empty() ? "" : "; ", names[i]);
    out += cat(": ", reason);
  }
  return out;
}

Result<Comparison> compare_on(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                              const Cluster* cluster) {
  if (!config.schedule_text.empty())
    return Status(Code::invalid,
                  "with schedule_text there is only one schedule, and nothing to compare");
  Comparison out;
  Planner planner(model);
  for (const ScheduleKind& kind : all_schedules()) {
    const bool asked = config.schedule == kind.name;
    // An asynchronous schedule has another result, and one with forwards only does not train.
    // Neither is used unless it is named.
    if (!asked && (kind.forward_only || kind.asynchronous || config.schedule != kAutoSchedule))
      continue;
    for (const Choice& choice : choices_of(kind, config)) {
      Candidate next{.schedule = std::string(kind.name),
                     .chunks = config.chunks,
                     .warm_up = choice.warm_up,
                     .group = choice.group,
                     .refused = {},
                     .prediction = {},
                     .config = {}};
      PlanConfig tried = config;
      tried.schedule = next.schedule;
      tried.warm_up = std::max(choice.warm_up, 1);  // as without a selection
      if (choice.group > 0) tried.group = choice.group;
      next.refused = measure(planner, std::move(tried), cluster, next);
      if (next.refused.code() == Code::user)
        return next.refused;  // a callback that fails is not caused by the schedule
      out.candidates.push_back(std::move(next));
    }
  }
  if (out.candidates.empty()) return choose_schedule(config).status();  // the schedule is not known
  out.best = best_of(out.candidates);
  return out;
}

// What stands for a mesh: its best schedule; if none fits, the smallest.
Candidate best_on(Comparison comparison, const MeshSizes& mesh) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (!a.refused.ok() || !b.refused.ok()) return a.refused.ok() && !b.refused.ok();
    return a.prediction.peak_bytes() < b.prediction.peak_bytes();
  };
  auto at = comparison.best < 0 ? std::min_element(comparison.candidates.begin(),
                                                   comparison.candidates.end(), better)
                                : comparison.candidates.begin() + comparison.best;
  at->mesh = mesh;
  return std::move(*at);
}

Result<Candidate> measure_mesh(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                               const Cluster* cluster, const MeshSizes& mesh) {
  PlanConfig tried = with_mesh(config, mesh);
  const bool parts = tried.shard == kAutoShard && mesh.data > 1;
  if (tried.shard == kAutoShard) tried.shard = "optimizer";
  WEFT_TRY_ASSIGN(Comparison schedules, compare_on(model, tried, cluster));
  if (schedules.best < 0 && parts) {
    tried.shard = "parameters";
    WEFT_TRY_ASSIGN(Comparison more, compare_on(model, tried, cluster));
    std::move(more.candidates.begin(), more.candidates.end(),
              std::back_inserter(schedules.candidates));
    schedules.best = best_of(schedules.candidates);
  }
  Candidate best = best_on(std::move(schedules), mesh);
  if (!best.refused.ok()) return best;
  WEFT_TRY_ASSIGN(const auto plan, make_plan(model, best.config));
  WEFT_TRY(explain(plan, cluster, best.prediction));
  return best;
}

}  // namespace

Result<Comparison> compare_schedules(const std::shared_ptr<const Model>& model,
                                     const PlanConfig& config, const Cluster* cluster) {
  if (cluster) WEFT_TRY(check_ranks(*cluster, config.ranks));
  if (config.data != kAutoMesh) return compare_on(model, config, cluster);
  Comparison out;
  WEFT_TRY_ASSIGN(const std::vector<MeshSizes> meshes, meshes_of(config));
  for (const MeshSizes& mesh : meshes) {
    WEFT_TRY_ASSIGN(Candidate best, measure_mesh(model, config, cluster, mesh));
    out.candidates.push_back(std::move(best));
  }
  out.best = best_of(out.candidates);
  return out;
}

Result<PlanConfig> choose(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                          const Cluster* cluster) {
  PlanConfig out = config;
  if (config.data != kAutoMesh &&
      (!config.schedule_text.empty() ||
       (config.schedule != kAutoSchedule && config.warm_up != kAutoWarmUp))) {
    out.warm_up = std::max(out.warm_up, 0);
    return out;
  }
  WEFT_TRY_ASSIGN(const Comparison comparison, compare_schedules(model, config, cluster));
  if (comparison.best < 0) {
    return Status(Code::invalid,
                  cat(config.data == kAutoMesh ? "no mesh fits" : "no schedule fits",
                      config.memory_limit > 0 ? cat(" into ", config.memory_limit, " bytes") : "",
                      ": ", why_none(comparison.candidates)));
  }
  return comparison.candidates[static_cast<size_t>(comparison.best)].config;
}

}  // namespace weft
