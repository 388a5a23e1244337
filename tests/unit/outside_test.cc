// What comes from another rank and decides what this one does: requests, answers and steps that no
// sound rank sends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "engine/controller.h"
#include "engine/engine.h"
#include "graph/presets.h"
#include "kernels/tiles.h"
#include "runtime/mesh.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

std::shared_ptr<const Plan> small_plan() {
  auto preset = make_preset("mlp:layers=2,width=4", {});
  EXPECT_TRUE(preset.ok()) << preset.status().text();
  auto plan = make_plan(preset.value().model, {});
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.take();
}

Status read_answer(int32_t code) {
  std::vector<std::byte> bytes, out;
  ByteWriter(bytes).number(code).text("a text").bytes({});
  return rpc::read_answer(bytes, out);
}

TEST(Answer, OfAnotherRankHasACodeThatIsOne) {
  EXPECT_TRUE(read_answer(0).ok());
  EXPECT_EQ(read_answer(-6).code(), Code::timed_out);
  EXPECT_EQ(read_answer(-6).text(), "a text");
  for (const int32_t code : {1, 77, INT32_MAX, -15, INT32_MIN}) {
    EXPECT_EQ(read_answer(code).code(), Code::protocol) << code;
    EXPECT_NE(read_answer(code).text().find(std::to_string(code)), std::string::npos);
  }
}

TEST(Answer, ToARequestForMoreThanThereIsMemoryForIsAFailure) {
  const auto plan = small_plan();
  SerialTiles tiles;
  auto worker = Worker::make(plan, 0, tiles);
  ASSERT_TRUE(worker.ok()) << worker.status().text();
  std::vector<std::byte> out;
  const auto trace = [&](uint64_t jobs) {
    return rpc::read_answer(
        rpc::answer(*plan, *worker.value(), rpc::kTrace, rpc::encode({.count = jobs, .bytes = {}})),
        out);
  };
  EXPECT_TRUE(trace(10).ok());
  // As many bytes as a machine of today may promise, but no allocator gives.
  const Status much = worker.value()->trace(SIZE_MAX / 2 / sizeof(TraceSpan));
  EXPECT_EQ(much.code(), Code::no_memory) << much.text();
  EXPECT_EQ(trace(UINT64_MAX).code(), Code::protocol);
  EXPECT_TRUE(trace(10).ok());
}

TEST(Answer, ToAHashIsTheDigestOfTheWholeTensor) {
  const auto plan = small_plan();
  SerialTiles tiles;
  auto worker = Worker::make(plan, 0, tiles);
  ASSERT_TRUE(worker.ok()) << worker.status().text();
  const ParamId param = 1;
  const size_t floats = static_cast<size_t>(plan->model->param(param).shape.elements());
  std::vector<std::byte> out;
  const auto hash = [&](const rpc::Request& request) {
    const std::vector<std::byte> answer =
        rpc::answer(*plan, *worker.value(), rpc::kHash, rpc::encode(request));
    EXPECT_LT(answer.size(), 128u);
    return rpc::read_answer(answer, out);
  };
  ASSERT_TRUE(hash({.param = param, .bytes = {}}).ok());
  const Digest expected = hash_bytes(worker.value()->param(param).weight, floats * sizeof(float));
  ASSERT_EQ(out.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(out.data(), &expected, sizeof expected), 0);
  EXPECT_EQ(hash({.param = 1000, .bytes = {}}).code(), Code::protocol);
  EXPECT_EQ(hash({.param = param, .part = static_cast<Part>(9), .bytes = {}}).code(),
            Code::protocol);
}

class Unheard final : public Effects {
 public:
  void run(int32_t, bool) override {}
  void post(int32_t, int32_t, bool) override {}
  void grant(int32_t, int32_t) override {}
  void control(int32_t, const Control&) override {}
};

TEST(Step, WithAShortMicroBatchThatThePlanHasNotIsRefused) {
  Engine engine(small_plan(), 0);
  Unheard effects;
  StepDescriptor step;
  step.micro_batches = 1;
  step.short_last = true;
  const Status refused = engine.begin(step, effects);
  EXPECT_EQ(refused.code(), Code::protocol);
  EXPECT_NE(refused.text().find("short micro-batch"), std::string::npos) << refused.text();
  step.short_last = false;
  step.short_all = true;
  EXPECT_EQ(engine.begin(step, effects).code(), Code::protocol);
  step.short_all = false;
  EXPECT_TRUE(engine.begin(step, effects).ok());
}

class Fed final : public ControllerEffects {
 public:
  void run(int32_t, bool) override {}
  void post(int32_t, int32_t micro_batch, bool) override { sent.push_back(micro_batch); }
  void grant(int32_t, int32_t) override {}
  void control(int32_t, const Control&) override {}
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  std::vector<int32_t> sent;
};

TEST(Feed, IsGrantedOneMicroBatchAfterTheOther) {
  auto preset = make_preset("mlp:layers=2,width=4", {});
  ASSERT_TRUE(preset.ok()) << preset.status().text();
  PlanConfig config;
  config.micro_batches = 4;
  auto plan = make_plan(preset.value().model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  const auto& edges = plan.value()->mode(Mode::train).edges;
  const auto feed = std::find_if(edges.begin(), edges.end(),
                                 [](const Edge& e) { return e.kind == EdgeKind::feed; });
  ASSERT_NE(feed, edges.end());
  const auto edge = static_cast<int32_t>(feed - edges.begin());
  const int32_t places = feed->landing_slots;
  ASSERT_LT(places, 3);
  Controller controller(plan.value());
  Fed effects;
  StepDescriptor step;
  step.micro_batches = 4;
  ASSERT_TRUE(controller.begin(step, effects).ok());
  effects.sent.clear();
  EXPECT_EQ(controller.granted(0, edge, places + 1, effects).code(), Code::protocol);
  EXPECT_TRUE(controller.granted(0, edge, places, effects).ok());
  EXPECT_EQ(controller.granted(0, edge, places, effects).code(), Code::protocol);
  EXPECT_EQ(controller.granted(0, edge, 0, effects).code(), Code::protocol);
  EXPECT_EQ(effects.sent, std::vector<int32_t>{places});
}

}  // namespace
}  // namespace weft
