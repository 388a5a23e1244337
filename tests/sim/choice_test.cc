// What comparing and choosing come to.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/chain.h"
#include "tune/compare.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

// Nodes that take long enough for the overhead not to matter.
PlanConfig slow_config(const Model& model, int32_t ranks, int32_t micro_batches) {
  PlanConfig config = test::chain_config("auto", ranks, micro_batches);
  config.split = SplitBy::cost;
  bool first = true;  // it has no I, so that W takes the time of both
  for (const Node& node : model.nodes()) {
    config.times.emplace_back();
    if (node.is_input() || node.weights.empty()) continue;
    config.times.back() = {0.1, first ? 0 : 0.1, first ? 0.2 : 0.1};
    first = false;
  }
  return config;
}

const Candidate* find(const Comparison& comparison, const std::string& schedule) {
  for (const Candidate& c : comparison.candidates)
    if (c.schedule == schedule) return &c;
  return nullptr;
}

TEST(Compare, TablesEverySchedule) {
  const auto model = test::chain_model(8);
  PlanConfig config = slow_config(*model, 4, 8);
  config.warm_up = kAutoWarmUp;
  const auto compared = compare_schedules(model, config, nullptr);
  ASSERT_TRUE(compared.ok()) << compared.status().text();
  for (const ScheduleKind& kind : all_schedules()) {
    const Candidate* c = find(compared.value(), std::string(kind.name));
    EXPECT_EQ(c != nullptr, !kind.forward_only && !kind.asynchronous) << kind.name;
    if (!c) continue;
    EXPECT_TRUE(c->refused.ok()) << kind.name << ": " << c->refused.text();
  }
  ASSERT_GE(compared.value().best, 0);
  const Candidate& best = compared.value().candidates[static_cast<size_t>(compared.value().best)];
  for (const Candidate& c : compared.value().candidates)
    EXPECT_LE(best.prediction.seconds, c.prediction.seconds * 1.001) << c.schedule;
  EXPECT_LT(best.prediction.seconds, find(compared.value(), "gpipe")->prediction.seconds);
}

TEST(Compare, KeepsToTheBytesOfARank) {
  const auto model = test::chain_model(8);
  PlanConfig config = slow_config(*model, 4, 16);
  config.micro_batch_size = 256;
  const auto free = compare_schedules(model, config, nullptr);
  ASSERT_TRUE(free.ok()) << free.status().text();
  const Candidate* gpipe = find(free.value(), "gpipe");
  const Candidate* least = find(free.value(), "1f1b");
  ASSERT_LT(least->prediction.peak_bytes(), gpipe->prediction.peak_bytes());
  config.memory_limit = least->prediction.peak_bytes();
  const auto limited = compare_schedules(model, config, nullptr);
  ASSERT_TRUE(limited.ok()) << limited.status().text();
  EXPECT_TRUE(find(limited.value(), "gpipe")->over);
  EXPECT_EQ(find(limited.value(), "gpipe")->prediction.peak_bytes(),
            gpipe->prediction.peak_bytes());
  ASSERT_GE(limited.value().best, 0);
  const Candidate& best = limited.value().candidates[static_cast<size_t>(limited.value().best)];
  EXPECT_LE(best.prediction.peak_bytes(), config.memory_limit);
  config.memory_limit = 1000;
  const auto none = choose(model, config, nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().text().find(cat(
                "no schedule fits into 1000 bytes: the smallest plan without a limit, 1f1b, needs ",
                least->prediction.peak_bytes(),
                " bytes on its largest rank; within a limit it can need less")),
            std::string::npos)
      << none.status().text();
}

