// Forward and evaluation steps that are queued overlap: a rank begins the next one when it has
// finished its part of a step. Results are those of one step at a time, in the order of submission.
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>

#include "api/drivers.h"

namespace {

struct Split {
  const char* name;
  uint32_t ranks = 2;
  const char* schedule = "1f1b";
  uint32_t replicas = 1, tensor = 1;
};
constexpr Split kSplits[] = {
    {"Pipeline"},
    {"Interleaved", 2, "interleaved"},
    {"V", 2, "zb-v"},
    {"Replicas", 1, "1f1b", 2},
    {"Shards", 1, "1f1b", 1, 2},
    {"OneRank", 1},
};

weft_plan_config config_of(const Split& split) {
  static weft_axis axes[2];
  weft_plan_config config = plan_config(split.ranks, 4);
  config.schedule = split.schedule;
  config.short_size = 1;
  config.gradient_groups = 2;
  config.tensor = 2;
  axes[0] = {"data", split.replicas, 0};
  axes[1] = {"tensor", split.tensor, 0};
  if (split.replicas * split.tensor > 1) {
    config.axes = axes;
    config.n_axes = 2;
  }
  return config;
}

using Case = std::tuple<Driver, Split>;
class Overlap : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Drivers, Overlap,
                         testing::Combine(testing::ValuesIn(kDrivers), testing::ValuesIn(kSplits)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  std::get<1>(test.param).name;
                         });

void expect_equal(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << found.text;
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.outputs, expected.outputs);
}

TEST_P(Overlap, QueuedStepsHaveTheResultsOfOneAtATime) {
  const auto& [driver, split] = GetParam();
  if (driver.mesh && split.ranks * split.replicas * split.tensor < 2) GTEST_SKIP();
  const TwoRanks ranks(new_plan(small_model(), config_of(split)), driver);
  const RunPtr twin = start(small_model(), config_of({"OneRank", 1}));
  std::vector<std::pair<TensorPtr, TensorPtr>> batches;
  std::vector<weft_step_mode> modes;
  for (uint32_t i = 0; i < 48; ++i) {
    const int64_t samples = 1 + (i * 5) % 8;
    batches.emplace_back(noise({samples, 6}, 2 * i + 1), noise({samples, 3}, 2 * i + 2));
    // Runs of forward steps, of evaluations, and steps of all modes in turn.
    constexpr weft_step_mode kModes[] = {WEFT_TRAIN, WEFT_FORWARD, WEFT_EVAL};
    modes.push_back(i < 16 ? WEFT_FORWARD : i < 32 ? WEFT_EVAL : kModes[i / 2 % 3]);
  }
  const auto batch = [&](size_t i) {
    return std::vector<weft_tensor*>{batches[i].first.get(), batches[i].second.get()};
  };
  for (size_t i = 0, submitted = 0; i < batches.size(); ++i) {
    for (; submitted < std::min(batches.size(), i + 16); ++submitted)
      ASSERT_EQ(submit(ranks.run, batch(submitted), modes[submitted], submitted), WEFT_OK);
    const Outcome found = finish(ranks.run);
    EXPECT_EQ(found.tag, i);
    expect_equal(found, step(twin, batch(i), modes[i]));
  }
  EXPECT_EQ(digest(ranks.run), digest(twin));
}

// The calls of two ops, one in each stage. Call n of the second one waits until the first stage has
// computed step n + 1, or the last one.
struct Calls {
  void count(int stage) {
    const std::lock_guard lock(mutex);
    ++made[stage];
    changed.notify_all();
  }
  bool wait(int stage, int calls) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60),
                            [&] { return made[stage] >= calls || ended; });
  }
  void end() {
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
  static int32_t shape(weft_op_call* call) {
    call->output.desc = call->inputs[0].desc;
    return 0;
  }
  static void copy(const weft_op_call* call) {
    std::memcpy(call->output.data, call->inputs[0].data,
                static_cast<size_t>(elements(call->output.desc)) * sizeof(float));
  }
  static int32_t first(const weft_op_call* call) {
    copy(call);
    static_cast<Calls*>(call->payload)->count(0);
    return 0;
  }
  static int32_t second(const weft_op_call* call) {
    copy(call);
    Calls& calls = *static_cast<Calls*>(call->payload);
    if (calls.made[1] == calls.fails_at) return 1;
    const bool met = calls.wait(0, std::min(calls.made[1] + 2, calls.steps));
    calls.count(1);
    return met ? 0 : 1;
  }

  std::mutex mutex;
  std::condition_variable changed;
  int made[2] = {0, 0}, steps = 0, fails_at = -1;
  bool ended = false;  // calls do not wait any more
};

// x [2] -> first -> second, an output.
ModelPtr model_of(Calls& calls) {
  ModelPtr model = new_model();
  weft_value x = add_input(model, "x", {1, 2});
  for (const bool is_second : {false, true}) {
    weft_op op = defaults(weft_op_init);
    op.name = is_second ? "second" : "first";
    op.shape = Calls::shape;
    op.forward = is_second ? Calls::second : Calls::first;
    Error err;
    EXPECT_EQ(weft_model_add_op(model.get(), &op, &calls, &err), WEFT_OK) << err.text;
    x = add_node(model, op.name, {x}, op.name);
  }
  EXPECT_EQ(weft_model_add_output(model.get(), x, nullptr), WEFT_OK);
  return model;
}

