// How a model is cut: by parameters, by type, by measured times, for given machines and under a cap
// of bytes.
#include "partition/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "base/text.h"
#include "graph/presets.h"
#include "plan/encode.h"
#include "support/random_model.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

std::shared_ptr<const Model> model_of(const char* text, int64_t seq_len = 0) {
  auto preset = make_preset(text, {.seq_len = seq_len});
  EXPECT_TRUE(preset.ok()) << preset.status().text();
  return preset.ok() ? preset.value().model : nullptr;
}

PlanConfig config_of(int32_t ranks, SplitBy split) {
  PlanConfig config;
  config.ranks = ranks;
  config.micro_batches = 4;
  config.split = split;
  config.packed.clear();  // packed weights take what a limit leaves
  return config;
}

std::vector<std::string> cuts(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.ok() ? plan.value()->config.cuts : std::vector<std::string>();
}

std::string fault(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  return make_plan(model, config).status().text();
}

TEST(Stages, ByTypeEqualNumbersOfBlocks) {
  const auto model = model_of("gpt2:blocks=12,width=64,heads=4,vocabulary=100,context=16");
  PlanConfig config = config_of(4, SplitBy::type);
  config.split_type = "attention";
  EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"h.3.ln_1", "h.6.ln_1", "h.9.ln_1"}));
  config.ranks = 5;
  EXPECT_EQ(cuts(model, config),
            (std::vector<std::string>{"h.3.ln_1", "h.6.ln_1", "h.8.ln_1", "h.10.ln_1"}));
  config.ranks = 13;
  EXPECT_EQ(fault(model, config),
            "plan: 13 stages need at least as many nodes of type 'attention', found 12");
  config.split_type = "attn";
  EXPECT_EQ(fault(model, config).substr(0, 61),
            "plan: no node has the type 'attn'; the model has embedding, a");
}

TEST(Stages, CutsThatDoNotAscendAreNamed) {
  const auto model = model_of("gpt2:blocks=3,width=64,heads=4,vocabulary=100,context=16");
  PlanConfig config = config_of(3, SplitBy::cost);
  config.cuts = {"h.2", "h.1"};
  EXPECT_EQ(fault(model, config),
            "plan: cut 'h.1' is at node 'h.1.ln_1', expected one after that of cut 'h.2'");
  config.cuts = {"h.1", "h.1.ln_1"};
  EXPECT_EQ(fault(model, config),
            "plan: cut 'h.1.ln_1' is at node 'h.1.ln_1', expected one after that of cut 'h.1'");
  config.cuts = {"wte", "h.1"};
  EXPECT_EQ(fault(model, config),
            "plan: cut 'wte' is at the first node, 'wte', where stage 0 begins");
}

TEST(Stages, ByParametersTheLargestShareIsTheLeast) {
  const auto model = model_of("mlp:layers=8,width=16");
  EXPECT_EQ(cuts(model, config_of(4, SplitBy::parameters)),
            (std::vector<std::string>{"layers.1.relu", "layers.3.relu", "layers.5.relu"}));
}

TEST(Stages, ByMeasuredTimes) {
  const auto model = model_of("mlp:layers=4,width=16");
  PlanConfig config = config_of(2, SplitBy::cost);
  config.times.resize(model->nodes().size());
  const NodeId dear = model->find_node("layers.3");
  config.times[static_cast<size_t>(dear)] = {.forward = 1, .input = 2, .weight = 3};
  config.times[static_cast<size_t>(model->find_node("layers.0"))] = {
      .forward = 8, .input = 0, .weight = 0};
  for (const char* other : {"layers.1", "layers.2"})
    config.times[static_cast<size_t>(model->find_node(other))].forward = 1;
  EXPECT_EQ(cuts(model, config).front(), "layers.0.relu");
  config.times[static_cast<size_t>(dear)].input = -1;
  EXPECT_EQ(fault(model, config), "plan: a node's time is -1, expected a finite number from 0");
  config.times.pop_back();
  EXPECT_EQ(fault(model, config), "plan: times has 10 entries, expected one for each of 11 nodes");
}