// The refusal names the bytes of stages that are cut without a limit. Others need less.
TEST(Compare, TheSmallestOfARefusalIsThatWithoutALimit) {
  const auto model =
      make_preset("gpt-nano:blocks=3,width=32,heads=2,context=32,vocabulary=1024", {.seq_len = 0})
          .value()
          .model;
  PlanConfig config;
  config.ranks = 3;
  config.micro_batches = 4;
  config.micro_batch_size = 2;
  config.warm_up = kAutoWarmUp;
  const auto free = compare_schedules(model, config, nullptr).take();
  int64_t least = INT64_MAX;
  for (const Candidate& c : free.candidates)
    if (c.refused.ok()) least = std::min(least, c.prediction.peak_bytes());
  config.memory_limit = 1000;
  const Status none = choose(model, config, nullptr).status();
  EXPECT_NE(
      none.text().find(cat(" needs ", bytes_text(least), " on its largest rank; within a limit")),
      std::string::npos)
      << none.text();
  config.memory_limit = least * 8 / 10;
  EXPECT_TRUE(choose(model, config, nullptr).ok());
}

PlanConfig any_mesh(const Model& model, int32_t ranks, int32_t micro_batches) {
  PlanConfig config = slow_config(model, ranks, micro_batches);
  config.data = config.shard_ranks = kAutoMesh;
  config.gradient_groups = config.tensor = 0;
  config.packed.clear();  // packed weights take what a limit leaves
  return config;
}

std::vector<std::string> meshes_in(const Comparison& comparison) {
  std::vector<std::string> out;
  for (const Candidate& c : comparison.candidates) out.push_back(c.mesh.text());
  return out;
}

TEST(Meshes, AreAllThatHaveTheRanksAndKeepTheSettings) {
  const auto texts = [](const PlanConfig& config) {
    std::vector<std::string> out;
    const auto all = meshes_of(config).take();
    for (const MeshSizes& mesh : all) out.push_back(mesh.text());
    return out;
  };
  const auto model = test::chain_model(8);
  PlanConfig config = any_mesh(*model, 4, 2);
  EXPECT_EQ(texts(config),
            (std::vector<std::string>{"data=1,stage=4,tensor=1", "data=2,stage=2,tensor=1",
                                      "data=1,stage=2,tensor=2", "data=2,stage=1,tensor=2",
                                      "data=1,stage=1,tensor=4"}));
  config.micro_batches = 12;
  config.ranks = 6;
  config.tensor = 1;
  config.gradient_groups = 6;  // halves, or all of them
  EXPECT_EQ(texts(config),
            (std::vector<std::string>{"data=1,stage=6,tensor=1", "data=2,stage=3,tensor=1",
                                      "data=6,stage=1,tensor=1"}));
  config.ranks = 0;
  EXPECT_EQ(meshes_of(config).status().text(), "ranks is 0, expected 1 to 4096");
}

TEST(Meshes, TheBestOneIsTheFastestThatFitsAndTheOthersSayWhatTheyLoseBy) {
  const auto model = test::chain_model(8);
  PlanConfig config = any_mesh(*model, 4, 8);
  config.tensor = 1;
  const auto compared = compare_schedules(model, config, nullptr);
  ASSERT_TRUE(compared.ok()) << compared.status().text();
  const Comparison& free = compared.value();
  EXPECT_EQ(meshes_in(free),
            (std::vector<std::string>{"data=1,stage=4,tensor=1", "data=2,stage=2,tensor=1",
                                      "data=4,stage=1,tensor=1"}));
  ASSERT_GE(free.best, 0);
  for (const Candidate& c : free.candidates) {
    ASSERT_TRUE(c.refused.ok()) << c.refused.text();
    EXPECT_NEAR(c.prediction.work + c.prediction.waiting, c.prediction.seconds, 1e-9)
        << "without links there are no messages to wait for";
    EXPECT_GE(c.prediction.seconds,
              free.candidates[static_cast<size_t>(free.best)].prediction.seconds / 1.001);
  }
  // A pipeline idles, whole replicas of equal work do not.
  EXPECT_EQ(free.candidates[static_cast<size_t>(free.best)].mesh.text(), "data=4,stage=1,tensor=1");
  EXPECT_GT(free.candidates[0].prediction.waiting, free.candidates[2].prediction.waiting);

  config.machines.bandwidth = 100;  // gradients are large, activations of one sample are not
  const Comparison slow = compare_schedules(model, config, nullptr).value();
  EXPECT_EQ(slow.candidates[static_cast<size_t>(slow.best)].mesh.text(), "data=1,stage=4,tensor=1");
  const Prediction& replicas = slow.candidates[2].prediction;
  EXPECT_GT(replicas.seconds - replicas.work - replicas.waiting, replicas.work);
  config.machines.bandwidth = 0;

  config.memory_limit = free.candidates[2].prediction.peak_bytes() - 1;
  const Comparison limited = compare_schedules(model, config, nullptr).value();
  EXPECT_TRUE(limited.candidates[2].over || !limited.candidates[2].refused.ok());
  ASSERT_GE(limited.best, 0);
  EXPECT_LE(limited.candidates[static_cast<size_t>(limited.best)].prediction.peak_bytes(),
            config.memory_limit);

  const auto chosen = choose(model, config, nullptr);
  ASSERT_TRUE(chosen.ok()) << chosen.status().text();
  const MeshSizes& mesh = limited.candidates[static_cast<size_t>(limited.best)].mesh;
  EXPECT_EQ(chosen.value().data, mesh.data);
  EXPECT_EQ(chosen.value().shard_ranks, mesh.tensor);
  EXPECT_TRUE(make_plan(model, chosen.value()).ok());
}

