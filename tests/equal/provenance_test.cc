// Same calls on the same values, however the step is split: provenance of the plan's run in the
// simulator against the sequential reference, over random DAGs, partitions, schedules, micro-batch
// counts, kernel costs and latencies.
#include <gtest/gtest.h>

#include <random>

#include "graph/model.h"
#include "support/cases.h"
#include "support/digest_sim.h"
#include "support/random_plan.h"
#include "support/sequential_reference.h"

namespace weft {
namespace {

// Kernels take random times, and messages take a while.
SimCosts random_costs(uint32_t seed) {
  SimCosts costs;
  auto jitter = std::make_shared<std::mt19937>(seed + 1);
  std::mt19937 rng(seed + 2);
  costs.job = [jitter](int32_t, const RankProgram&, const Job&) {
    return 0.1 + static_cast<double>((*jitter)() % 1000) / 100;
  };
  costs.link.latency = static_cast<double>(rng() % 3) * 2.5;
  costs.link.bytes_per_time = rng() % 2 ? 16 : 0;
  return costs;
}

void expect_equal(const test::PlanCase& c, test::DigestSim& sim,
                  test::SequentialReference& reference, StepDescriptor step) {
  auto run = sim.step(step);
  ASSERT_TRUE(run.ok()) << c.text << ": " << run.status().text();
  const auto expected = reference.step(step);
  EXPECT_EQ(run.value().result.loss, expected.loss) << c.text;
  EXPECT_EQ(run.value().deliveries, expected.deliveries) << c.text;
  if (step.mode != Mode::train) return;
  EXPECT_EQ(run.value().result.grad_norm, expected.grad_norm) << c.text;
  for (ParamId p = 0; p < static_cast<ParamId>(c.model->params().size()); ++p) {
    const int32_t owner = c.plan->owner_of_param[static_cast<size_t>(p)];
    const bool frozen = c.model->param(p).training.frozen;
    EXPECT_EQ(frozen, !sim.worker(owner).grad(p).ok()) << c.text;
    if (!frozen) {
      EXPECT_EQ(sim.worker(owner).grad(p).value(), reference.grad(p)) << c.text;
    }
    for (int32_t r = 0; r < c.plan->config.ranks; ++r)
      if (auto weight = sim.worker(r).weight(p); weight.status().code() != Code::not_found) {
        ASSERT_TRUE(weight.ok()) << c.text << ": " << weight.status().text();
        EXPECT_EQ(weight.value(), reference.weight(p)) << c.text << ", copy of rank " << r;
      }
  }
}

TEST(Provenance, EveryPlanEqualsTheSequentialStep) {
  int with_shards = 0, with_groups = 0, with_replicas = 0, with_ties = 0, with_shorts = 0,
      with_remaking = 0, with_chunks = 0, with_split = 0, with_runs = 0, with_frozen = 0,
      with_outputs = 0;
  for (uint32_t seed = 0; seed < 3000 && !HasFailure(); seed += test::kEvery) {
    const test::PlanCase c = test::random_plan(seed);
    if (!c.plan) return;
    test::DigestSim sim(c.plan, random_costs(seed));
    test::SequentialReference reference(*c.model, c.plan->config);
    std::mt19937 rng(seed);
    uint64_t trained = 0;
    for (uint64_t n = 0; n < 4; ++n) {
      const StepDescriptor step = test::random_step(*c.plan, n, trained, rng);
      expect_equal(c, sim, reference, step);
      trained += step.mode == Mode::train && step.update;
      with_shorts += step.short_last;
    }
    for (const Edge& e : c.plan->mode(Mode::train).edges)
      with_ties += e.kind == EdgeKind::tie_value;
    for (const RankProgram& rank : c.plan->mode(Mode::train).ranks) {
      with_runs += rank.runs.size() > kRunSlots;  // slots are used again
      for (const ActionProgram& action : rank.programs) {
        with_remaking += action.kind == Kind::R && !action.calls.empty();
        with_split += action.kind == Kind::W && !action.calls.empty();
      }
    }
    with_outputs += c.plan->config.delivers_outputs(Mode::train);
    with_groups += c.plan->config.gradient_groups > 2;
    with_chunks += c.plan->stages() > c.plan->positions();
    with_replicas += c.plan->config.data > 1;
    with_shards += c.plan->model != c.plan->whole;
    for (const Param& param : c.model->params()) with_frozen += param.training.frozen;
  }
  // The generator must make what the test is about.
  EXPECT_GT(with_frozen, 500 / test::kEvery);
  EXPECT_GT(with_outputs, 500 / test::kEvery);
  EXPECT_GT(with_ties, 500 / test::kEvery);
  EXPECT_GT(with_shorts, 500 / test::kEvery);
  EXPECT_GT(with_remaking, 500 / test::kEvery);
  EXPECT_GT(with_chunks, 500 / test::kEvery);
  EXPECT_GT(with_runs, 80 / test::kEvery);
  EXPECT_GT(with_groups, 500 / test::kEvery);
  EXPECT_GT(with_replicas, 500 / test::kEvery);
  EXPECT_GT(with_shards, 500 / test::kEvery);
  EXPECT_GT(with_split, 500 / test::kEvery);
}

// The calls that add to one accumulator do so in the order of the backward.
TEST(Provenance, SharedGradientsEqualTheSequentialStep) {
  int shared = 0;
  for (uint32_t seed = 0; seed < 500 && !HasFailure(); ++seed) {
    std::mt19937 rng(seed);
    auto model = test::random_model(rng, 4 + static_cast<int>(rng() % 10), 4, true);
    PlanConfig config;
    config.micro_batches = 1 + static_cast<int32_t>(rng() % 9);
    const char* schedules[] = {"gpipe", "zb-h1", "1f1b"};
    config.schedule = schedules[rng() % 3];
    for (const Param& param : model->params())
      shared += param.sums < static_cast<int>(param.uses.size());
    const test::PlanCase c =
        test::random_case(rng, std::move(model), config, 1, "shared, seed " + std::to_string(seed));
    if (!c.plan) return;
    test::DigestSim sim(c.plan, random_costs(seed));
    test::SequentialReference reference(*c.model, c.plan->config);
    for (uint64_t n = 0; n < 3; ++n)
      expect_equal(c, sim, reference, test::random_step(*c.plan, n, n, rng));
  }
  EXPECT_GT(shared, 100);
}

TEST(Provenance, RanksThatShareAStageExchangeInTheMiddleOfItsActions) {
  int exchanges = 0, segments = 0;
  for (uint32_t seed = 0; seed < 2000 && !HasFailure(); seed += test::kEvery) {
    const test::PlanCase c = test::random_sharded_plan(seed);
    if (!c.plan) continue;
    for (const Edge& e : c.plan->mode(Mode::train).edges) {
      if (e.kind != EdgeKind::forward && e.kind != EdgeKind::gradient) continue;
      const auto& parts = c.plan->segments;
      const Segment& from = parts[static_cast<size_t>(e.from_stage)];
      exchanges += from.stage == parts[static_cast<size_t>(e.to_stage)].stage;
    }
    segments += static_cast<int>(c.plan->segments.size());
    test::DigestSim sim(c.plan, random_costs(seed));
    test::SequentialReference reference(*c.model, c.plan->config);
    std::mt19937 rng(seed);
    uint64_t trained = 0;
    for (uint64_t n = 0; n < 3; ++n) {
      const StepDescriptor step = test::random_step(*c.plan, n, trained, rng);
      expect_equal(c, sim, reference, step);
      trained += step.mode == Mode::train && step.update;
    }
  }
  EXPECT_GT(exchanges, 10000 / test::kEvery);
  EXPECT_GT(segments, 10000 / test::kEvery);
}

TEST(Provenance, EveryScheduleAtEverySize) {
  uint32_t cases = 0;
  for (const ScheduleKind& kind : all_schedules()) {
    if (kind.forward_only || kind.asynchronous) continue;
    for (int32_t p = 1; p <= 8; ++p)
      for (int32_t m = 1; m <= 17; ++m)
        for (int32_t v = kind.chunks ? kind.chunks : 1;
             v <= (kind.chunks ? kind.chunks : 3) && !HasFailure(); ++v, ++cases) {
          if (cases % test::kEvery != 0) continue;
          const test::PlanCase c = test::random_plan_of(kind, p, m, v);
          if (!c.plan) return;
          test::DigestSim sim(c.plan, random_costs(cases));
          test::SequentialReference reference(*c.model, c.plan->config);
          for (uint64_t n = 0; n < 2; ++n) {
            StepDescriptor step;
            step.sequence = step.step = n;
            step.micro_batches = c.plan->config.micro_batches;
            step.short_last = n == 1 && c.plan->config.short_size > 0;
            expect_equal(c, sim, reference, step);
          }
        }
  }
  EXPECT_GT(cases, 2000u);
}

}  // namespace
}  // namespace weft
