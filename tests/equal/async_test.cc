// Asynchronous schedules against a sequential program with the same delay per stage, by provenance:
// random models, partitions, sizes of segments, kernel costs and latencies.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "base/text.h"
#include "engine/steps.h"
#include "support/cases.h"
#include "support/digest_sim.h"
#include "support/random_plan.h"
#include "support/sequential_reference.h"
#include "support/sim_mesh.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

struct Case {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Plan> plan;  // null: a parameter is tied across stages, which use different
                                     // versions of it
  std::vector<int32_t> delay_of_node, replicas_of_node;
  SimCosts costs;
  std::string text;

  test::SequentialReference::Outcome expected(test::SequentialReference& reference,
                                              const StepDescriptor& step) const {
    if (step.per_update > 0) return reference.segment(step, delay_of_node, replicas_of_node);
    const bool in_turn = step.mode == Mode::train && !plan->stage_replicas.empty();
    return in_turn ? reference.gradients(step, replicas_of_node) : reference.step(step);
  }
};

// In rounds: with N ranks, of which the stages before this one have some and it has r, the most
// forwards before a backward on each of its ranks are (N - 1 - some) / r.
int32_t delay_of(const PlanConfig& config, const std::vector<int32_t>& replicas, int32_t stage) {
  if (config.schedule == "pipedream-2bw") return 1;  // with vertical sync, too
  if (config.vertical_sync) return (config.ranks - 1) / replicas.front();
  const auto own = replicas.begin() + stage;
  return (config.ranks - 1 - std::accumulate(replicas.begin(), own, 0)) / *own;
}

// Ranks of each stage: one each, or any; with 2bw and with vertical sync the same for all.
std::vector<int32_t> random_replicas(const std::function<int32_t(uint32_t)>& below,
                                     PlanConfig& config) {
  std::vector<int32_t> out(static_cast<size_t>(config.ranks), 1);
  if (below(2) == 0) return out;
  if (config.schedule == "pipedream-2bw" || config.vertical_sync) {
    out.assign(out.size(), 1 + below(4));
  } else {
    out.resize(static_cast<size_t>(1 + below(4)));
    for (int32_t& r : out) r = 1 + below(4);
  }
  config.ranks = std::accumulate(out.begin(), out.end(), 0);
  int32_t round = 1;
  for (const int32_t r : out) round = std::lcm(round, r);
  config.segment = round * (1 + below(static_cast<uint32_t>(24 / round + 1)));
  for (const int32_t r : out)
    config.stage_replicas += cat(config.stage_replicas.empty() ? "" : ",", r);
  return out;
}

Case random_case(uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  Case c;
  const int nodes = 5 + below(12);
  c.model = test::random_model(rng, nodes);
  PlanConfig config;
  config.ranks = 1 + below(6);
  const bool gathers = below(2) == 0;
  config.schedule = gathers ? "pipedream-2bw" : "pipedream";
  config.micro_batches = gathers ? config.ranks + below(4) : 1;
  config.segment = 1 + below(12);
  config.vertical_sync = below(3) == 0;
  const std::vector<int32_t> replicas = random_replicas(below, config);
  config.micro_batch_size = 1 + below(3);
  config.short_size =
      config.micro_batch_size > 1 ? below(static_cast<uint32_t>(config.micro_batch_size)) : 0;
  const char* recomputes[] = {"none", "none", "stage", "every:1", "every:3"};
  config.recompute = recomputes[below(5)];
  config.split = below(2) ? SplitBy::uniform : SplitBy::cost;
  const Rule rules[] = {Rule::sgd, Rule::adam, Rule::adamw};
  config.optim.rule = rules[below(3)];
  test::add_groups(rng, *c.model, config);
  c.text = cat("seed ", seed, ": ", nodes, " nodes, ", config.ranks, " ranks, ", config.schedule,
               " of ", config.segment, " updates of ", config.micro_batches,
               config.vertical_sync ? ", vertical sync" : "", ", replicas '", config.stage_replicas,
               "', recompute ", config.recompute);
  auto plan = make_plan(c.model, config);
  if (!plan.ok()) {
    EXPECT_NE(plan.status().text().find("use different versions of the tied parameter"),
              std::string::npos)
        << c.text << ": " << plan.status().text();
    EXPECT_TRUE(config.schedule == "pipedream" && !config.vertical_sync) << c.text;
    return c;
  }
  c.plan = plan.take();
  c.model = c.plan->model;
  for (int32_t stage : c.plan->stage_of_node) {
    c.delay_of_node.push_back(delay_of(config, replicas, stage));
    c.replicas_of_node.push_back(replicas[static_cast<size_t>(stage)]);
  }
  auto jitter = std::make_shared<std::mt19937>(seed + 1);
  c.costs.job = [jitter](int32_t, const RankProgram&, const Job&) {
    return 0.1 + static_cast<double>((*jitter)() % 1000) / 100;
  };
  c.costs.link.latency = static_cast<double>(rng() % 3) * 2.5;
  c.costs.link.bytes_per_time = rng() % 2 ? 16 : 0;
  return c;
}

