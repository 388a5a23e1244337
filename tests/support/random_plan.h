// Random plans and steps for equality tests: partitions as lopsided as they can be, every schedule, short micro-batches, ties.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/messages.h"
#include "plan/plan.h"
#include "support/random_model.h"

namespace weft::test {

struct PlanCase {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Plan> plan;   // null after a failed expectation
  std::string text;
};

inline PlanCase random_plan(uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  PlanCase c;
  const int nodes = 1 + below(14);
  c.model = random_model(rng, nodes);
  PlanConfig config;
  config.ranks = 1 + below(static_cast<uint32_t>(std::min(nodes + 1, 8)));
  config.micro_batches = 1 + below(17);
  config.micro_batch_size = 1 + below(3);
  config.short_size = config.micro_batch_size > 1 ? below(static_cast<uint32_t>(config.micro_batch_size)) : 0;
  config.schedule = all_schedules()[static_cast<size_t>(below(static_cast<uint32_t>(all_schedules().size())))].name;
  if (config.schedule == "forward") config.schedule = "gpipe";
  config.split = below(2) ? SplitBy::uniform : SplitBy::cost;
  config.optim.rule = below(2) ? Rule::sgd : Rule::adamw;
  config.optim.clip = below(2) ? 0.5 : 0;
  // Half of the time any cut at all, so that stages are as lopsided as they can be.
  if (below(2) && config.ranks > 1) {
    std::vector<std::string> names;
    for (const Node& n : c.model->nodes())
      if (!n.is_input()) names.push_back(n.name);
    names.erase(names.begin());
    while (static_cast<int32_t>(names.size()) >= config.ranks)
      names.erase(names.begin() + below(static_cast<uint32_t>(names.size())));
    config.cuts = names;
  }
  c.text = "seed " + std::to_string(seed) + ": " + std::to_string(nodes) + " nodes, " + std::to_string(config.ranks) +
           " ranks, " + std::to_string(config.micro_batches) + " micro-batches, " + config.schedule;
  auto plan = make_plan(c.model, config);
  EXPECT_TRUE(plan.ok()) << c.text << ": " << plan.status().text();
  if (plan.ok()) c.plan = plan.take();
  return c;
}

// The n-th step of a run; `trained`: how many updates came before.
inline StepDescriptor random_step(const Plan& plan, uint64_t n, uint64_t trained, std::mt19937& rng) {
  StepDescriptor step;
  step.sequence = n;
  step.step = trained;
  step.mode = n == 0 ? Mode::train : static_cast<Mode>(rng() % kModes);
  if (!plan.mode(step.mode).present) step.mode = Mode::eval;
  step.update = rng() % 4 != 0;
  step.micro_batches = 1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(plan.config.micro_batches));
  step.short_last = plan.config.short_size > 0 && rng() % 2;
  step.denominator = 1 + static_cast<double>(rng() % 7);
  return step;
}

}  // namespace weft::test
