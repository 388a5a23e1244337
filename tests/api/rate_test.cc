// A learning rate that the program sets, in place of that of the plan.
#include <cmath>

#include "api/drivers.h"

namespace {

constexpr double kRates[] = {0.01, 0.02, 0.005};

weft_optimizer optimizer_of(double rate) {
  weft_optimizer out = unclipped();
  out.rate = rate;
  out.weight_decay = 0.1;
  return out;
}

void train(const RunPtr& run, uint32_t number, int64_t samples = 6) {
  const TensorPtr x = noise({samples, 6}, 2 * number + 1), y = noise({samples, 3}, 2 * number + 2);
  Outcome out = step(run, {x.get(), y.get()});
  while (out.kind == WEFT_EVENT_UPDATE) out = finish(run);
  EXPECT_EQ(out.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << out.text;
}

class Rate : public testing::TestWithParam<Driver> {};

// The first step of any two runs makes the same update for the same rate, set or planned.
TEST_P(Rate, IsThatOfTheUpdate) {
  for (const double rate : kRates) {
    const weft_optimizer planned = optimizer_of(rate), other = optimizer_of(1);
    weft_plan_config config = plan_config(2);
    config.optimizer = &planned;
    const RunPtr expected = start(small_model(), config);
    train(expected, 0);
    config.optimizer = &other;
    const TwoRanks ranks(new_plan(small_model(), config), GetParam());
    Error err;
    ASSERT_EQ(weft_run_set_rate(ranks.run.get(), rate, &err), WEFT_OK) << err.text;
    train(ranks.run, 0);
    EXPECT_EQ(digest(ranks.run), digest(expected)) << rate;
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, Rate, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

// A curve of the plan, step by step.
TEST(RateOfARun, FollowsWhatIsSet) {
  weft_optimizer cosine = optimizer_of(0.03);
  cosine.curve = WEFT_RATE_COSINE;
  cosine.warmup = 2;
  cosine.total = 5;
  const weft_optimizer constant = optimizer_of(1);
  weft_plan_config config = plan_config(2);
  config.optimizer = &cosine;
  const PlanPtr plan = new_plan(small_model(), config);
  const RunPtr planned = start(plan);
  config.optimizer = &constant;
  const RunPtr set = start(small_model(), config);
  for (uint32_t i = 0; i < 6; ++i) {
    Error err;
    ASSERT_EQ(weft_run_set_rate(set.get(), weft_plan_rate(plan.get(), i), &err), WEFT_OK);
    train(planned, i);
    train(set, i);
    EXPECT_EQ(digest(set), digest(planned)) << "step " << i;
  }
}

TEST(RateOfARun, IsThatOfEachUpdateOfASegment) {
  const weft_optimizer planned = optimizer_of(0.01), other = optimizer_of(1);
  weft_plan_config config = plan_config(2, 1, 2);
  config.schedule = "pipedream";
  config.segment = 4;
  config.optimizer = &planned;
  const RunPtr expected = start(small_model(), config);
  config.optimizer = &other;
  const RunPtr run = start(small_model(), config);
  Error err;
  ASSERT_EQ(weft_run_set_rate(run.get(), 0.01, &err), WEFT_OK) << err.text;
  for (const RunPtr* each : {&expected, &run}) train(*each, 0, 8);
  EXPECT_EQ(digest(run), digest(expected));
}

TEST(RateOfARun, MustBeANumber) {
  const RunPtr run = start(small_model(), plan_config());
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL, 1e39}) {
    Error err;
    expect_error(weft_run_set_rate(run.get(), wrong, &err), err, WEFT_EINVAL,
                 {"rate is ", "expected a finite float of 0 or more"});
  }
  Error err;
  expect_error(weft_run_set_rate(nullptr, 1, &err), err, WEFT_EINVAL, {"run is NULL"});
}

}  // namespace