// Rank 0 has the first and the last stage, whose last layer takes 4 s. Eight others take 1 s each.
TEST(Stages, RanksWithSeveralAreEquallyBusy) {
  const auto model = model_of("mlp:layers=9,width=16");
  PlanConfig config = config_of(2, SplitBy::cost);
  config.micro_batches = 8;
  config.times.resize(model->nodes().size());
  for (size_t id = 0; id < config.times.size(); ++id)
    if (!model->nodes()[id].weights.empty()) config.times[id] = {0.25, 0.5, 0.25};
  config.times[static_cast<size_t>(model->find_node("layers.8"))] = {1, 2, 1};
  for (const char* schedule : {"zb-v", "dualpipe-v", "v-half", "v-min"})
    for (const int64_t limit : {int64_t{0}, INT64_MAX / 2}) {
      SCOPED_TRACE(cat(schedule, " limit ", limit));
      config.schedule = schedule;
      config.memory_limit = limit;
      const auto plan = make_plan(model, config);
      ASSERT_TRUE(plan.ok()) << plan.status().text();
      double of_rank_0 = 0;
      for (size_t id = 0; id < config.times.size(); ++id)
        if (const int32_t s = plan.value()->stage_of_whole[id]; s == 0 || s == 3)
          of_rank_0 += config.times[id].total();
      EXPECT_EQ(of_rank_0, 6);
    }
}

// The loss is computed by one of the ranks that share a stage, and takes longest here.
TEST(Stages, EveryRankThatSharesAStageHasANode) {
  const auto model = model_of("mlp:layers=4,width=16");
  PlanConfig config = config_of(4, SplitBy::cost);
  config.shard_ranks = 2;
  config.tensor = 2;
  config.times.resize(model->nodes().size());
  config.times[static_cast<size_t>(model->find_node("loss"))] = {
      .forward = 9, .input = 0, .weight = 0};
  for (const char* name : {"layers.3", "layers.3.relu"})
    config.times[static_cast<size_t>(model->find_node(name))].forward = 1;
  EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"layers.3.relu"}));
  config.machines.speeds = {1, 1, 1, 1};
  EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"layers.3.relu"}));
  config.memory_limit = INT64_MAX / 2;
  config.schedule = "zb-v";
  config.machines.speeds.clear();
  EXPECT_EQ(cuts(model, config).size(), 3u);
  config.cuts = {"loss"};
  config.schedule = "1f1b";
  EXPECT_EQ(fault(model, config),
            "plan: stage 1 has no node for rank 1 of the 2 ranks that share it");
}

TEST(Stages, AScheduleWithoutBackwardCannotTrainWithinALimit) {
  const auto model = model_of("mlp:layers=4,width=8");
  PlanConfig config = config_of(2, SplitBy::cost);
  config.memory_limit = 1 << 20;
  config.schedule = "forward";
  EXPECT_EQ(fault(model, config), "plan: schedule 'forward' has no backward and cannot train");
  config.schedule_text = "0F0 0F1 0F2 0F3\n1F0 1F1 1F2 1F3";
  EXPECT_EQ(fault(model, config), "plan: the schedule has no backward and cannot train");
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::infer);
  EXPECT_EQ(fault(model, config), "");
}

