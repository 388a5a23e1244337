// What recompute keeps, makes again and when, and the memory that it saves.
#include "lowering/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "graph/presets.h"
#include "sim/predict.h"
#include "support/cases.h"
#include "support/random_model.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

TEST(Recompute, Words) {
  EXPECT_EQ(parse_recompute("none").value().kind, Recompute::Kind::none);
  EXPECT_EQ(parse_recompute("").value().kind, Recompute::Kind::none);
  EXPECT_EQ(parse_recompute("stage").value().every, Recompute::kWhole);
  EXPECT_EQ(parse_recompute("every:3").value().every, 3);
  EXPECT_EQ(parse_recompute("auto").value().kind, Recompute::Kind::fit);
  for (const char* text :
       {"every:", "every:0", "every:-1", "every:2x", "every:99999999999", "Stage"})
    EXPECT_EQ(parse_recompute(text).status().text(),
              std::string("recompute is '") + text +
                  "', expected none, stage, every:N (N nodes, 1 or more) or auto");
}

// Eight tanh-like layers in a row: relu(x W), so that every layer keeps something.
std::shared_ptr<const Model> chain() {
  auto model = std::make_shared<Model>();
  const Shape row{1, 256};
  NodeId x = model->add_input("x", {DType::f32, row}, false).take();
  const NodeId target = model->add_input("target", {DType::f32, row}, false).take();
  for (int layer = 0; layer < 8; ++layer) {
    const ParamId w[] = {
        model->add_param("w" + std::to_string(layer), Shape{256, 256}, {InitKind::normal, 0.1})
            .take()};
    const NodeId in[] = {x};
    const NodeId linear[] = {model->add_node("", find_op("linear"), {}, in, w).take()};
    x = model->add_node("", find_op("gelu"), {}, linear, {}).take();
  }
  const NodeId ends[] = {x, target};
  EXPECT_TRUE(model->add_node("loss", find_op("mse"), {}, ends, {}).ok());
  EXPECT_TRUE(model->finish().ok());
  return model;
}