int32_t whole_rounds(const Plan& plan, int32_t micro_batches) {
  int32_t round = 1;
  for (const int32_t r : plan.stage_replicas) round = std::lcm(round, r);
  if (!plan.stage_replicas.empty()) round *= plan.config.micro_batches;
  return (micro_batches + round - 1) / round * round;
}

// `denominators` is what the step borrows.
StepDescriptor random_step(const Plan& plan, uint64_t n, uint64_t trained, std::mt19937& rng,
                           std::vector<double>& denominators) {
  const Mode mode = n == 0 || rng() % 3                           ? Mode::train
                    : plan.mode(Mode::infer).present && rng() % 2 ? Mode::infer
                                                                  : Mode::eval;
  StepDescriptor step = largest_step(plan, mode);
  step.sequence = n;
  step.step = trained;
  step.update = rng() % 4 != 0;
  step.per_update = plan.per_update(mode, step.update);
  if (rng() % 2)
    step.micro_batches =
        1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(step.micro_batches));
  if (step.per_update > 0) step.micro_batches = whole_rounds(plan, step.micro_batches);
  step.short_last = plan.config.short_size > 0 && rng() % 2;
  step.denominator = 0;
  denominators.clear();
  for (int32_t u = 0; u < std::max(updates_of(step), 1); ++u) {
    denominators.push_back(1 + static_cast<double>(rng() % 7));
    step.denominator += denominators.back();
  }
  if (step.per_update > 0) step.denominators = denominators;
  return step;
}

void expect_equal(const Case& c, test::DigestSim& sim, test::SequentialReference& reference,
                  const StepDescriptor& step) {
  auto run = sim.step(step);
  ASSERT_TRUE(run.ok()) << c.text << ": " << run.status().text();
  const StepResult& result = run.value().result;
  const auto expected = c.expected(reference, step);
  EXPECT_EQ(run.value().deliveries, expected.deliveries) << c.text;
  ASSERT_EQ(result.updates.size(), expected.update_losses.size()) << c.text;
  for (size_t u = 0; u < result.updates.size(); ++u) {
    EXPECT_EQ(result.updates[u].loss, expected.update_losses[u]) << c.text << ", update " << u;
    EXPECT_EQ(result.updates[u].grad_norm, expected.update_norms[u]) << c.text << ", update " << u;
  }
  if (step.per_update == 0) {
    EXPECT_EQ(result.loss, expected.loss) << c.text;
  }
  if (step.mode != Mode::train) return;
  EXPECT_EQ(result.grad_norm, expected.grad_norm) << c.text;
  for (ParamId p = 0; p < static_cast<ParamId>(c.model->params().size()); ++p) {
    const int32_t owner = c.plan->owner_of_param[static_cast<size_t>(p)];
    const bool frozen = c.model->param(p).training.frozen;
    EXPECT_EQ(frozen, !sim.worker(owner).grad(p).ok()) << c.text;
    if (!frozen) {
      EXPECT_EQ(sim.worker(owner).grad(p).value(), reference.grad(p)) << c.text;
    }
    // A weight's digest has those of all versions before it in it.
    EXPECT_EQ(sim.worker(owner).weight(p).value(), reference.weight(p)) << c.text;
  }
}