TEST(Meshes, KeepParametersInPartsOnlyIfNothingFitsOtherwise) {
  const auto model = test::chain_model(8);
  PlanConfig config = any_mesh(*model, 4, 8);
  config.tensor = 1;
  config.gradient_groups = 4;
  const auto replicas = [&](const char* shard, int64_t limit) {
    PlanConfig asked = config;
    asked.shard = shard;
    asked.memory_limit = limit;
    const Comparison all = compare_schedules(model, asked, nullptr).take();
    return all.candidates[2];
  };
  const Candidate whole = replicas("optimizer", 0), parts = replicas("parameters", 0);
  ASSERT_EQ(whole.mesh.text(), "data=4,stage=1,tensor=1");
  const int64_t enough = whole.prediction.peak_bytes();
  ASSERT_LT(parts.prediction.peak_bytes(), enough);
  EXPECT_EQ(replicas("auto", enough).config.shard, "optimizer");
  EXPECT_TRUE(replicas("optimizer", enough - 1).over);
  const Candidate kept = replicas("auto", enough - 1);
  EXPECT_FALSE(kept.over);
  EXPECT_EQ(kept.config.shard, "parameters");
  EXPECT_LE(kept.prediction.peak_bytes(), enough - 1);
  EXPECT_NEAR(kept.prediction.work + kept.prediction.waiting, kept.prediction.seconds, 1e-9);
  EXPECT_EQ(replicas("auto", 1000).config.shard, "parameters") << "the smaller of two that do not";

  // One replica has nothing to divide. What is chosen makes the plan of the comparison.
  config.shard = kAutoShard;
  config.memory_limit = enough - 1;
  const Comparison limited = compare_schedules(model, config, nullptr).take();
  EXPECT_EQ(limited.candidates[0].config.shard, "optimizer");
  ASSERT_GE(limited.best, 0);
  const auto chosen = choose(model, config, nullptr);
  ASSERT_TRUE(chosen.ok()) << chosen.status().text();
  const auto plan = make_plan(model, chosen.value());
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  const Candidate& best = limited.candidates[static_cast<size_t>(limited.best)];
  EXPECT_EQ(predict(plan.value(), nullptr, false).value().seconds, best.prediction.seconds);
}

TEST(Choose, TellsAReasonOnceForAllSchedulesThatItHoldsFor) {
  const auto model = test::chain_model(4);
  PlanConfig config;
  config.ranks = 100;
  config.schedule = "auto";
  config.warm_up = kAutoWarmUp;
  const auto none = choose(model, config, nullptr);
  ASSERT_FALSE(none.ok());
  const std::string& text = none.status().text();
  EXPECT_NE(text.find("no schedule fits: gpipe, 1f1b, "), std::string::npos) << text;
  for (const char* reason :
       {": plan: 100 stages need at least", ": plan: 200 stages need at least"}) {
    ASSERT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_EQ(text.find(reason), text.rfind(reason)) << text;
  }
}

