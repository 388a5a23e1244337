// Same calls on the same values, however the step is split: provenance of the plan's run in the simulator against the sequential reference,
// over random DAGs, partitions, schedules, micro-batch counts, kernel costs and latencies.
#include <gtest/gtest.h>

#include <random>

#include "graph/model.h"
#include "sim/sim.h"
#include "support/random_model.h"

namespace weft {
namespace {

struct Case {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Plan> plan;
  SimCosts costs;
  std::string text;
};

Case random_case(uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  Case c;
  const int nodes = 1 + below(14);
  c.model = test::random_model(rng, nodes);
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
    while (static_cast<int32_t>(names.size()) >= config.ranks) names.erase(names.begin() + below(static_cast<uint32_t>(names.size())));
    config.cuts = names;
  }
  c.text = "seed " + std::to_string(seed) + ": " + std::to_string(nodes) + " nodes, " + std::to_string(config.ranks) + " ranks, " +
           std::to_string(config.micro_batches) + " micro-batches, " + config.schedule;
  auto plan = make_plan(c.model, config);
  EXPECT_TRUE(plan.ok()) << c.text << ": " << plan.status().text();
  if (plan.ok()) c.plan = plan.take();
  auto jitter = std::make_shared<std::mt19937>(seed + 1);
  c.costs.job = [jitter](int32_t, const RankProgram&, const Job&) { return 0.1 + static_cast<double>((*jitter)() % 1000) / 100; };
  c.costs.latency = below(3) * 2.5;
  c.costs.bytes_per_time = below(2) ? 16 : 0;
  return c;
}

void expect_equal(const Case& c, Sim& sim, SequentialReference& reference, StepDescriptor step) {
  auto run = sim.step(step);
  ASSERT_TRUE(run.ok()) << c.text << ": " << run.status().text();
  const auto expected = reference.step(step);
  EXPECT_EQ(run.value().result.loss, expected.loss) << c.text;
  EXPECT_EQ(run.value().deliveries, expected.deliveries) << c.text;
  if (step.mode != Mode::train) return;
  EXPECT_EQ(run.value().result.grad_norm, expected.grad_norm) << c.text;
  for (ParamId p = 0; p < static_cast<ParamId>(c.model->params().size()); ++p) {
    const int32_t owner = c.plan->owner_of_param[static_cast<size_t>(p)];
    EXPECT_EQ(sim.worker(owner).grad(p).value(), reference.grad(p)) << c.text;
    for (int32_t r = 0; r < c.plan->config.ranks; ++r)
      if (auto weight = sim.worker(r).weight(p); weight.status().code() != Code::not_found) {
        ASSERT_TRUE(weight.ok()) << c.text << ": " << weight.status().text();
        EXPECT_EQ(weight.value(), reference.weight(p)) << c.text << ", copy of rank " << r;
      }
  }
}

TEST(Provenance, EveryPlanEqualsTheSequentialStep) {
  int with_ties = 0, with_shorts = 0;
  for (uint32_t seed = 0; seed < 3000 && !HasFailure(); ++seed) {
    const Case c = random_case(seed);
    if (!c.plan) return;
    Sim sim(c.plan, c.costs, true);
    SequentialReference reference(*c.model, c.plan->config.optim);
    std::mt19937 rng(seed);
    uint64_t trained = 0;
    for (uint64_t n = 0; n < 4; ++n) {
      StepDescriptor step;
      step.sequence = n;
      step.step = trained;
      step.mode = n == 0 ? Mode::train : static_cast<Mode>(rng() % kModes);
      if (!c.plan->mode(step.mode).present) step.mode = Mode::eval;
      step.update = rng() % 4 != 0;
      step.micro_batches = 1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(c.plan->config.micro_batches));
      step.short_last = c.plan->config.short_size > 0 && rng() % 2;
      step.denominator = 1 + static_cast<double>(rng() % 7);
      expect_equal(c, sim, reference, step);
      trained += step.mode == Mode::train && step.update;
      with_shorts += step.short_last;
    }
    for (const Edge& e : c.plan->mode(Mode::train).edges) with_ties += e.kind == EdgeKind::tie_value;
  }
  // The generator must make what the test is about.
  EXPECT_GT(with_ties, 500);
  EXPECT_GT(with_shorts, 500);
}

}  // namespace
}  // namespace weft