// Whether several stages change a parameter.
bool has_ties(const Plan& plan) {
  return std::any_of(
      plan.model->params().begin(), plan.model->params().end(), [&plan](const Param& param) {
        return !param.training.frozen &&
               std::any_of(param.uses.begin(), param.uses.end(), [&](const Param::Use& use) {
                 return plan.stage_of_node[static_cast<size_t>(use.node)] !=
                        plan.stage_of_node[static_cast<size_t>(param.uses.front().node)];
               });
      });
}

TEST(AsynchronousProvenance, EverySegmentEqualsTheSequentialProgramWithItsDelays) {
  int made = 0, with_vertical_sync = 0, with_short_segments = 0, with_remaking = 0,
      without_update = 0, with_replicas = 0, with_replicas_that_gather = 0, with_ties = 0;
  std::vector<int> with_ranks(7, 0);
  for (uint32_t seed = 0; seed < 3000 && !HasFailure(); seed += test::kEvery) {
    const Case c = random_case(seed);
    if (!c.plan) continue;
    test::DigestSim sim(c.plan, c.costs);
    test::SequentialReference reference(*c.model, c.plan->config);
    std::mt19937 rng(seed);
    uint64_t trained = 0;
    std::vector<double> denominators;
    for (uint64_t n = 0; n < 4 && !HasFailure(); ++n) {
      const StepDescriptor step = random_step(*c.plan, n, trained, rng, denominators);
      expect_equal(c, sim, reference, step);
      trained += static_cast<uint64_t>(updates_of(step));
      with_short_segments += step.per_update > 0 && updates_of(step) < c.plan->config.segment;
      without_update += step.mode == Mode::train && !step.update;
    }
    ++made;
    ++with_ranks[static_cast<size_t>(std::min(c.plan->config.ranks, 6))];
    with_vertical_sync += c.plan->config.vertical_sync;
    with_replicas += !c.plan->stage_replicas.empty();
    with_replicas_that_gather +=
        !c.plan->stage_replicas.empty() && c.plan->config.micro_batches > 1;
    with_ties += has_ties(*c.plan);
    for (const RankProgram& rank : c.plan->mode(Mode::train).ranks)
      for (const ActionProgram& action : rank.programs)
        with_remaking += action.kind == Kind::R && !action.calls.empty();
  }
  // The generator must make what the test is about.
  EXPECT_GT(made, 1500 / test::kEvery);
  for (size_t p = 1; p < with_ranks.size(); ++p)
    EXPECT_GT(with_ranks[p], 100 / test::kEvery) << p << " ranks";
  EXPECT_GT(with_vertical_sync, 200 / test::kEvery);
  EXPECT_GT(with_short_segments, 1000 / test::kEvery);
  EXPECT_GT(with_remaking, 500 / test::kEvery);
  EXPECT_GT(without_update, 500 / test::kEvery);
  EXPECT_GT(with_replicas, 200 / test::kEvery);
  EXPECT_GT(with_replicas_that_gather, 200 / test::kEvery);
  EXPECT_GT(with_ties, 200 / test::kEvery);
}

