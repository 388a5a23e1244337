// Running moments of batch normalization: they have no gradient, so that they need neither
// optimizer state nor a backward pass, and have the same bits without one.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/small_gpt.h"

namespace weft {
namespace {

// Blocks of a linear node and batch normalization; 12 tokens are 12 rows.
std::shared_ptr<Model> with_batch_norm() {
  constexpr int64_t kWidth = 16, kVocab = 37;
  auto model = std::make_shared<Model>();
  const Init normal{InitKind::normal, 0.1}, one{InitKind::constant, 1};
  const auto node = [&](const std::string& name, const char* op, std::vector<NodeId> in,
                        std::vector<ParamId> params, Attrs attrs = {}) {
    return test::must(model->add_node(name, find_op(op), attrs, in, params));
  };
  const auto param = [&](const std::string& name, Shape shape, Init init) {
    return test::must(model->add_param(name, shape, init));
  };
  const NodeId tokens = test::must(model->add_input("tokens", {DType::i32, {1, 12}}, false)),
               targets = test::must(model->add_input("targets", {DType::i32, {1, 12}}, false));
  NodeId x = node("wte", "embedding", {tokens}, {param("wte.weight", {kVocab, kWidth}, normal)});
  Attrs norm;
  norm.factor = 1e-5;
  norm.momentum = 0.1;
  for (const std::string n : {"0", "1", "2"}) {
    x = node(n, "linear", {x},
             {param(n + ".weight", {kWidth, kWidth}, normal), param(n + ".bias", {kWidth}, {})});
    x = node(n + ".norm", "batch_norm", {x},
             {param(n + ".norm.weight", {kWidth}, one), param(n + ".norm.bias", {kWidth}, {}),
              param(n + ".norm.running_mean", {kWidth}, {}),
              param(n + ".norm.running_var", {kWidth}, one)},
             norm);
  }
  x = node("head", "linear", {x},
           {param("head.weight", {kWidth, kVocab}, normal), param("head.bias", {kVocab}, {})});
  node("loss", "softmax_cross_entropy", {x, targets}, {});
  EXPECT_TRUE(model->finish().ok());
  return model;
}

// What changes below "2" is no more than the running moments.
const std::vector<ParamGroup> kMoments = {{.pattern = "*", .frozen = true},
                                          {.pattern = "*.running_*", .frozen = false},
                                          {.pattern = "2.weight", .frozen = false}};

TEST(RunningMoments, NeedNoBackwardPass) {
  PlanConfig config;
  config.ranks = 3;
  config.cuts = {"1", "2"};
  config.optim.rule = Rule::adamw;
  config.groups = kMoments;
  const auto plan = make_plan(with_batch_norm(), config).take();
  const ModePlan& mode = plan->mode(Mode::train);
  for (const Edge& e : mode.edges) EXPECT_NE(e.kind, EdgeKind::gradient);
  std::multiset<std::string> gradients;
  for (const StepCall& call : mode.graph.calls) {
    const Node& node = plan->model->node(call.node);
    if (call.kind == CallKind::input_grad) gradients.insert(node.name);
    if (call.kind == CallKind::weight_grad)
      gradients.insert(plan->model->param(node.weights[static_cast<size_t>(call.weight)]).name);
  }
  EXPECT_EQ(gradients, (std::multiset<std::string>{
                           "0.norm.running_mean", "0.norm.running_var", "1.norm.running_mean",
                           "1.norm.running_var", "2.norm", "2.norm.running_mean",
                           "2.norm.running_var", "2.weight", "head", "loss"}));
}

TEST(RunningMoments, HaveNoOptimizerState) {
  PlanConfig config;
  config.optim.rule = Rule::adamw;
  const auto plan = make_plan(with_batch_norm(), config).take();
  for (const ResidentParam& p : plan->resident.front())
    EXPECT_EQ(p.of(ResidentTensor::Role::state).size(),
              plan->model->param(p.param).average > 0 ? 0u : 2u);
}

// The moments of the first step are also those of a plan that trains all.
TEST(RunningMoments, AreEqualWithoutABackwardPass) {
  const auto model = with_batch_norm();
  const auto moments = [&](const std::vector<ParamGroup>& groups) {
    PlanConfig config = test::small_gpt_config();
    config.groups = groups;
    auto run = start_inline(make_plan(model, config).take(), [](void*) {}).take();
    (void)test::train(*run, 11, 1);
    std::vector<float> out;
    for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()); ++p) {
      const Param& param = model->param(p);
      std::vector<float> values(static_cast<size_t>(param.shape.elements()));
      EXPECT_TRUE(run->read(p, Part::value, values).ok());
      if (param.average > 0) out.insert(out.end(), values.begin(), values.end());
    }
    return out;
  };
  EXPECT_EQ(moments(kMoments), moments({}));

  PlanConfig config = test::small_gpt_config();
  config.groups = kMoments;
  const test::Outcome expected = test::train(model, config, 11, 4);
  for (const int32_t ranks : {1, 2, 4}) {
    config.ranks = ranks;
    for (const ScheduleKind* kind : test::schedules_for(config))
      for (const char* recompute : {"none", "stage", "every:2"}) {
        config.schedule = kind->name;
        config.recompute = recompute;
        EXPECT_EQ(test::train(model, config, 11, 4, ranks / 2), expected)
            << ranks << " ranks, " << kind->name << ", " << recompute;
      }
  }
  config.schedule = "1f1b";
  config.recompute = "none";
  config.gradient_groups = config.data = 2;
  const test::Outcome in_groups = test::train_on_one_rank(model, config, 11, 4);
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    config.shard = shard;
    EXPECT_EQ(test::train(model, config, 11, 4), in_groups) << shard;
  }
}

}  // namespace
}  // namespace weft
