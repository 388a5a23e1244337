// Chains of equal stages, and kernels whose times are round numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/text.h"
#include "graph/presets.h"
#include "plan/plan.h"
#include "sim/sim.h"
#include "tune/make_plan.h"

namespace weft::test {

inline std::shared_ptr<const Model> chain_model(int32_t stages) {
  auto preset = make_preset(cat("mlp:layers=", stages, ",width=8"), {});
  EXPECT_TRUE(preset.ok()) << preset.status().text();
  return preset.ok() ? preset.value().model : nullptr;
}

inline PlanConfig chain_config(const std::string& schedule, int32_t ranks, int32_t micro_batches) {
  PlanConfig config;
  config.schedule = schedule;
  config.ranks = ranks;
  config.micro_batches = micro_batches;
  config.split = SplitBy::uniform;
  return config;
}

inline std::shared_ptr<const Plan> chain_plan(const PlanConfig& config, int32_t chunks = 1) {
  auto plan = make_plan(chain_model(config.ranks * chunks), config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.ok() ? plan.take() : nullptr;
}

// F = I = W = 1 for a rank's whole share; everything else takes no time.
inline SimCosts unit_costs(const Plan& plan) {
  const double chunks = static_cast<double>(plan.stages()) / plan.config.ranks;
  SimCosts costs;
  costs.job = [chunks](int32_t, const RankProgram& program, const Job& job) {
    if (job.kind != JobKind::action) return 0.0;
    const Kind kind = program.programs[static_cast<size_t>(job.program)].kind;
    return (kind == Kind::B ? 2 : 1) / chunks;
  };
  return costs;
}

inline SimStep simulate(const std::shared_ptr<const Plan>& plan, SimCosts costs) {
  Sim sim(plan, std::move(costs));
  StepDescriptor step;
  step.micro_batches = plan->config.micro_batches;
  auto done = sim.step(step);
  EXPECT_TRUE(done.ok()) << done.status().text();
  return done.ok() ? done.take() : SimStep{};
}

// From the first action of any rank to the last.
inline double span_of(const SimStep& step) {
  double first = step.ranks[0].first, last = 0;
  for (const SimRank& r : step.ranks) {
    first = std::min(first, r.first);
    last = std::max(last, r.last);
  }
  return last - first;
}

}  // namespace weft::test
