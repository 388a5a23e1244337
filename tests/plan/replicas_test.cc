// PipeDream's partitioner on models of ours: a plan's stages, and machines as replicas.
#include "partition/pipedream_stages.h"
#include "tune/make_plan.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace weft {
namespace {

// Linear layers of these widths, one after another, on x [samples, widths[0]].
std::shared_ptr<Model> layers(const std::vector<int64_t>& widths) {
  auto model = std::make_shared<Model>();
  NodeId x = model->add_input("x", {DType::f32, Shape{1, widths[0]}}, false).take();
  const NodeId target =
      model->add_input("target", {DType::f32, Shape{1, widths.back()}}, false).take();
  for (size_t i = 1; i < widths.size(); ++i) {
    const std::string name = "l" + std::to_string(i);
    const ParamId w[] = {
        model->add_param(name + ".weight", Shape{widths[i - 1], widths[i]}, {InitKind::normal, 0.1})
            .take()};
    const NodeId in[] = {x};
    x = model->add_node(name, find_op("linear"), {}, in, w).take();
  }
  const NodeId ends[] = {x, target};
  EXPECT_TRUE(model->add_node("loss", find_op("mse"), {}, ends, {}).ok());
  EXPECT_TRUE(model->finish().ok());
  return model;
}

PlanConfig timed(const Model& model, double seconds) {
  PlanConfig config;
  for (const Node& node : model.nodes())
    config.times.push_back(node.is_input() || node.name == "loss"
                               ? NodeTimes{}
                               : NodeTimes{seconds, seconds, seconds});
  return config;
}

TEST(Replicas, AStraightPlanHasTheStagesThatWereAskedFor) {
  const auto model = layers({8, 8, 8, 8, 8, 8, 8});
  PlanConfig config = timed(*model, 1);
  config.ranks = 3;
  config.split = SplitBy::pipedream;
  auto plan = make_plan(model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  std::vector<int> nodes(3, 0);
  for (NodeId id = 0; id < static_cast<NodeId>(model->nodes().size()); ++id)
    if (model->node(id).op != nullptr && model->node(id).name != "loss")
      ++nodes[static_cast<size_t>(plan.value()->stage_of_node[static_cast<size_t>(id)])];
  EXPECT_EQ(nodes, (std::vector<int>{2, 2, 2}));
}

TEST(Replicas, SlowLinksMoveACutToWhereLittleCrosses) {
  // The widest value is in the middle, where equal work would cut.
  const auto model = layers({8, 8, 1024, 8, 8});
  PlanConfig config = timed(*model, 1);
  config.ranks = 2;
  config.split = SplitBy::pipedream;
  EXPECT_EQ(make_plan(model, config).value()->config.cuts, std::vector<std::string>{"l3"});
  config.machines.bandwidth =
      500;  // 4096 bytes forward and back take longer than a layer, 32 do not
  EXPECT_NE(make_plan(model, config).value()->config.cuts, std::vector<std::string>{"l3"});
}

TEST(Replicas, CheapParametersAreReplicatedAndDearOnesAreNot) {
  const auto model = layers({4, 4, 4, 4, 4, 4, 4, 2048});
  PlanConfig config = timed(*model, 1);
  config.ranks = 4;
  config.split = SplitBy::pipedream;
  config.machines.bandwidth = 4000;  // a replica of the last layer would send 32 KiB of gradients
  config.schedule = "pipedream";
  auto made = make_plan(model, config);
  ASSERT_TRUE(made.ok()) << made.status().text();
  const Plan& plan = *made.value();
  EXPECT_EQ(plan.config.stage_replicas, "3,1");
  EXPECT_EQ(plan.stage_replicas, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(plan.position_of_stage, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(plan.config.cuts, std::vector<std::string>{"l6"});
  EXPECT_EQ(plan.config.segment, 18);
  config.schedule = "1f1b";  // has no replicas of single stages
  EXPECT_EQ(make_plan(model, config).value()->pipeline_stages(), 4);
}

TEST(Replicas, WhatThePartitionerChoosesFollowsTheRulesOfWhatIsGiven) {
  const auto model = layers({4, 4, 4, 4, 4, 4, 4, 2048});
  PlanConfig config = timed(*model, 1);
  config.ranks = 4;
  config.split = SplitBy::pipedream;
  config.machines.bandwidth = 4000;
  config.schedule = "pipedream";
  config.shard = "none";
  EXPECT_EQ(make_plan(model, config).status().text(),
            "plan: shard is 'none', expected 'optimizer' with stage_replicas");
}

TEST(Replicas, CostsCutWhereAStageIsAsFastAsItsRanks) {
  const auto model = layers({8, 8, 8, 8, 8, 8, 8, 8, 8});
  PlanConfig config = timed(*model, 1);
  config.ranks = 4;
  config.schedule = "pipedream";
  config.stage_replicas = "3,1";
  auto made = make_plan(model, config);
  ASSERT_TRUE(made.ok()) << made.status().text();
  EXPECT_EQ(made.value()->config.cuts, std::vector<std::string>{"l7"});
}

TEST(Replicas, RefusesWhatCannotBe) {
  const auto model = layers({8, 8});
  PlanConfig config = timed(*model, 1);
  config.ranks = 4;
  config.schedule = "pipedream";
  const auto fault = [&](const char* replicas) {
    config.stage_replicas = replicas;
    return make_plan(model, config).status().text();
  };
  for (const char* wrong : {"3,", ",3", "3,0", "3;1", "-1", "x", " 3"})
    EXPECT_EQ(fault(wrong), cat("plan: stage_replicas is '", wrong,
                                "', expected the ranks of each stage, as '3,1'"));
  EXPECT_EQ(fault("3,2"),
            "plan: stage_replicas is '3,2', expected as many ranks in all as the plan has, 4");
  config.vertical_sync = true;
  EXPECT_EQ(fault("3,1"),
            "plan: vertical sync requires stages with the same number of updates, and "
            "therefore of replicas");
  config.vertical_sync = false;
  config.schedule = "1f1b";
  EXPECT_EQ(fault("3,1"),
            "plan: stage_replicas is '3,1', which is for an asynchronous schedule by its name, not "
            "for '1f1b'");
  config.schedule = "pipedream";
  config.data = 2;
  EXPECT_EQ(fault(""),
            "plan: schedule 'pipedream' is asynchronous, and has no replicas of a whole "
            "pipeline: data is 2, expected 1. With stage_replicas, its stages can have replicas");
  config.data = 1;
  config.schedule = "1f1b";
  config.ranks = 5;
  config.split = SplitBy::pipedream;
  EXPECT_NE(make_plan(model, config)
                .status()
                .text()
                .find("5 stages need at least as many nodes, the model has 2"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