TEST(Stages, UnequalMemory) {
  const auto model = model_of("mlp:layers=8,width=64");
  PlanConfig config = config_of(2, SplitBy::cost);
  const std::vector<int64_t> free = make_plan(model, config).value()->arena_bytes;
  config.machines.memory = {0, free[1] * 2 / 3};
  const auto plan = make_plan(model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_LE(plan.value()->arena_bytes[1], config.machines.memory[1]);
  EXPECT_GT(plan.value()->arena_bytes[0], free[0]);
  config.memory_limit = free[0];  // of every rank; the lesser of the two counts
  EXPECT_NE(fault(model, config).find("the limit is "), std::string::npos) << fault(model, config);
  config.memory_limit = 0;
  config.machines.memory = {0, 1000};
  EXPECT_NE(fault(model, config).find("the limit is 1000"), std::string::npos)
      << fault(model, config);
  config.machines.memory = {1};
  EXPECT_EQ(fault(model, config), "plan: memory has 1 entries, expected one for each of 2 ranks");
}

TEST(Stages, UnequalSpeeds) {
  const auto model = model_of("mlp:layers=8,width=64");
  PlanConfig config = config_of(2, SplitBy::cost);
  config.micro_batches = 16;  // with few, the time in which only one rank is busy counts, too
  EXPECT_EQ(cuts(model, config).front(), "layers.4");
  config.machines.speeds = {3, 1};
  EXPECT_EQ(cuts(model, config).front(), "layers.6");
  config.machines.speeds = {3, 0};
  EXPECT_EQ(fault(model, config), "plan: a rank's speed is 0, expected a finite number above 0");
  config.machines.speeds = {3};
  EXPECT_EQ(fault(model, config), "plan: speeds has 1 entries, expected one for each of 2 ranks");
}

// x [16] -> 64 -> 16 -> 16 -> 16 -> mean squared error. The first layer takes 3 s, the others 1 s.
// Cuts into equal times are at the wide value, which has 256 bytes in f32; the others have 64, like
// the target.
std::shared_ptr<const Model> narrowing_model() {
  Model made;
  const NodeId target = made.add_input("target", {DType::f32, {1, 16}}, false).take();
  NodeId x = made.add_input("x", {DType::f32, {1, 16}}, false).take();
  int64_t features = 16;
  for (const int64_t next : {64, 16, 16, 16}) {
    const std::string name = cat("l", made.params().size());
    const ParamId w[] = {
        made.add_param(name, Shape{features, next}, {InitKind::normal, 0.1}).take()};
    const NodeId in[] = {x};
    x = made.add_node(name, find_op("linear"), {}, in, w).take();
    features = next;
  }
  const NodeId ends[] = {x, target};
  EXPECT_TRUE(made.add_node("loss", find_op("mse"), {}, ends, {}).ok());
  EXPECT_TRUE(made.finish().ok());
  return std::make_shared<const Model>(std::move(made));
}

PlanConfig narrowing_config(SplitBy split, double bandwidth, const char* precision) {
  PlanConfig config = config_of(2, split);
  config.micro_batches = 16;
  config.warm_up = 4;  // so that computing hides messages
  for (const double seconds : {0, 0, 3, 1, 1, 1, 0})
    config.times.push_back({seconds / 3, seconds / 3, seconds / 3});
  config.machines.bandwidth = bandwidth;
  config.precision = precision;
  return config;
}

TEST(Stages, MessagesCountAsTheyAreStored) {
  const auto model = narrowing_model();
  for (const auto& [split, bandwidth] :
       {std::pair(SplitBy::cost, 60.0), {SplitBy::pipedream, 120.0}}) {
    PlanConfig config = narrowing_config(split, bandwidth, "bf16");
    EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"l1"}));
    config.f32_nodes = "l0";
    EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"l2"}));
    config = narrowing_config(split, bandwidth, "f32");
    EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"l2"}));
  }
}

TEST(Stages, TiedWeightsStayOnOneRankIfLinksAreSlow) {
  const auto model = model_of("gpt2:blocks=6", 64);
  PlanConfig config = config_of(2, SplitBy::cost);
  config.micro_batches = 8;
  config.micro_batch_size = 1;
  config.schedule = "interleaved";
  config.machines.bandwidth = 1e8;
  const auto plan = make_plan(model, config).value();
  const auto rank = [&](const char* node) {
    const int32_t stage = plan->stage_of_whole[static_cast<size_t>(model->find_node(node))];
    return plan->mode(Mode::train).schedule.rank_of_stage[static_cast<size_t>(stage)];
  };
  EXPECT_EQ(rank("wte"), rank("lm_head"));
}

// With three ranks, the target is sent over a link that has no other messages.
TEST(Stages, InputsCountOnTheLinkFromRank0) {
  const auto model = narrowing_model();
  for (const auto& [split, bandwidth] :
       {std::pair(SplitBy::cost, 70.0), {SplitBy::pipedream, 135.0}}) {
    PlanConfig config = narrowing_config(split, bandwidth, "f32");
    EXPECT_EQ(cuts(model, config), (std::vector<std::string>{"l2"}));
    config.ranks = 3;
    EXPECT_EQ(cuts(model, config).front(), "l1");
  }
}

// A forward takes a second, and a message two and a half: five micro-batches pass while one is
// in transit and its grant returns.
TEST(Stages, SlowLinksHaveMorePlaces) {
  const auto model = model_of("mlp:layers=2,width=16");
  PlanConfig config = config_of(2, SplitBy::uniform);
  config.micro_batches = 16;
  config.cuts = {"layers.1"};
  for (const Node& node : model->nodes())
    config.times.push_back(node.weights.empty() ? NodeTimes{0, 0, 0} : NodeTimes{1, 0.5, 0.5});
  const auto slack = [&] {
    auto plan = make_plan(model, config);
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    return plan.ok() ? plan.value()->config.slack : 0;
  };
  EXPECT_EQ(slack(), 1);
  config.machines.latency = 2.5;
  EXPECT_EQ(slack(), 5);
  config.machines.latency = 1e9;
  EXPECT_EQ(slack(), 16);
  config.slack = 2;
  EXPECT_EQ(slack(), 2);
}