TEST(Choose, WarmsUpDeeperWhereLinksAreSlow) {
  const auto model = test::chain_model(4);
  PlanConfig config = slow_config(*model, 4, 32);
  config.schedule = "1f1b";
  config.warm_up = kAutoWarmUp;
  const auto near = choose(model, config, nullptr);
  ASSERT_TRUE(near.ok()) << near.status().text();
  EXPECT_EQ(near.value().warm_up, 1);
  config.machines.latency = 0.1;
  const auto far = choose(model, config, nullptr);
  ASSERT_TRUE(far.ok()) << far.status().text();
  EXPECT_EQ(far.value().warm_up, 2);
}

TEST(Choose, TakesLargerGroupsWhereWeightGradientsGainByThem) {
  const auto model = test::chain_model(2);
  PlanConfig config = slow_config(*model, 1, 16);
  const auto none = choose(model, config, nullptr);
  ASSERT_TRUE(none.ok()) << none.status().text();
  EXPECT_NE(none.value().schedule, "1f1b-delayed-w");
  for (NodeTimes& times : config.times) {
    times.weight *= 4;
    times.weight_together = times.weight / 4;
  }
  const auto chosen = choose(model, config, nullptr);
  ASSERT_TRUE(chosen.ok()) << chosen.status().text();
  EXPECT_EQ(chosen.value().schedule, "1f1b-delayed-w");
  EXPECT_EQ(chosen.value().group, 8);
  config.group = 3;
  const auto given = choose(model, config, nullptr);
  ASSERT_TRUE(given.ok()) << given.status().text();
  EXPECT_EQ(given.value().group, 3);
}

TEST(Choose, LeavesNothingToChoose) {
  const auto model = test::chain_model(8);
  const PlanConfig config = slow_config(*model, 4, 8);
  const auto chosen = choose(model, config, nullptr);
  ASSERT_TRUE(chosen.ok()) << chosen.status().text();
  EXPECT_NE(find_schedule(chosen.value().schedule), nullptr) << chosen.value().schedule;
  const auto plan = make_plan(model, chosen.value());
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(plan.value()->config.schedule, chosen.value().schedule);
  PlanConfig told = chosen.value();
  const auto again = choose(model, told, nullptr);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value().schedule, told.schedule);
}

TEST(Compare, AScheduleThatDoesNotTrainIsARowOfItsOwn) {
  const auto model = test::chain_model(4);
  PlanConfig config = slow_config(*model, 4, 4);
  config.schedule = "forward";
  const auto compared = compare_schedules(model, config, nullptr);
  ASSERT_TRUE(compared.ok()) << compared.status().text();
  ASSERT_EQ(compared.value().candidates.size(), 1u);
  EXPECT_EQ(compared.value().best, -1);
  EXPECT_EQ(compared.value().candidates[0].refused.text(),
            "plan: schedule 'forward' has no backward and cannot train");
}

TEST(Compare, OneThatIsNotKnownIsRefusedWithThoseThatAre) {
  const auto model = test::chain_model(4);
  PlanConfig config = slow_config(*model, 4, 4);
  config.schedule = "fast";
  const auto compared = compare_schedules(model, config, nullptr);
  ASSERT_FALSE(compared.ok());
  EXPECT_EQ(compared.status().code(), Code::not_found);
  EXPECT_TRUE(
      compared.status().text().starts_with("schedule 'fast' is not known; there are gpipe, 1f1b, "))
      << compared.status().text();
}