std::shared_ptr<const Plan> plan_of(const char* recompute, int64_t limit = 0) {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 8;
  config.micro_batch_size = 64;
  config.schedule = "gpipe";
  config.packed.clear();            // packed weights take what a limit leaves
  config.split = SplitBy::uniform;  // other cuts may fit without recompute
  config.recompute = recompute;
  config.memory_limit = limit;
  auto plan = make_plan(chain(), config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.ok() ? plan.take() : nullptr;
}

int64_t moving(const Plan& plan, size_t rank) {
  return plan.arena_bytes[rank] - plan.permanent_bytes[rank];
}

size_t calls_of(const Plan& plan, size_t rank, Kind kind) {
  for (const ActionProgram& action : plan.mode(Mode::train).ranks[rank].programs)
    if (action.kind == kind) return action.calls.size();
  return 0;
}

TEST(Recompute, AnActionOfItsOwnBeforeTheBackward) {
  EXPECT_EQ(plan_of("none")->mode(Mode::train).schedule.text().find('R'), std::string::npos);
  const auto stage = plan_of("stage");
  const auto& row = stage->mode(Mode::train).schedule.rows[0];
  ASSERT_EQ(row.size(), 24u);
  EXPECT_EQ(row[8].text() + row[9].text() + row[10].text(), "0R00B00R1");
}

// The first stage takes the time of its forward again, the last one does not.
TEST(Recompute, CutsCountTheTimeOfWhatIsMadeAgain) {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 8;
  config.times.assign(chain()->nodes().size(), {.forward = 1, .input = 1, .weight = 1});
  const auto first_nodes_of = [&config](const char* recompute) {
    config.recompute = recompute;
    const auto plan = make_plan(chain(), config).take();
    return std::count(plan->stage_of_node.begin(), plan->stage_of_node.end(), 0);
  };
  const auto even = first_nodes_of("none");
  EXPECT_LT(first_nodes_of("stage"), even);
  EXPECT_EQ(first_nodes_of("every:2"), even);
}

// The last stage of 1f1b has one micro-batch at a time.
TEST(Recompute, AStageThatSavesNothingKeepsItsActivations) {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 8;
  config.micro_batch_size = 64;
  const auto none = make_plan(chain(), config).take();
  config.recompute = "stage";
  const auto stage = make_plan(chain(), config).take();
  EXPECT_GT(calls_of(*stage, 0, Kind::R), 0u);
  EXPECT_LT(moving(*stage, 0), moving(*none, 0));
  EXPECT_EQ(calls_of(*stage, 1, Kind::R), 0u);
  config.recompute = "every:2";  // of its recompute blocks there is one at a time
  EXPECT_GT(calls_of(*make_plan(chain(), config).take(), 1, Kind::R), 0u);
}

TEST(Recompute, KeepsWhatArrivesAlone) {
  const auto none = plan_of("none"), stage = plan_of("stage");
  // Eight micro-batches of four layers with two activations of 64 KiB each, against one micro-batch
  // and what arrives and leaves.
  EXPECT_GT(moving(*none, 0), 8 * 8 * 65536);
  EXPECT_LT(moving(*stage, 0), moving(*none, 0) / 2);
  EXPECT_LT(moving(*stage, 1), moving(*none, 1) / 2);
}

TEST(Recompute, BlocksAreMadeAgainOneAtATime) {
  const auto stage = plan_of("stage"), every = plan_of("every:2");
  // The block that the backward reads first is R; the others are in B, which has as many calls
  // more as R has fewer.
  const size_t all = calls_of(*stage, 0, Kind::R);
  EXPECT_LT(calls_of(*every, 0, Kind::R), all);
  EXPECT_GT(calls_of(*every, 0, Kind::B), calls_of(*stage, 0, Kind::B));
  EXPECT_GT(calls_of(*every, 0, Kind::R), 0u);
}

TEST(Recompute, AutoDoesAsLittleAsFits) {
  const auto none = plan_of("none");
  const int64_t enough = std::max(none->arena_bytes[0], none->arena_bytes[1]);
  EXPECT_EQ(plan_of("auto", enough)->arena_bytes, none->arena_bytes);
  // A limit between the two ranks' needs: only the one that needs more recomputes.
  const size_t big = none->arena_bytes[0] > none->arena_bytes[1] ? 0 : 1;
  ASSERT_NE(none->arena_bytes[0], none->arena_bytes[1]);
  const auto some = plan_of("auto", enough - 1);
  EXPECT_LT(some->arena_bytes[big], enough);
  EXPECT_GT(calls_of(*some, big, Kind::R), 0u);
  EXPECT_EQ(calls_of(*some, 1 - big, Kind::R), 0u);
}

// Seconds of a micro-batch for what a rank makes again, by analysis.
double remade(const Plan& plan, size_t rank) {
  const std::vector<NodeTimes> times = analysed_times(*plan.model, plan.config.micro_batch_size);
  double out = 0;
  for (const ActionProgram& action : plan.mode(Mode::train).ranks[rank].programs)
    for (const ProgramCall& call : action.calls)
      if (action.kind != Kind::F && call.kind == CallKind::forward)
        out += times[static_cast<size_t>(call.node)].forward;
  return out;
}

// For every limit that some `every:N` keeps exactly, auto keeps it too and makes no more again, on
// every rank. The cuts are given: others may fit without recompute.
TEST(Recompute, AutoIsTheLeastThatFits) {
  for (const char* text :
       {"gpt-nano:blocks=3,width=32,heads=2,context=32", "mlp:layers=9,width=64"}) {
    const auto model = make_preset(text, {.seq_len = 0}).value().model;
    PlanConfig config;
    config.ranks = 2;
    config.micro_batches = 6;
    config.micro_batch_size = 16;
    config.packed.clear();  // packed weights take what a limit leaves
    config.cuts = make_plan(model, config).value()->config.cuts;
    std::vector<std::shared_ptr<const Plan>> all;
    for (int n = 1; n < 24; ++n) {
      config.recompute = "every:" + std::to_string(n);
      all.push_back(make_plan(model, config).value());
    }
    config.recompute = "stage";
    all.push_back(make_plan(model, config).value());
    config.recompute = "auto";
    double most = 0, least = 1e9;
    for (const auto& one : all) {
      config.memory_limit = *std::max_element(one->arena_bytes.begin(), one->arena_bytes.end());
      SCOPED_TRACE(std::string(text) + " " + one->config.recompute);
      const auto made = make_plan(model, config);
      ASSERT_TRUE(made.ok()) << made.status().text();
      for (size_t r = 0; r < 2; ++r) {
        EXPECT_LE(made.value()->arena_bytes[r], config.memory_limit);
        for (const auto& other : all)
          if (other->arena_bytes[r] <= config.memory_limit) {
            EXPECT_LE(remade(*made.value(), r), remade(*other, r) * (1 + 1e-9))
                << "rank " << r << ", " << other->config.recompute;
          }
        most = std::max(most, remade(*made.value(), r));
        least = std::min(least, remade(*made.value(), r));
      }
    }
    EXPECT_GT(most, least);
  }
}

TEST(Recompute, WaysAreTheQuickestThatFitThenTheSmallest) {
  const std::vector<RecomputeOption> one = {{0, 0, 100, 10}, {1, 1, 80, 12}, {9, 3, 50, 30}},
                                     two = {{0, 0, 100, 10}, {2, 1.5, 60, 10}};
  using Ways = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(ways_of({one, two}, 1000), (Ways{{0, 0}, {1, 0}, {0, 2}, {1, 2}, {9, 0}, {9, 2}}));
  EXPECT_EQ(ways_of({one, two}, 70), (Ways{{0, 2}, {1, 2}, {9, 2}, {9, 0}, {1, 0}, {0, 0}}));
  EXPECT_EQ(ways_of({one, two}, 10), (Ways{{9, 2}, {1, 2}, {0, 2}}));
}

// Where stages of equal time do not fit, others are cut.
TEST(Recompute, AutoFitsWhereStageDoes) {
  const char* text = "gpt-nano:blocks=6,width=64,heads=2,context=32,vocabulary=4096";
  const auto model = make_preset(text, {.seq_len = 0}).value().model;
  PlanConfig config;
  config.ranks = 4;
  config.micro_batches = 4;
  config.micro_batch_size = 4;
  const auto free = make_plan(model, config).value();
  const int64_t most = *std::max_element(free->arena_bytes.begin(), free->arena_bytes.end());
  int fitted = 0;
  for (int percent = 99; percent > 40; percent -= 3) {
    config.memory_limit = most / 100 * percent;
    config.recompute = "stage";
    if (!make_plan(model, config).ok()) break;
    config.recompute = "auto";
    const auto made = make_plan(model, config);
    ASSERT_TRUE(made.ok()) << percent << " %: " << made.status().text();
    EXPECT_LE(*std::max_element(made.value()->arena_bytes.begin(), made.value()->arena_bytes.end()),
              config.memory_limit);
    ++fitted;
  }
  EXPECT_GT(fitted, 2);
}

double seconds_of(const std::shared_ptr<const Plan>& plan) {
  return predict(plan, nullptr, false).take().seconds;
}

// Cuts by bytes are others than those of equal time, and the combinations of what several stages of
// a rank drop are many.
TEST(Recompute, AutoFitsWhereOtherSettingsDoAndIsNotSlowerThanNoneAndStage) {
  const auto model = make_preset("gpt-nano", {.seq_len = 32}).value().model;
  int turn = 0;
  int fitted = 0;
  for (const char* schedule : {"looped-bfs", "interleaved-zb", "zb-v", "zb-auto"}) {
    PlanConfig config;
    config.ranks = 4;
    config.micro_batches = 8;
    config.micro_batch_size = 4;
    config.schedule = schedule;
    const auto free = make_plan(model, config).value();
    const int64_t most = *std::max_element(free->arena_bytes.begin(), free->arena_bytes.end());
    for (const int percent : {100, 84, 68, 50}) {
      if (turn++ % test::kEvery != 0) continue;
      SCOPED_TRACE(cat(schedule, " ", percent, " %"));
      config.memory_limit = most * percent / 100;
      const auto with = [&](const char* recompute) {
        config.recompute = recompute;
        return make_plan(model, config);
      };
      const auto none = with("none"), stage = with("stage"), made = with("auto");
      const bool fits = none.ok() || stage.ok() || with("every:1").ok();
      if (!fits) break;
      ASSERT_TRUE(made.ok()) << made.status().text();
      EXPECT_LE(
          *std::max_element(made.value()->arena_bytes.begin(), made.value()->arena_bytes.end()),
          config.memory_limit);
      for (const auto* other : {&none, &stage})
        if (other->ok()) {
          EXPECT_LE(seconds_of(made.value()), seconds_of(other->value()));
        }
      ++fitted;
    }
  }
  EXPECT_GT(fitted, 8 / test::kEvery);
}

// Each setting cuts other stages.
TEST(Recompute, AutoIsNotSlowerThanBlocksOfOneLength) {
  const auto model =
      make_preset("gpt-nano:blocks=3,width=32,heads=2,context=32", {.seq_len = 0}).value().model;
  struct Case {
    const char* schedule;
    int32_t ranks, tensor, percent;
    const char* recompute;
  };
  for (const Case& c : {Case{"gpipe", 3, 1, 95, "every:1"}, Case{"gpipe", 4, 1, 60, "every:2"},
                        Case{"1f1b", 2, 1, 70, "every:4"}, Case{"gpipe", 4, 2, 90, "every:1"}}) {
    SCOPED_TRACE(cat(c.schedule, ", ", c.ranks, " stages, tensor=", c.tensor, ", ", c.recompute));
    PlanConfig config;
    config.ranks = c.ranks * c.tensor;
    config.shard_ranks = config.tensor = c.tensor;
    config.micro_batches = 8;
    config.micro_batch_size = 2;
    config.schedule = c.schedule;
    const auto free = make_plan(model, config).value();
    const int64_t most = *std::max_element(free->arena_bytes.begin(), free->arena_bytes.end());
    config.memory_limit = most * c.percent / 100;
    config.recompute = "auto";
    const auto made = make_plan(model, config);
    config.recompute = c.recompute;
    const auto fixed = make_plan(model, config);
    ASSERT_TRUE(fixed.ok()) << fixed.status().text();
    ASSERT_TRUE(made.ok()) << made.status().text();
    EXPECT_LE(seconds_of(made.value()), seconds_of(fixed.value()));
  }
}

TEST(Recompute, AutoIsWithinTheMemoryOfEachMachine) {
  const auto model =
      make_preset("gpt-nano:blocks=6,width=64,heads=2,context=32", {.seq_len = 0}).value().model;
  PlanConfig config;
  config.ranks = 3;
  config.micro_batches = 4;
  config.micro_batch_size = 4;
  const auto free = make_plan(model, config).value();
  const int64_t most = *std::max_element(free->arena_bytes.begin(), free->arena_bytes.end());
  config.machines.memory = {2 * most, most / 2, most / 2};
  config.memory_limit = 2 * most;
  config.split = SplitBy::cost;
  config.recompute = "stage";
  ASSERT_TRUE(make_plan(model, config).ok()) << make_plan(model, config).status().text();
  config.recompute = "auto";
  const auto made = make_plan(model, config);
  ASSERT_TRUE(made.ok()) << made.status().text();
  for (size_t r = 0; r < 3; ++r) EXPECT_LE(made.value()->arena_bytes[r], config.machines.memory[r]);
}

TEST(Recompute, ALimitThatNothingFitsIsNamed) {
  PlanConfig config;
  config.ranks = 2;
  config.recompute = "auto";
  config.memory_limit = 1000;
  const Status status = make_plan(chain(), config).status();
  EXPECT_NE(status.text().find(
                " bytes (4.0 MiB) with cuts of equal time and everything recomputed that can "
                "be, the limit is 1000"),
            std::string::npos)
      << status.text();
  EXPECT_NE(status.text().find("rank 1 needs "), std::string::npos) << status.text();
}

}  // namespace
}  // namespace weft