// If each run of nodes that is tried took the time of the whole model, the search would not end
// within the time that the suite is given.
// With bytes counted for every run of nodes, this would take minutes.
TEST(Stages, ALimitForManyNodesIsKept) {
  const auto model = model_of("mlp:layers=1000,width=4");
  PlanConfig config = config_of(64, SplitBy::cost);
  config.micro_batches = 128;
  const auto free = make_plan(model, config);
  ASSERT_TRUE(free.ok()) << free.status().text();
  const std::vector<int64_t>& bytes = free.value()->arena_bytes;
  config.memory_limit = *std::max_element(bytes.begin(), bytes.end()) - 1;
  const auto capped = make_plan(model, config);
  ASSERT_TRUE(capped.ok()) << capped.status().text();
  for (int64_t b : capped.value()->arena_bytes) EXPECT_LE(b, config.memory_limit);
  config.memory_limit /= 4;  // which no cuts keep
  EXPECT_FALSE(make_plan(model, config).ok());
}

TEST(Stages, ALimitIsKeptByTheBytesOfThePlan) {
  const auto model = model_of("mlp:layers=12,width=64");
  PlanConfig config = config_of(3, SplitBy::cost);
  config.micro_batch_size = 64;
  auto free = make_plan(model, config);
  ASSERT_TRUE(free.ok()) << free.status().text();
  const std::vector<int64_t>& bytes = free.value()->arena_bytes;
  // Rank 0 holds the most micro-batches.
  EXPECT_EQ(std::max_element(bytes.begin(), bytes.end()) - bytes.begin(), 0);
  config.memory_limit = bytes[0] - bytes[0] / 10;
  auto capped = make_plan(model, config);
  ASSERT_TRUE(capped.ok()) << capped.status().text();
  for (int64_t b : capped.value()->arena_bytes) EXPECT_LE(b, config.memory_limit);
  EXPECT_NE(capped.value()->config.cuts, free.value()->config.cuts);
  config.memory_limit = 100000;
  EXPECT_EQ(
      fault(model, config),
      "plan: no partition fits: rank 0 needs 198016 bytes for the smallest possible stage, the "
      "limit is 100000 bytes");
}