// What is known of the runs of one plan serves the next.
TEST(Compare, PlansOneAfterAnotherAsEachAlone) {
  const auto model =
      make_preset("gpt-nano:blocks=2,width=32,heads=2,vocabulary=64", {.seq_len = 16}).take().model;
  int made = 0;
  for (const MeshSizes mesh : {MeshSizes{1, 2, 2}, MeshSizes{2, 2, 1}}) {
    PlanConfig config;
    config.ranks = 4;
    config.micro_batches = 8;
    config.precision = "bf16";  // its scratch memory differs between the orders
    config.gradient_groups = config.tensor = 0;
    config = with_mesh(config, mesh);
    Planner planner(model);
    for (const ScheduleKind& kind : all_schedules())
      for (const int64_t limit : {0, 600000, 400000}) {
        SCOPED_TRACE(cat(mesh.text(), " ", kind.name, " ", limit));
        config.schedule = kind.name;
        config.memory_limit = limit;
        const auto found = planner.plan(config), expected = make_plan(model, config);
        EXPECT_EQ(found.status().text(), expected.status().text());
        if (!found.ok() || !expected.ok()) continue;
        ++made;
        EXPECT_EQ(found.value()->hash, expected.value()->hash);
      }
  }
  EXPECT_GT(made, 30);
}

TEST(Compare, RefusesAClusterOfAnotherSize) {
  const auto model = test::chain_model(4);
  Cluster cluster;
  cluster.machines = {{.name = "a", .group = "", .ranks = 3}};
  const auto compared = compare_schedules(model, slow_config(*model, 4, 4), &cluster);
  ASSERT_FALSE(compared.ok());
  EXPECT_EQ(compared.status().text(), "the cluster has 3 ranks, the plan has 4");
}

// zb-auto on real models, whose stages differ and keep unequal things from I to W.
class ZbAutoPlanned : public testing::TestWithParam<const char*> {
 public:
  Result<Prediction> plan_of(const char* schedule, int64_t limit, SplitBy split,
                             const char* recompute = "none") {
    PlanConfig config = given;
    config.schedule = schedule;
    config.ranks = 4 * config.shard_ranks;
    config.micro_batches = 12;
    config.micro_batch_size = std::string_view(GetParam()).starts_with("mlp") ? 256 : 4;
    config.split = split;
    config.memory_limit = limit;
    config.recompute = recompute;
    config.packed.clear();  // packed weights take what a limit leaves
    WEFT_TRY_ASSIGN(const auto plan, make_plan(model_, config));
    EXPECT_EQ(plan->config.schedule, schedule);
    EXPECT_LE(*std::max_element(plan->arena_bytes.begin(), plan->arena_bytes.end()),
              limit > 0 ? limit : INT64_MAX);
    return predict(plan, nullptr, false);
  }

  PlanConfig given;

 private:
  std::shared_ptr<const Model> model_ = make_preset(GetParam(), {.seq_len = 0}).value().model;
};

// The schedule is made without the overhead of actions and the packing of weights.
constexpr double kSame = 1.002;

TEST_P(ZbAutoPlanned, TakesTheTimeOfZbH2AndNoMoreBytes) {
  for (const SplitBy split : {SplitBy::uniform, SplitBy::cost}) {
    const auto h2 = plan_of("zb-h2", 0, split), made = plan_of("zb-auto", 0, split);
    ASSERT_TRUE(h2.ok() && made.ok()) << made.status().text();
    EXPECT_LE(made.value().seconds, h2.value().seconds * kSame);
    EXPECT_LE(made.value().peak_bytes(), h2.value().peak_bytes());
  }
}

TEST_P(ZbAutoPlanned, UsesTheBytesBeyondZbH1ForLessIdle) {
  for (const SplitBy split : {SplitBy::uniform, SplitBy::cost}) {
    const auto h1 = plan_of("zb-h1", 0, split);
    ASSERT_TRUE(h1.ok());
    const int64_t least = h1.value().peak_bytes();
    for (const int64_t limit : {least, least * 21 / 20, least * 5 / 4, least * 7 / 5}) {
      SCOPED_TRACE(cat(limit, " of ", least));
      const auto made = plan_of("zb-auto", limit, split);
      ASSERT_TRUE(made.ok()) << made.status().text();
      EXPECT_LE(made.value().seconds, h1.value().seconds * kSame);
      EXPECT_LE(made.value().idle, h1.value().idle * kSame);
      if (limit == least * 7 / 5) {
        EXPECT_LT(made.value().idle, 0.97 * h1.value().idle);
      }
    }
  }
}

