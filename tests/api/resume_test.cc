// A run that was saved and loaded makes the steps of the undisturbed one, bit for bit, under every
// driver: values, optimizer state, the number of steps, and the learning rate that follows from it.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "api/drivers.h"

namespace {

constexpr int kSteps = 9;

struct Trainer : TwoRanks {
  Trainer(const Driver& driver, uint64_t total = kSteps) : TwoRanks(plan_of(total), driver) {}

  static PlanPtr plan_of(uint64_t total) {
    weft_optimizer adamw = unclipped();
    adamw.rate = 0.01;
    adamw.curve = WEFT_RATE_COSINE;
    adamw.warmup = 4;
    adamw.total = total;
    adamw.min_rate = 1e-4;
    adamw.weight_decay = 0.1;
    adamw.clip = 0.5;
    weft_plan_config config = plan_config(2);
    config.seed = 7;
    config.optimizer = &adamw;
    return new_plan(small_model(), config);
  }
};

// All that a step leaves behind.
struct Made {
  uint64_t number;
  double loss, grad_norm;
  std::string digest, state_digest;
  std::vector<float> weight, bias, first_moment, second_moment;
  friend bool operator==(const Made&, const Made&) = default;
};

// The i-th step, with different data for each.
Made make_step(const RunPtr& run, int i) {
  const TensorPtr x = noise({6, 6}, static_cast<uint32_t>(2 * i + 1)),
                  y = noise({6, 3}, static_cast<uint32_t>(2 * i + 2));
  const Outcome done = step(run, {x.get(), y.get()});
  EXPECT_EQ(done.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << done.text;
  char state[33] = {};
  Error err;
  EXPECT_EQ(weft_run_optimizer_digest(run.get(), state, &err), WEFT_OK) << err.text;
  return {done.step,
          done.loss,
          done.grad_norm,
          digest(run),
          state,
          read(run, "a.weight", WEFT_VALUE, {6, 8}),
          read(run, "c.bias", WEFT_VALUE, {3}),
          read(run, "b.weight", WEFT_EXP_AVG, {8, 8}),
          read(run, "b.weight", WEFT_EXP_AVG_SQ, {8, 8})};
}

const std::vector<Made>& undisturbed() {
  static const std::vector<Made> made = [] {
    const Trainer whole(kDrivers[0]);
    std::vector<Made> out;
    for (int i = 0; i < kSteps; ++i) out.push_back(make_step(whole.run, i));
    return out;
  }();
  return made;
}

void save(const RunPtr& run, const std::string& directory) {
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.c_str();
  Error err;
  ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
}

void load(const RunPtr& run, const std::string& directory, uint64_t step) {
  weft_checkpoint* checkpoint = nullptr;
  Error err;
  ASSERT_EQ(weft_checkpoint_open(directory.c_str(), &checkpoint, &err), WEFT_OK) << err.text;
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  EXPECT_EQ(weft_checkpoint_describe(checkpoint, &info), WEFT_OK);
  EXPECT_EQ(info.step, step);
  EXPECT_EQ(weft_run_load(run.get(), checkpoint, WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  weft_checkpoint_free(checkpoint);
}

class Resume : public testing::TestWithParam<Driver> {};

// Within the warm-up, at its end, and on the way down the cosine.
TEST_P(Resume, GoesOnBitForBitUnderEveryDriver) {
  for (const int saved_after : {2, 4, 7}) {
    const Directory directory;
    {
      const Trainer first(GetParam());
      for (int i = 0; i < saved_after; ++i)
        EXPECT_EQ(make_step(first.run, i), undisturbed()[static_cast<size_t>(i)]) << i;
      save(first.run, directory.path());
    }
    for (const Driver& driver : kDrivers) {
      SCOPED_TRACE(std::string(driver.name) + " after " + std::to_string(saved_after));
      const Trainer second(driver);
      load(second.run, directory.path(), static_cast<uint64_t>(saved_after));
      for (int i = saved_after; i < kSteps; ++i)
        EXPECT_EQ(make_step(second.run, i), undisturbed()[static_cast<size_t>(i)]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, Resume, testing::ValuesIn(kDrivers),
                         [](const auto& test) { return std::string(test.param.name); });

// The comparison above would notice another number of steps and another curve.
TEST(Undisturbed, CountsItsStepsAndFollowsItsCurve) {
  for (size_t i = 1; i < kSteps; ++i)
    EXPECT_EQ(undisturbed()[i].number, undisturbed()[0].number + i);
  const Trainer other(kDrivers[0], kSteps + 1);
  for (int i = 0; i < kSteps; ++i) {
    const Made made = make_step(other.run, i);
    // Through the warm-up both curves are the same.
    EXPECT_EQ(made.digest == undisturbed()[static_cast<size_t>(i)].digest, i <= 4) << i;
  }
}

}  // namespace