// x [8] -> 1024 -> 8 -> 8 -> mean squared error. By the times given the best cut is at the wide
// value, of which rank 1 has many landing slots, which no estimate counts: the plan takes more
// than twice the limit.
TEST(Stages, ALimitFarExceededIsStillALimit) {
  Model made;
  const Desc row{DType::f32, {1, 8}};
  const NodeId target = made.add_input("target", row, false).take();
  NodeId x = made.add_input("x", row, false).take();
  PlanConfig config = config_of(2, SplitBy::cost);
  config.times.resize(2);
  for (const auto& [name, in_features, out_features] :
       {std::tuple("wide", 8, 1024), {"narrow", 1024, 8}, {"last", 8, 8}}) {
    const ParamId w[] = {made.add_param(cat(name, ".weight"), Shape{in_features, out_features},
                                        {InitKind::normal, 0.1})
                             .take()};
    const NodeId in[] = {x};
    x = made.add_node(name, find_op("linear"), {}, in, w).take();
    config.times.push_back({1, 1, 1});
  }
  config.times[2] = {2, 2, 2};
  config.times.push_back({});
  const NodeId ends[] = {x, target};
  ASSERT_TRUE(made.add_node("loss", find_op("mse"), {}, ends, {}).ok());
  ASSERT_TRUE(made.finish().ok());
  const auto model = std::make_shared<const Model>(std::move(made));
  config.micro_batches = 64;
  config.micro_batch_size = 64;
  config.slack = 64;
  const auto free = make_plan(model, config);
  ASSERT_TRUE(free.ok()) << free.status().text();
  EXPECT_EQ(free.value()->config.cuts.front(), "narrow");
  config.machines.memory = {0, 1 << 20};
  ASSERT_GT(free.value()->arena_bytes[1], 2 * config.machines.memory[1]);
  const auto plan = make_plan(model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(plan.value()->config.cuts.front(), "last");
  EXPECT_LE(plan.value()->arena_bytes[1], config.machines.memory[1]);
}

// Other ranks know neither profile nor machines, and make the same plan.
TEST(Stages, ThePartitionTravelsAsItsCuts) {
  const auto model = model_of("gpt-nano");
  PlanConfig config = config_of(3, SplitBy::cost);
  config.times = analysed_times(*model, 1);
  for (size_t i = 0; i < config.times.size(); ++i)
    config.times[i].forward *= static_cast<double>(1 + i % 5);
  config.machines.speeds = {1, 0.3, 2};
  config.machines.latency = 10;
  auto plan = make_plan(model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  auto received = decode_config(encode_config(plan.value()->config));
  ASSERT_TRUE(received.ok()) << received.status().text();
  EXPECT_TRUE(received.value().times.empty());
  auto again = make_plan(model, received.value());
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again.value()->hash, plan.value()->hash);
}

int64_t largest_rank(const Plan& plan) {
  return *std::max_element(plan.arena_bytes.begin(), plan.arena_bytes.end());
}

// Of each plan with these stages, whatever nodes they begin at.
void add_largest(const std::shared_ptr<const Model>& model, PlanConfig& config, size_t stages,
                 size_t from, std::vector<int64_t>& out) {
  if (config.cuts.size() + 1 == stages) {
    const auto plan = make_plan(model, config);
    if (plan.ok()) out.push_back(largest_rank(*plan.value()));
    return;
  }
  for (size_t id = from; id < model->nodes().size(); ++id) {
    config.cuts.push_back(model->nodes()[id].name);
    add_largest(model, config, stages, id + 1, out);
    config.cuts.pop_back();
  }
}

// A limit is kept if some cuts keep it, and only then.
void expect_kept_if_some_cuts_keep_it(const std::shared_ptr<const Model>& model, PlanConfig config,
                                      size_t stages) {
  std::vector<int64_t> all;
  add_largest(model, config, stages, 0, all);
  std::sort(all.begin(), all.end());
  ASSERT_FALSE(all.empty());
  for (const size_t i : {size_t{0}, all.size() / 16, all.size() / 4}) {
    config.memory_limit = all[i];
    const auto kept = make_plan(model, config);
    ASSERT_TRUE(kept.ok()) << kept.status().text();
    EXPECT_LE(largest_rank(*kept.value()), all[i]);
  }
  config.memory_limit = all[0] - 1;
  EXPECT_FALSE(make_plan(model, config).ok());
}

TEST(Stages, OfRanksThatShareThemKeepALimitThatSomeCutsKeep) {
  PlanConfig config = config_of(4, SplitBy::cost);
  config.shard_ranks = config.tensor = 2;
  const auto model = model_of("gpt-nano:blocks=2,width=32,heads=2,vocabulary=512,tied=0", 16);
  expect_kept_if_some_cuts_keep_it(model, config, 2);
  config.ranks = 6;
  expect_kept_if_some_cuts_keep_it(model_of("mlp:layers=5,width=16"), config, 3);
}

TEST(Stages, OfReplicasKeepALimitThatSomeCutsKeep) {
  PlanConfig config = config_of(4, SplitBy::cost);
  config.data = config.gradient_groups = 2;
  const auto model = model_of("gpt-nano:blocks=2,width=32,heads=2,vocabulary=512,tied=0", 16);
  expect_kept_if_some_cuts_keep_it(model, config, 2);
}

TEST(Stages, OfRanksWithSeveralKeepALimitThatSomeCutsKeep) {
  for (const char* schedule : {"interleaved", "interleaved-zb", "zb-v", "v-half", "looped-bfs"}) {
    SCOPED_TRACE(schedule);
    PlanConfig config = config_of(2, SplitBy::cost);
    config.schedule = schedule;
    expect_kept_if_some_cuts_keep_it(model_of("mlp:layers=5,width=16"), config, 4);
    config.shard_ranks = config.tensor = 2;
    config.ranks = 4;
    expect_kept_if_some_cuts_keep_it(model_of("mlp:layers=4,width=16"), config, 4);
  }
}

TEST(Stages, WithValuesThatSkipThemKeepALimitThatSomeCutsKeep) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const auto model = test::random_model(rng, 10);
    PlanConfig config = config_of(4, SplitBy::cost);
    config.schedule = seed % 2 ? "zb-h2" : "1f1b";
    expect_kept_if_some_cuts_keep_it(model, config, 4);
    config.ranks = 2;
    config.schedule = seed % 2 ? "interleaved" : "zb-v";
    expect_kept_if_some_cuts_keep_it(model, config, 4);
  }
}

}  // namespace
}  // namespace weft