TEST_P(ZbAutoPlanned, TakesNoMoreBytesUnderALimitThatDoesNotBind) {
  for (const SplitBy split : {SplitBy::uniform, SplitBy::cost}) {
    const auto free = plan_of("zb-auto", 0, split);
    const auto limited = plan_of("zb-auto", int64_t{1} << 40, split);
    ASSERT_TRUE(free.ok() && limited.ok()) << limited.status().text();
    EXPECT_LE(limited.value().seconds, free.value().seconds * kSame);
    EXPECT_LE(limited.value().peak_bytes(), free.value().peak_bytes());
  }
}

TEST_P(ZbAutoPlanned, WorksWithLessThanZbH1) {
  for (const SplitBy split : {SplitBy::uniform, SplitBy::cost}) {
    const auto h1 = plan_of("zb-h1", 0, split);
    ASSERT_TRUE(h1.ok());
    double before = 0;  // less room, no less time
    for (const int64_t percent : {95, 90}) {
      SCOPED_TRACE(percent);
      const int64_t limit = h1.value().peak_bytes() * percent / 100;
      const auto made = plan_of("zb-auto", limit, split);
      ASSERT_TRUE(made.ok()) << made.status().text();
      EXPECT_GE(made.value().seconds * kSame, before);
      before = made.value().seconds;
      EXPECT_TRUE(plan_of("zb-auto", limit, split, "auto").ok());
    }
  }
}

// Its costs contain neither the times of messages nor the shares of ranks that share a stage.
TEST_P(ZbAutoPlanned, IsNotSlowerThanZbH1AndZbH2WhereItsCostsLackTimes) {
  for (const int32_t tensor : {1, 2}) {
    given.tensor = given.shard_ranks = tensor;
    for (const double bandwidth : {1e7, 1e9}) {
      given.machines.bandwidth = bandwidth;
      for (const char* schedule : {"zb-h1", "zb-h2"}) {
        const auto free = plan_of(schedule, 0, SplitBy::cost);
        ASSERT_TRUE(free.ok()) << free.status().text();
        for (const int64_t limit : {int64_t{0}, free.value().peak_bytes()}) {
          SCOPED_TRACE(cat(schedule, " tensor ", tensor, " bandwidth ", bandwidth, " ", limit));
          const auto fixed = plan_of(schedule, limit, SplitBy::cost),
                     made = plan_of("zb-auto", limit, SplitBy::cost);
          ASSERT_TRUE(fixed.ok() && made.ok()) << made.status().text();
          EXPECT_LE(made.value().seconds, fixed.value().seconds);
        }
      }
    }
  }
}

// The order is made for the times that the ranks have, not for those of the machine that was
// measured.
TEST(ZbAuto, KnowsTheSpeedsOfRanks) {
  const auto model = test::chain_model(8);
  PlanConfig config = slow_config(*model, 4, 8);
  config.split = SplitBy::uniform;
  config.schedule = "zb-auto";
  const auto rows = [&] {
    const auto plan = make_plan(model, config);
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    return plan.value()->mode(Mode::train).schedule.text();
  };
  const std::string equal = rows();
  config.machines.speeds = {1, 4, 2, 1};
  const std::string unequal = rows();
  EXPECT_NE(equal, unequal);
  const std::vector<int32_t> stages = make_plan(model, config).value()->stage_of_node;
  for (size_t id = 0; id < config.times.size(); ++id)
    for (double* t : {&config.times[id].forward, &config.times[id].input, &config.times[id].weight})
      *t /= config.machines.speeds[static_cast<size_t>(stages[id])];
  config.machines.speeds.clear();
  EXPECT_EQ(rows(), unequal);
}

INSTANTIATE_TEST_SUITE_P(Models, ZbAutoPlanned,
                         testing::Values("gpt-nano:blocks=6,context=64",
                                         "mlp:layers=12,width=512"));

}  // namespace
}  // namespace weft
