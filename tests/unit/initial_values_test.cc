// Initial values that are drawn when they are read, and not where values have been written before.
#include "runtime/initial_values.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "graph/presets.h"
#include "runtime/parameter_access.h"
#include "runtime/worker.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

class InitialValuesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto preset = make_preset("mlp:layers=2,width=300", {});
    ASSERT_TRUE(preset.ok()) << preset.status().text();
    PlanConfig config;
    config.precision = GetParam();
    config.step_kinds = 1u << static_cast<uint32_t>(Mode::eval);  // so that bf16 is stored so
    auto plan = make_plan(preset.value().model, config);
    ASSERT_TRUE(plan.ok()) << plan.status().text();
    plan_ = plan.take();
  }

  std::unique_ptr<Worker> worker() {
    auto made = Worker::make(plan_, 0, tiles_);
    EXPECT_TRUE(made.ok()) << made.status().text();
    return made.take();
  }

  PartRange range(Worker& worker, ParamId param, int64_t first, int64_t count) {
    auto found = PartRange::find(*plan_, worker.param(param), param, Part::value,
                                 static_cast<uint64_t>(first), static_cast<uint64_t>(count));
    EXPECT_TRUE(found.ok()) << found.status().text();
    return found.take();
  }

  std::vector<float> all(Worker& worker, ParamId param) {
    PartRange whole = range(worker, param, 0, elements(param));
    const auto values = whole.read();
    return {values.begin(), values.end()};
  }

  void write(Worker& worker, ParamId param, int64_t first, int64_t count) {
    PartRange part = range(worker, param, first, count);
    for (float& value : part.floats()) value = kWritten;
    part.store();
  }

  int64_t elements(ParamId param) const { return plan_->model->param(param).shape.elements(); }

  static constexpr float kWritten = 0.5f;  // which is exact in bf16
  SerialTiles tiles_;
  std::shared_ptr<const Plan> plan_;
};

TEST_P(InitialValuesTest, AreNotDrawnBeforeTheyAreRead) {
  const auto made = worker();
  EXPECT_EQ(made->resident_bytes().value(), 0);
  all(*made, 0);
  EXPECT_GT(made->resident_bytes().value(), 0);
}

TEST_P(InitialValuesTest, DoNotReplaceWrittenValues) {
  std::mt19937 random(3);
  const auto eager = worker();
  for (ParamId param = 0; param < static_cast<ParamId>(plan_->model->params().size()); ++param) {
    const std::vector<float> drawn = all(*eager, param);
    for (int round = 0; round < 20; ++round) {
      const auto lazy = worker();
      std::vector<float> expected = drawn;
      const bool in_order = round % 2 == 0;
      int64_t at = 0;
      for (int piece = 0; piece < 4; ++piece) {
        const int64_t first =
            in_order ? at : static_cast<int64_t>(random() % static_cast<uint64_t>(elements(param)));
        const int64_t count =
            static_cast<int64_t>(random() % static_cast<uint64_t>(elements(param) - first + 1));
        at = first + count;
        write(*lazy, param, first, count);
        std::fill_n(expected.begin() + first, count, kWritten);
      }
      EXPECT_EQ(all(*lazy, param), expected) << "parameter " << param << ", round " << round;
    }
  }
}

TEST_P(InitialValuesTest, StayIfAWriteFails) {
  const auto eager = worker(), failing = worker();
  (void)range(*failing, 0, 0, elements(0)).floats();  // and no store()
  EXPECT_EQ(all(*failing, 0), all(*eager, 0));
}

INSTANTIATE_TEST_SUITE_P(Types, InitialValuesTest, testing::Values("f32", "bf16"),
                         [](const auto& type) { return std::string(type.param); });

}  // namespace
}  // namespace weft