// Over links: what the updates of a segment are divided by travels with the step.
TEST(AsynchronousProvenance, AMeshOfRanksEqualsItToo) {
  int made = 0;
  for (uint32_t seed = 0; seed < 150 && !HasFailure(); seed += test::kEvery) {
    const Case c = random_case(seed);
    if (!c.plan || c.plan->config.ranks < 2) continue;
    test::SimMesh mesh(c.plan, {.seed = seed,
                                .faults = {.latency = 3, .jitter = 5},
                                .times = {},
                                .longest_job = 7,
                                .identity = {}});
    mesh.start();
    mesh.run(mesh.now() + 2000, [&] { return mesh.joined(); });
    test::SequentialReference reference(*c.model, c.plan->config);
    std::mt19937 rng(seed);
    uint64_t trained = 0;
    std::vector<double> denominators;
    for (uint64_t n = 0; n < 3; ++n) {
      const StepDescriptor step = random_step(*c.plan, n, trained, rng, denominators);
      ASSERT_TRUE(mesh.begin(step).ok()) << c.text;
      mesh.run(mesh.now() + 600000,
               [&] { return mesh.step_is_over() || mesh.node(0).has_failed(); });
      ASSERT_TRUE(mesh.step_is_over()) << c.text << ": " << mesh.node(0).describe(mesh.now());
      const auto expected = c.expected(reference, step);
      EXPECT_EQ(mesh.outcome().deliveries, expected.deliveries) << c.text;
      ASSERT_EQ(mesh.outcome().result.updates.size(), expected.update_losses.size()) << c.text;
      for (size_t u = 0; u < expected.update_losses.size(); ++u) {
        EXPECT_EQ(mesh.outcome().result.updates[u].loss, expected.update_losses[u]) << c.text;
        EXPECT_EQ(mesh.outcome().result.updates[u].grad_norm, expected.update_norms[u]) << c.text;
      }
      for (ParamId p = 0; p < static_cast<ParamId>(c.model->params().size()); ++p)
        EXPECT_EQ(mesh.worker(c.plan->owner_of_param[static_cast<size_t>(p)]).weight(p).value(),
                  reference.weight(p))
            << c.text;
      trained += static_cast<uint64_t>(updates_of(step));
    }
    ++made;
  }
  EXPECT_GT(made, 40 / test::kEvery);
}

// The receiver passes the slot of one sender's message on to another sender, which may not have
// begun the step.
TEST(AsynchronousProvenance, AGrantMayComeBeforeTheStepBegins) {
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    std::mt19937 rng(seed);
    PlanConfig config;
    config.schedule = "pipedream";
    config.micro_batches = 1;
    config.ranks = 4;
    config.stage_replicas = "3,1";
    config.segment = 12;
    auto made = make_plan(test::random_model(rng, 6), config);
    if (!made.ok()) continue;  // a parameter is tied across stages
    const std::shared_ptr<const Plan> plan = made.take();
    test::SimMesh mesh(plan, {.seed = seed,
                              .faults = {.latency = 0, .jitter = 100},
                              .times = {},
                              .longest_job = 0,
                              .identity = {}});
    mesh.start();
    mesh.run(mesh.now() + 2000, [&] { return mesh.joined(); });
    const std::vector<double> denominators(12, 1.0);
    for (uint64_t n = 0; n < 10; ++n) {
      StepDescriptor step = largest_step(*plan, Mode::train);
      step.sequence = n;
      step.step = 12 * n;
      step.denominator = 12;
      step.denominators = denominators;
      ASSERT_TRUE(mesh.begin(step).ok()) << seed;
      mesh.run(mesh.now() + 600000,
               [&] { return mesh.step_is_over() || mesh.node(0).has_failed(); });
      ASSERT_TRUE(mesh.step_is_over()) << seed << ": " << mesh.node(0).describe(mesh.now());
    }
  }
}

// What a wrong delay would look like: the reference with another delay must differ, or the test
// above shows nothing.
TEST(AsynchronousProvenance, AnotherDelayIsAnotherResult) {
  int differing = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Case c = random_case(seed);
    if (!c.plan || c.plan->config.segment < 8 || c.model->params().empty()) continue;
    test::DigestSim sim(c.plan, c.costs);
    test::SequentialReference reference(*c.model, c.plan->config);
    for (int32_t& delay : c.delay_of_node) ++delay;
    const StepDescriptor step = largest_step(*c.plan, Mode::train);
    ASSERT_TRUE(sim.step(step).ok());
    c.expected(reference, step);
    bool differs = false;
    for (ParamId p = 0; p < static_cast<ParamId>(c.model->params().size()); ++p)
      differs =
          differs || sim.worker(c.plan->owner_of_param[static_cast<size_t>(p)]).weight(p).value() !=
                         reference.weight(p);
    differing += differs;  // unless the loss depends on no parameter
  }
  EXPECT_GT(differing, 20);
}

}  // namespace
}  // namespace weft
