// A step whose gradients are not finite: the weights and the state of the optimizer keep their bits
// on every rank, and the next step trains.
#include <cmath>
#include <limits>

#include "api/drivers.h"

namespace {

// Step `number` of a fixed run; element `bad` of its inputs is not finite.
Outcome train(const RunPtr& run, uint32_t number, int64_t samples = 6, int64_t bad = -1) {
  const TensorPtr x = noise({samples, 6}, 2 * number + 1), y = noise({samples, 3}, 2 * number + 2);
  if (bad >= 0) floats(x)[bad] = std::numeric_limits<float>::infinity();
  Outcome out = step(run, {x.get(), y.get()});
  while (out.kind == WEFT_EVENT_UPDATE) out = finish(run);
  EXPECT_EQ(out.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << out.text;
  return out;
}

std::string state_digest(const RunPtr& run) {
  char text[33] = {};
  Error err;
  EXPECT_EQ(weft_run_optimizer_digest(run.get(), text, &err), WEFT_OK) << err.text;
  return text;
}

class NotFinite : public testing::TestWithParam<Driver> {};

void expect_nothing_changed(const RunPtr& run) {
  train(run, 0);
  const std::string weights = digest(run), state = state_digest(run);
  EXPECT_FALSE(std::isfinite(train(run, 1, 6, 35).grad_norm));
  EXPECT_EQ(digest(run), weights);
  EXPECT_EQ(state_digest(run), state);
  EXPECT_TRUE(std::isfinite(train(run, 2).grad_norm));
  EXPECT_NE(digest(run), weights);
}

TEST_P(NotFinite, AStepChangesNothing) {
  for (const char* precision : {"f32", "bf16"})
    for (const char* name : {"stage", "data", "tensor"}) {
      SCOPED_TRACE(std::string(precision) + ", " + name);
      const weft_axis axis = {name, 2, 0};
      weft_plan_config config = plan_config(2);
      config.precision = precision;
      config.axes = &axis;
      config.n_axes = 1;
      const TwoRanks ranks(new_plan(small_model(), config), GetParam());
      expect_nothing_changed(ranks.run);
    }
}

INSTANTIATE_TEST_SUITE_P(Drivers, NotFinite, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

// Each update of a segment is left out by itself.
TEST(NotFiniteSegment, AnUpdateChangesNothing) {
  const std::pair<const char*, uint32_t> schedules[] = {{"pipedream", 1}, {"pipedream-2bw", 2}};
  for (const auto& [schedule, micro_batches] : schedules) {
    SCOPED_TRACE(schedule);
    weft_plan_config config = plan_config(2, micro_batches, 2);
    config.schedule = schedule;
    config.segment = 4;
    const int64_t update = int64_t{micro_batches} * 2;
    const RunPtr run = start(small_model(), config);
    train(run, 0, 4 * update);
    const std::string weights = digest(run), state = state_digest(run);
    EXPECT_FALSE(std::isfinite(train(run, 1, update, 0).grad_norm));
    EXPECT_EQ(digest(run), weights);
    EXPECT_EQ(state_digest(run), state);
    train(run, 2, 4 * update, 17);
    EXPECT_NE(digest(run), weights);
    EXPECT_TRUE(std::isfinite(train(run, 3, 4 * update).grad_norm));
    for (const float value : read(run, "c.weight", WEFT_VALUE, {8, 3}))
      EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
