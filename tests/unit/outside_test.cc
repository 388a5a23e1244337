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
#ifndef WEFT_SANITIZED  // whose operator new ends the process
  // As many bytes as a machine of today may promise, but no allocator gives.
  const Status much = worker.value()->trace(SIZE_MAX / 2 / sizeof(TraceSpan));
  EXPECT_EQ(much.code(), Code::no_memory) << much.text();
#endif
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
  const Digest expected =
      hash_bytes(worker.value()->param(param).value.floats(), floats * sizeof(float));
  ASSERT_EQ(out.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(out.data(), &expected, sizeof expected), 0);
  EXPECT_EQ(hash({.param = 1000, .bytes = {}}).code(), Code::protocol);
  EXPECT_EQ(hash({.param = param, .part = static_cast<Part>(9), .bytes = {}}).code(),
            Code::protocol);
}

class Unheard final : public Effects {
 public:
  void run(int32_t, bool) override {}
  void post(const StepDescriptor&, int32_t, int32_t, bool) override {}
  void grant(const StepDescriptor&, int32_t, int32_t) override {}
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
  void post(const StepDescriptor&, int32_t edge, int32_t micro_batch, bool) override {
    sent.emplace_back(edge, micro_batch);
  }
  void grant(const StepDescriptor&, int32_t, int32_t) override {}
  void control(int32_t, const Control&) override {}
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  std::vector<std::pair<int32_t, int32_t>> sent;  // edge, micro-batch
};

// A controller, and the first edge of its inputs.
struct Feeding {
  Feeding() {
    auto preset = make_preset("mlp:layers=2,width=4", {});
    PlanConfig config;
    config.micro_batches = 4;
    plan = make_plan(preset.value().model, config).take();
    const auto& edges = plan->mode(Mode::train).edges;
    const auto feed = std::find_if(edges.begin(), edges.end(),
                                   [](const Edge& e) { return e.kind == EdgeKind::feed; });
    edge = static_cast<int32_t>(feed - edges.begin());
    slots = feed->landing_slots;
    step.micro_batches = 4;
    controller = std::make_unique<Controller>(plan);
  }
  // The micro-batches of the edge that were sent since the last call.
  std::vector<int32_t> sent() {
    std::vector<int32_t> out;
    for (const auto& [of, micro_batch] : std::exchange(effects.sent, {}))
      if (of == edge) out.push_back(micro_batch);
    return out;
  }

  std::shared_ptr<const Plan> plan;
  int32_t edge = 0, slots = 0;
  StepDescriptor step;
  std::unique_ptr<Controller> controller;
  Fed effects;
};

TEST(Feed, IsGrantedOneMicroBatchAfterTheOther) {
  Feeding f;
  ASSERT_LT(f.slots, 3);
  ASSERT_TRUE(f.controller->begin(f.step, f.effects).ok());
  f.sent();
  EXPECT_EQ(f.controller->granted(0, f.edge, f.slots + 1, f.effects).code(), Code::protocol);
  EXPECT_TRUE(f.controller->granted(0, f.edge, f.slots, f.effects).ok());
  EXPECT_EQ(f.controller->granted(0, f.edge, f.slots, f.effects).code(), Code::protocol);
  EXPECT_EQ(f.controller->granted(0, f.edge, 0, f.effects).code(), Code::protocol);
  EXPECT_EQ(f.sent(), std::vector<int32_t>{f.slots});
}

TEST(Feed, WaitsForInputsThatDoNotExistYet) {
  Feeding f;
  ASSERT_EQ(f.controller->feed(1, f.effects).code(), Code::state);
  f.step.fed = 1;
  ASSERT_TRUE(f.controller->begin(f.step, f.effects).ok());
  EXPECT_EQ(f.sent(), std::vector<int32_t>{0});
  EXPECT_TRUE(f.controller->awaits_owner());
  for (int32_t mb = f.slots; mb < 3; ++mb)
    EXPECT_TRUE(f.controller->granted(0, f.edge, mb, f.effects).ok());
  EXPECT_TRUE(f.sent().empty());
  EXPECT_TRUE(f.controller->feed(2, f.effects).ok());
  EXPECT_EQ(f.sent(), std::vector<int32_t>{1});
  EXPECT_TRUE(f.controller->feed(4, f.effects).ok());
  EXPECT_EQ(f.sent(), std::vector<int32_t>{2});  // 3 has no slot yet
  EXPECT_FALSE(f.controller->awaits_owner());
  EXPECT_TRUE(f.controller->granted(0, f.edge, 3, f.effects).ok());
  EXPECT_EQ(f.sent(), std::vector<int32_t>{3});
}

}  // namespace
}  // namespace weft
