// Idle time, latency, bandwidth and speed, predicted by the engine, against closed forms and
// against what can be reckoned by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/presets.h"
#include "sim/chain.h"
#include "sim/predict.h"

namespace weft {
namespace {

using test::chain_config;
using test::chain_model;
using test::chain_plan;
using test::simulate;
using test::span_of;
using test::unit_costs;

struct Form {
  const char* schedule;
  int32_t chunks;
  double idle;       // of a rank from the common begin to the commit, in units of (p - 1) F
  bool own_is_zero;  // none within its own span
};

class ClosedForm : public testing::TestWithParam<Form> {};

TEST_P(ClosedForm, IdleIsWhatTheFamilySays) {
  const Form form = GetParam();
  for (const auto& [p, m] :
       {std::pair{2, 8}, std::pair{4, 12}, std::pair{4, 16}, std::pair{8, 24}}) {
    PlanConfig config = chain_config(form.schedule, p, m);
    config.chunks = form.chunks;
    const auto plan = chain_plan(config, form.chunks);
    if (!plan) return;
    const SimStep done = simulate(plan, unit_costs(*plan));
    EXPECT_NEAR(done.commit, 3 * m + form.idle * (p - 1), 1e-9)
        << form.schedule << " p " << p << " m " << m;
    EXPECT_NEAR(span_of(done), done.commit, 1e-9);
    for (const SimRank& rank : done.ranks) {
      EXPECT_NEAR(rank.busy, 3 * m, 1e-9);
      EXPECT_NEAR(rank.before_commit, 3 * m, 1e-9);
      if (!form.own_is_zero) continue;
      EXPECT_NEAR(rank.last - rank.first, rank.busy, 1e-9)
          << form.schedule << " p " << p << " m " << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, ClosedForm,
                         testing::Values(Form{"gpipe", 1, 3, false}, Form{"1f1b", 1, 3, false},
                                         Form{"interleaved", 2, 1.5, false},
                                         Form{"looped-bfs", 2, 1.5, false},
                                         Form{"zb-h1", 1, 1, false}, Form{"zb-h2", 1, 1, true},
                                         Form{"interleaved-zb", 2, 0.5, false},
                                         Form{"zb-v", 2, 0.5, true}),
                         [](const auto& form) {
                           std::string name = form.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Shares of idle time, p = 4, m = 32, F = I = W = 1, over one-way latency.
TEST(Latency, CostsEachFamilyWhatIsKnownOfIt) {
  struct Row {
    double latency, gpipe, one_f_one_b, eager;
  };
  for (const Row& row : {Row{0, 8.6, 8.6, 8.6}, Row{0.05, 8.8, 10.8, 8.8}, Row{0.1, 9.1, 12.9, 9.1},
                         Row{0.25, 9.9, 18.6, 9.9}, Row{0.5, 11.1, 26.7, 11.1}}) {
    const auto idle = [&row](const char* schedule, int32_t warm_up) {
      PlanConfig config = chain_config(schedule, 4, 32);
      config.warm_up = warm_up;
      const auto plan = chain_plan(config);
      SimCosts costs = unit_costs(*plan);
      costs.link.latency = row.latency;
      return 100 * (1 - 96 / span_of(simulate(plan, std::move(costs))));
    };
    EXPECT_NEAR(idle("gpipe", 0), row.gpipe, 0.05) << row.latency;
    EXPECT_NEAR(idle("1f1b", 0), row.one_f_one_b, 0.05) << row.latency;
    EXPECT_NEAR(idle("1f1b", 2), row.eager, 0.05) << row.latency;
  }
}

// With a warm-up of one, neighbours are one micro-batch apart: each cycle waits for a message there
// and one back.
TEST(Latency, OfASteadyCycleIsTwoMessages) {
  const auto steps = [](int32_t m) {
    const auto plan = chain_plan(chain_config("1f1b", 4, m));
    SimCosts costs = unit_costs(*plan);
    costs.link.latency = 0.5;
    return span_of(simulate(plan, std::move(costs)));
  };
  EXPECT_NEAR(steps(40) - steps(39), 3 + 2 * 0.5, 1e-9);
}

// A grant and the message that answers it take one round trip; slots for the results of that time
// keep all ranks busy.
TEST(Latency, IsNotPaidPerMessageWithSlotsEnough) {
  const auto span = [](int32_t slack) {
    PlanConfig config = chain_config("gpipe", 4, 32);
    config.slack = slack;
    const auto plan = chain_plan(config);
    SimCosts costs = unit_costs(*plan);
    costs.link.latency = 5;
    return span_of(simulate(plan, std::move(costs)));
  };
  EXPECT_NEAR(span(2 * 5), (32 + 3) * 3 + 2 * 3 * 5,
              1e-9);  // the latency of a chain there and back, once
  EXPECT_GT(span(1), 2 * span(2 * 5));
}

// A step of two ranks: a message from rank 0 takes a half, one to rank 0 a quarter, F and I take 1,
// W takes 10 on rank 1.
TEST(Latency, OfControlMessagesIsPartOfAStep) {
  PlanConfig config = chain_config("zb-h1", 2, 1);
  config.split = SplitBy::uniform;
  const auto plan = chain_plan(config);
  ASSERT_EQ(plan->mode(Mode::train).schedule.text(), "0F0 0I0 0W0\n1F0 1I0 1W0\n");
  SimCosts costs = unit_costs(*plan);
  costs.job = [](int32_t rank, const RankProgram& program, const Job& job) {
    if (job.kind == JobKind::update) return 2.0;
    if (job.kind != JobKind::action) return 0.0;
    return rank == 1 && program.programs[static_cast<size_t>(job.program)].kind == Kind::W ? 10.0
                                                                                           : 1.0;
  };
  costs.link_of = [](int32_t from, int32_t) { return SimLink{from == 0 ? 0.5 : 0.25, 0}; };
  const SimStep done = simulate(plan, std::move(costs));
  // Rank 1 runs F from 1 + 0.5 on, I, and W until 13.5. It is ready, and a quarter later the
  // controller knows.
  EXPECT_DOUBLE_EQ(done.ranks[1].first, 1.5);
  EXPECT_DOUBLE_EQ(done.ranks[1].last, 13.5);
  EXPECT_DOUBLE_EQ(done.ranks[0].last, 3.5 + 0.25 + 2);
  EXPECT_DOUBLE_EQ(done.commit, 13.5 + 0.25);
  // The commit takes a half, the update 2, and the message that rank 1 is done a quarter.
  EXPECT_DOUBLE_EQ(done.makespan, 13.75 + 0.5 + 2 + 0.25);
}

TEST(Bandwidth, MessagesOfOneLinkFollowOneAnother) {
  const auto plan = chain_plan(chain_config("gpipe", 2, 4));
  SimCosts costs = unit_costs(*plan);
  costs.link.bytes_per_time = 8 * 4 / 5.0;  // an activation of a sample takes 5
  const SimStep done = simulate(plan, std::move(costs));
  // Four targets and four activations leave one after another, the last is there at 8 x 5; then the
  // last F, and four B that wait for nothing. Gradients follow one another from the end of the
  // first B on, and the last B waits for the last of them.
  ASSERT_EQ(done.traffic.size(), 2u);
  EXPECT_NEAR(done.ranks[1].last, 8 * 5 + 1 + 4 * 2, 1e-9);
  EXPECT_NEAR(done.ranks[0].last, 8 * 5 + 1 + 2 + 4 * 5 + 2, 1e-9);
}

TEST(Traffic, CountsTensorsBetweenRanks) {
  const auto plan = chain_plan(chain_config("1f1b", 3, 5));
  const SimStep done = simulate(plan, unit_costs(*plan));
  std::vector<std::string> links;
  for (const SimTraffic& t : done.traffic)
    links.push_back(cat(t.from, ">", t.to, " ", t.messages, " ", t.bytes));
  // Targets go from the controller to the last rank, its losses back.
  EXPECT_EQ(links, (std::vector<std::string>{"0>1 5 160", "0>2 5 160", "1>0 5 160", "1>2 5 160",
                                             "2>0 5 40", "2>1 5 160"}));
}

TEST(Prediction, FollowsTheSpeedOfEachRank) {
  const auto plan = chain_plan(chain_config("1f1b", 2, 4));
  Cluster cluster;
  cluster.machines = {{.name = "fast", .group = ""}, {.name = "slow", .group = "", .speed = 0.25}};
  cluster.overhead = 0;
  const auto uneven = predict(plan, &cluster, false);
  cluster.machines[1].speed = 1;
  const auto even = predict(plan, &cluster, false);
  ASSERT_TRUE(uneven.ok() && even.ok());
  EXPECT_NEAR(uneven.value().ranks[0].busy, even.value().ranks[0].busy, 1e-15);
  EXPECT_NEAR(uneven.value().ranks[1].busy, 4 * even.value().ranks[1].busy, 1e-15);
  EXPECT_GT(uneven.value().ranks[0].idle, even.value().ranks[0].idle);
  EXPECT_EQ(uneven.value().ranks[0].peak_bytes, plan->arena_bytes[0]);
}

// An action costs its kernel and the overhead; the overhead is idle time, as a run measures it.
TEST(Prediction, CountsTheOverheadAsIdle) {
  PlanConfig config = chain_config("1f1b", 1, 10);
  const auto plan = chain_plan(config);
  SimCosts costs = unit_costs(*plan);
  costs.overhead = 0.5;
  const SimStep done = simulate(plan, std::move(costs));
  EXPECT_NEAR(done.ranks[0].busy, 30, 1e-9);
  EXPECT_NEAR(done.ranks[0].last, 0.5 + 30 + 20 * 0.5, 1e-9);  // the clearing comes first
}

// The settings of the plan that a profile sets.
TEST(Prediction, UsesTheMeasuredSpeedOfUpdatesAndTimeBetweenActions) {
  const auto seconds = [](double memory_speed, double overhead) {
    PlanConfig config = chain_config("1f1b", 1, 4);
    config.machines.memory_speed = memory_speed;
    config.machines.overhead = overhead;
    return predict(chain_plan(config), nullptr, false).take().seconds;
  };
  const double slow = seconds(1e3, 1), usual = seconds(2e3, 1), fast = seconds(4e3, 1);
  EXPECT_GT(slow - usual, 0);
  EXPECT_NEAR((slow - usual) / (usual - fast), 2, 1e-6);
  // 8 actions, and before and after them the jobs of a step.
  EXPECT_GE(seconds(1e3, 3) - seconds(1e3, 2), 8);
  EXPECT_NEAR(seconds(1e3, 3) - seconds(1e3, 2), seconds(1e3, 2) - slow, 1e-6);
}

// Two layers; the gradient of the input is not computed. A copy of 64 x 64 takes 16 KiB, one of 8 x
// 8 half a KiB, with padding.
TEST(Prediction, CountsPackingWhereNoCopyIsKept) {
  constexpr int32_t kMicroBatches = 4;
  const auto added = [](int64_t width, int32_t rows, const std::string& precision) {
    const auto seconds = [&](bool packed) {
      PlanConfig config = chain_config("1f1b", 1, kMicroBatches);
      config.micro_batch_size = rows;
      config.precision = precision;
      config.packed = packed ? kAllPacked : "";
      config.machines.memory_speed = 1;
      const auto model = make_preset(cat("mlp:layers=2,width=", width), {}).value().model;
      return predict(make_plan(model, config).take(), nullptr, false).take().seconds;
    };
    return seconds(false) - seconds(true);
  };
  // The weight is read and the copy written for each call; copies are written in an update.
  EXPECT_NEAR(added(8, 1, "f32"), kMicroBatches * 3 * (256 + 512) - 3 * 512, 1e-3);
  EXPECT_NEAR(added(64, 9, "f32"), kMicroBatches * (16 << 11) - 3 * (16 << 10), 1e-3);
  EXPECT_NEAR(added(256, 8, "f32"), kMicroBatches * (256 << 11) - 3 * (256 << 10), 1e-3);
  EXPECT_NEAR(added(256, 9, "f32"), kMicroBatches * 3 * (256 << 11) - 3 * (256 << 10), 1e-3);
  EXPECT_NEAR(added(256, 1, "bf16"), kMicroBatches * 3 * (256 + 128) * 1024 - 3 * (128 << 10),
              1e-3);
}

// Two machines, the link between which is slow: before the last of three ranks, or after the first.
TEST(Prediction, OfCutsForTheLinksOfAClusterIsNearTheBestOfAllCuts) {
  const auto model =
      make_preset("gpt-nano:blocks=2,width=16,heads=2,vocabulary=32", {.seq_len = 16}).take().model;
  std::vector<std::vector<std::string>> chosen;
  for (const uint64_t first : {2, 1}) {
    auto cluster = std::make_shared<Cluster>();
    cluster->machines = {{.name = "a", .group = "", .ranks = first},
                         {.name = "b", .group = "", .ranks = 3 - first}};
    cluster->between.bandwidth = 1e8;
    cluster->overhead = 0;
    PlanConfig config;
    config.ranks = 3;
    config.schedule = "gpipe";
    config.micro_batches = 32;
    config.machines = machines_of(cluster, 3);
    const auto seconds = [&] {
      const auto plan = make_plan(model, config);
      EXPECT_TRUE(plan.ok()) << plan.status().text();
      return predict(plan.value(), cluster.get(), false).take().seconds;
    };
    chosen.push_back(make_plan(model, config).take()->config.cuts);
    const double found = seconds();
    double best = found;
    std::vector<std::string> names;
    for (const Node& node : model->nodes())
      if (!node.is_input()) names.push_back(node.name);
    for (size_t i = 1; i < names.size(); ++i)
      for (size_t j = i + 1; j < names.size(); ++j) {
        config.cuts = {names[i], names[j]};
        best = std::min(best, seconds());
      }
    EXPECT_LE(found, 1.05 * best) << first << " ranks on the first machine";
  }
  EXPECT_NE(chosen[0], chosen[1]);
}

// Blocks of different lengths recompute different calls.
TEST(Prediction, OfCutsForRecomputeIsAtMostThatOfCutsForOtherBlocks) {
  const auto model = make_preset("gpt2", {.seq_len = 128}).value().model;
  const std::vector<const char*> blocks = {"none", "every:2", "stage"};
  for (const auto& [schedule, bandwidth] : {std::pair("1f1b", 0.0),
                                            {"looped-bfs", 0.0},
                                            {"zb-v", 0.0},
                                            {"v-half", 3e7},
                                            {"dualpipe-v", 0.0},
                                            {"dualpipe-v", 3e7}}) {
    PlanConfig config;
    config.machines.bandwidth = bandwidth;
    config.ranks = 4;
    config.micro_batches = 12;
    config.schedule = schedule;
    std::vector<std::vector<std::string>> cuts;
    for (const char* recompute : blocks) {
      config.recompute = recompute;
      cuts.push_back(make_plan(model, config).value()->config.cuts);
    }
    for (size_t own = 0; own < blocks.size(); ++own) {
      config.recompute = blocks[own];
      std::vector<double> seconds;
      for (const auto& some : cuts) {
        config.cuts = some;
        const auto plan = make_plan(model, config).value();
        seconds.push_back(predict(plan, nullptr, false).value().seconds);
      }
      EXPECT_LE(seconds[own], 1.03 * *std::min_element(seconds.begin(), seconds.end()))
          << schedule << " " << blocks[own];
    }
  }
}

TEST(Prediction, RefusesTimesThatAreTooLong) {
  PlanConfig config = chain_config("1f1b", 2, 4);
  config.machines.speeds = {1, 1e-320};
  const auto slow = predict(chain_plan(config), nullptr, false);
  ASSERT_FALSE(slow.ok());
  EXPECT_NE(slow.status().text().find("a job of rank 1 takes inf s, expected at most 1e+09"),
            std::string::npos)
      << slow.status().text();
  config.machines.speeds = {};
  config.machines.bandwidth = 1e-320;
  const auto late = predict(chain_plan(config), nullptr, false);
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.status().text().find("a step takes inf s"), std::string::npos)
      << late.status().text();
}

// W of a weight takes 8 s for one micro-batch, and 36 s for eight at once: 4 s, and 4 s for each.
TEST(Prediction, CountsWhatWeightGradientsSaveAtOnce) {
  const auto saved = [](const char* schedule, int32_t group) {
    const auto seconds = [&](double weight_together) {
      PlanConfig config = chain_config(schedule, 1, 8);
      config.group = group;
      const auto model = chain_model(1);
      for (const Node& node : model->nodes())
        config.times.push_back(node.weights.empty() ? NodeTimes{}
                                                    : NodeTimes{1, 1, 8, weight_together});
      return predict(chain_plan(config), nullptr, false).take().seconds;
    };
    return seconds(0) - seconds(4.5);
  };
  EXPECT_NEAR(saved("1f1b", 0), 0, 1e-6);
  EXPECT_NEAR(saved("1f1b-delayed-w", 4), 8 * 8 - 2 * 20, 1e-6);
  EXPECT_NEAR(saved("1f1b-delayed-w", 8), 8 * 8 - (8 + 7 * 4), 1e-6);
  EXPECT_NEAR(saved("1f1b-delayed-w", 1), 0, 1e-6);
}

// Ranks that share a stage wait for each other in the middle of an action.
TEST(Prediction, CountsTheExchangesOfRanksThatShareAStage) {
  PlanConfig config = chain_config("1f1b", 2, 2);
  config.tensor = config.shard_ranks = 2;
  const auto plan = chain_plan(config);
  const auto predicted = predict(plan, nullptr, true);
  ASSERT_TRUE(predicted.ok()) << predicted.status().text();
  const ModePlan& mode = plan->mode(Mode::train);
  struct Moment {
    int32_t edge, micro_batch;
    int64_t time;
  };
  std::vector<Moment> posted, awaited;
  for (size_t r = 0; r < 2; ++r)
    for (const TraceSpan& span : predicted.value().spans[r]) {
      const Job& job = mode.ranks[r].jobs[static_cast<size_t>(span.job)];
      if (job.kind != JobKind::action) continue;
      const ActionProgram& program = mode.ranks[r].programs[static_cast<size_t>(job.program)];
      for (int32_t e : program.posts) posted.push_back({e, job.micro_batch, span.time.end});
      for (int32_t e : program.waits) awaited.push_back({e, job.micro_batch, span.time.begin});
    }
  int exchanges = 0;
  for (const Moment& wait : awaited)
    for (const Moment& post : posted) {
      if (wait.edge != post.edge || wait.micro_batch != post.micro_batch) continue;
      const Edge& edge = mode.edges[static_cast<size_t>(wait.edge)];
      if (edge.from_rank == edge.to_rank) continue;
      ++exchanges;
      EXPECT_GE(wait.time - post.time, 60'000) << "edge " << wait.edge;
    }
  EXPECT_GT(exchanges, 8);
}

// Kernels of linear take 1, all else takes no time. The first rank prepares the input of both.
TEST(Prediction, LetsRanksThatShareAStageComputeAtTheSameTime) {
  PlanConfig config = chain_config("1f1b", 2, 3);
  config.tensor = config.shard_ranks = 2;
  const auto plan = make_plan(test::chain_model(8), config).take();
  SimCosts costs;
  costs.job = [&](int32_t, const RankProgram& program, const Job& job) {
    if (job.kind != JobKind::action) return 0.0;
    const auto& calls = program.programs[static_cast<size_t>(job.program)].calls;
    return static_cast<double>(std::count_if(calls.begin(), calls.end(), [&](const auto& call) {
      return call.kind == CallKind::forward && plan->model->node(call.node).op->name() == "linear";
    }));
  };
  const SimStep done = simulate(plan, std::move(costs));
  EXPECT_EQ(done.ranks[0].busy, 3 * 8);
  EXPECT_EQ(done.ranks[1].busy, 3 * 8);
  EXPECT_EQ(span_of(done), 3 * 8);
}

TEST(Prediction, KeepsATimelineIfAsked) {
  const auto plan = chain_plan(chain_config("1f1b", 2, 3));
  const auto silent = predict(plan, nullptr, false), told = predict(plan, nullptr, true);
  ASSERT_TRUE(silent.ok() && told.ok());
  EXPECT_TRUE(silent.value().spans.empty());
  ASSERT_EQ(told.value().spans.size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    const auto& spans = told.value().spans[r];
    ASSERT_EQ(spans.size(), 9u);  // clear, six actions, reduce, update
    for (size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].time.begin, spans[i - 1].time.end);
  }
  const std::string text = trace_text(*plan, told.value().spans, "predicted");
  for (const char* part : {"\"weft, predicted\"", "\"rank 1: stage 1\"", "\"0F0\"", "\"1B2\"",
                           "\"clear\"", "\"update\""})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

// As many ranks as a test can afford; tests/bench has the thousand.
TEST(Large, IsAsTheSmallOnes) {
  const auto plan = chain_plan(chain_config("1f1b", 96, 256));
  const SimStep done = simulate(plan, unit_costs(*plan));
  EXPECT_NEAR(done.commit, 3 * (256 + 95), 1e-6);
  EXPECT_EQ(done.traffic.size(), 2u * 95 + 2);
}

}  // namespace
}  // namespace weft