class OverlapOfStages : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(Calls& calls, int steps) {
    calls.steps = steps;
    static const char* const cuts[] = {"second"};
    weft_plan_config config = plan_config(2, 1, 1);
    config.step_kinds = WEFT_STEPS_ALL | WEFT_STEPS_TRAIN_OUTPUTS;
    config.cuts = cuts;
    config.n_cuts = 1;
    return ::start(model_of(calls), config, GetParam());
  }
  static TensorPtr batch(int number) {
    TensorPtr out = zeros({1, 2});
    floats(out)[0] = floats(out)[1] = static_cast<float>(number);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Threads, OverlapOfStages, testing::Values(1u, 2u));

TEST_P(OverlapOfStages, TheFirstComputesTheNextStepWhileTheSecondIsBusy) {
  Calls calls;
  const RunPtr run = start(calls, 12);
  std::vector<TensorPtr> batches;
  for (int i = 0; i < 12; ++i) {
    batches.push_back(batch(i));
    ASSERT_EQ(submit(run, {batches.back().get()}, WEFT_FORWARD, 0), WEFT_OK);
  }
  for (int i = 0; i < 12; ++i) {
    const Outcome found = finish(run);
    ASSERT_EQ(found.kind, static_cast<uint32_t>(WEFT_EVENT_DONE)) << found.text;
    EXPECT_EQ(found.outputs[0][0], values(batches[static_cast<size_t>(i)]));
  }
}

// The result of the second step waits until the program has polled the first one.
TEST_P(OverlapOfStages, OutputsStayUntilTheyAreReleasedByAPoll) {
  Calls calls;
  const RunPtr run = start(calls, 2);
  const TensorPtr first = batch(1), second = batch(2);
  ASSERT_EQ(submit(run, {first.get()}, WEFT_FORWARD, 1), WEFT_OK);
  ASSERT_EQ(submit(run, {second.get()}, WEFT_FORWARD, 2), WEFT_OK);
  weft_event event = sized<weft_event>();
  ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  ASSERT_EQ(event.n_outputs, 1u);
  ASSERT_TRUE(calls.wait(1, 2));
  const float* output = static_cast<const float*>(weft_tensor_data(event.outputs[0]));
  EXPECT_EQ(output[0], 1);
  ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  EXPECT_EQ(event.kind, WEFT_EVENT_DONE);
  EXPECT_EQ(finish(run).outputs[0][0], values(second));
}

// Each message has an arrow of its own.
TEST(OverlapOfSteps, HasATrace) {
  const Directory directory;
  const std::string path = directory.path() + "/trace.json";
  const RunPtr run = start(small_model(), plan_config(2, 1), 1);
  Error err;
  ASSERT_EQ(weft_run_trace(run.get(), 1000, &err), WEFT_OK) << err.text;
  const TensorPtr x = noise({2, 6}, 1);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(submit(run, {x.get(), nullptr}, WEFT_FORWARD, 0), WEFT_OK);
  for (int i = 0; i < 16; ++i) finish(run);
  ASSERT_EQ(weft_run_save_trace(run.get(), path.c_str(), &err), WEFT_OK) << err.text;
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  int arrows = 0;
  for (size_t at = 0; (at = text.find("\"ph\":\"s\"", at)) != std::string::npos; ++at) ++arrows;
  EXPECT_EQ(arrows % 16, 0);
  EXPECT_GE(arrows, 16);
}

// A save that ends during a step has its event before those of the step, and releases no outputs.
TEST_P(OverlapOfStages, OutputsStayAfterTheEventOfASave) {
  const Directory directory;
  const std::string path = directory.path() + "/run";
  Calls calls;
  const RunPtr run = start(calls, 3);  // the second stage waits for three calls of the first one
  const TensorPtr x[] = {batch(1), batch(2), batch(3)};
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = path.c_str();
  save.flags = WEFT_SAVE_QUEUE;
  Error err;
  ASSERT_EQ(weft_run_save(run.get(), &save, &err), WEFT_OK) << err.text;
  ASSERT_EQ(submit(run, {x[0].get()}, WEFT_FORWARD, 1), WEFT_OK);
  pollfd readable{weft_run_fd(run.get()), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 60000), 1);
  for (int i : {1, 2}) ASSERT_EQ(submit(run, {x[i].get()}, WEFT_FORWARD, 1), WEFT_OK);
  ASSERT_TRUE(calls.wait(1, 2));  // the first step has delivered its output
  weft_event event = sized<weft_event>();
  ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  ASSERT_EQ(event.kind, WEFT_EVENT_SAVED);
  // Whatever the others do now.
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  for (const TensorPtr& each : x) EXPECT_EQ(finish(run).outputs[0][0], values(each));
}

// Steps before the failure are done, and all others have one final event.
TEST_P(OverlapOfStages, AFailureEndsAllStepsInProgress) {
  Calls calls;
  calls.fails_at = 2;
  const RunPtr run = start(calls, 8);
  std::vector<TensorPtr> batches;
  for (int i = 0; i < 8; ++i) {
    batches.push_back(batch(i));
    ASSERT_EQ(submit(run, {batches.back().get()}, WEFT_FORWARD, static_cast<uint64_t>(i)), WEFT_OK);
  }
  for (uint64_t i = 0; i < 8; ++i) {
    const Outcome found = finish(run);
    EXPECT_EQ(found.tag, i);
    EXPECT_EQ(found.kind, static_cast<uint32_t>(i < 2 ? WEFT_EVENT_DONE : WEFT_EVENT_ERROR)) << i;
  }
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, 0, nullptr), 0);
}

TEST_P(OverlapOfStages, ARunIsFreedWhileStepsAreInProgress) {
  Calls calls;
  const TensorPtr x = batch(1);
  RunPtr run = start(calls, 8);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(submit(run, {x.get()}, WEFT_FORWARD, 0), WEFT_OK);
  ASSERT_TRUE(calls.wait(1, 1));
  calls.end();  // calls that the second stage waits for may not be made
  run.reset();
}

}  // namespace
