// Asynchronous schedules through the C API: what a plan reports, and the events of a segment.
#include "api/drivers.h"

namespace {

weft_plan_config pipedream(uint32_t ranks, uint32_t segment) {
  weft_plan_config config = plan_config(ranks, 1, 2);
  config.schedule = "pipedream";
  config.segment = segment;
  return config;
}

std::vector<uint32_t> versions(const PlanPtr& plan) {
  std::vector<uint32_t> out;
  for (uint32_t r = 0; weft_plan_versions(plan.get(), r) > 0; ++r)
    out.push_back(weft_plan_versions(plan.get(), r));
  return out;
}

TEST(Asynchronous, APlanSaysWhatItKeeps) {
  const ModelPtr model = small_model();
  const PlanPtr synchronous = new_plan(model, plan_config(3));
  EXPECT_EQ(weft_plan_updates(synchronous.get()), 1u);
  EXPECT_EQ(weft_plan_noam(synchronous.get()), 0u);
  EXPECT_EQ(versions(synchronous), (std::vector<uint32_t>{1, 1, 1}));
  weft_plan_config config = pipedream(3, 0);
  const PlanPtr stashing = new_plan(model, config);
  EXPECT_EQ(weft_plan_updates(stashing.get()), 16u);
  EXPECT_EQ(weft_plan_noam(stashing.get()), 3u);
  EXPECT_EQ(versions(stashing), (std::vector<uint32_t>{3, 2, 1}));
  config.vertical_sync = 1;
  const PlanPtr vertical = new_plan(model, config);
  EXPECT_EQ(versions(vertical), (std::vector<uint32_t>{3, 3, 3}));
  EXPECT_GT(weft_plan_bytes(vertical.get(), 2), weft_plan_bytes(stashing.get(), 2));
  EXPECT_EQ(weft_plan_updates(nullptr), 0u);
  EXPECT_EQ(weft_plan_noam(nullptr), 0u);
  EXPECT_EQ(weft_plan_versions(nullptr, 0), 0u);
}

TEST(Asynchronous, TheTableSaysWhichSchedulesAre) {
  std::vector<std::string> names;
  weft_schedule_info info = sized<weft_schedule_info>();
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (info.asynchronous) names.push_back(info.name);
  EXPECT_EQ(names, (std::vector<std::string>{"pipedream", "pipedream-2bw"}));
}

struct Update {
  uint64_t step;
  double loss, grad_norm;
};

// Two segments of four updates, then one of the two that are left.
std::vector<Update> train(const RunPtr& run) {
  std::vector<Update> out;
  for (const int64_t samples : {8, 8, 4}) {
    const uint32_t seed = static_cast<uint32_t>(out.size());
    const TensorPtr x = noise({samples, 6}, seed + 1), y = noise({samples, 3}, seed + 2);
    EXPECT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 7), WEFT_OK);
    const size_t before = out.size();
    int64_t micro_batches = 0;
    weft_event event = sized<weft_event>();
    while (weft_run_poll(run.get(), &event, -1, nullptr) == 1 && event.kind != WEFT_EVENT_DONE) {
      EXPECT_EQ(event.tag, 7u);
      if (event.kind == WEFT_EVENT_MICRO_BATCH) {
        EXPECT_EQ(event.micro_batch, micro_batches++);
      } else {
        EXPECT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_UPDATE));
        out.push_back({event.step, event.loss, event.grad_norm});
      }
    }
    EXPECT_EQ(micro_batches, samples / 2);
    EXPECT_EQ(event.step, before) << "the final event tells the step before the segment";
    EXPECT_EQ(event.grad_norm, out.back().grad_norm);
    double mean = 0;
    for (size_t u = before; u < out.size(); ++u)
      mean += out[u].loss / static_cast<double>(out.size() - before);
    EXPECT_NEAR(event.loss, mean, 1e-12);
  }
  return out;
}

TEST(Asynchronous, ASegmentTellsEachOfItsUpdates) {
  const ModelPtr model = small_model();
  std::string expected;
  for (const uint32_t threads : {0u, 1u, 2u}) {
    const RunPtr run = start(model, pipedream(3, 4), threads);
    const std::vector<Update> updates = train(run);
    ASSERT_EQ(updates.size(), 10u);
    for (size_t u = 0; u < updates.size(); ++u) {
      EXPECT_EQ(updates[u].step, u);
      EXPECT_GT(updates[u].loss, 0);
      EXPECT_GT(updates[u].grad_norm, 0);
    }
    if (expected.empty()) expected = digest(run);
    EXPECT_EQ(digest(run), expected) << threads << " threads";
  }
}

TEST(Asynchronous, APlanComesBackFromItsFile) {
  const ModelPtr model = small_model();
  weft_plan_config config = pipedream(3, 5);
  config.vertical_sync = 1;
  const Directory directory;
  const std::string path = directory.path() + "/plan.json";
  Error err;
  ASSERT_EQ(weft_plan_save(new_plan(model, config).get(), path.c_str(), &err), WEFT_OK) << err.text;
  weft_plan* loaded = nullptr;
  ASSERT_EQ(weft_plan_load(model.get(), path.c_str(), &loaded, &err), WEFT_OK) << err.text;
  const PlanPtr plan(loaded);
  EXPECT_EQ(weft_plan_updates(plan.get()), 5u);
  EXPECT_EQ(versions(plan), (std::vector<uint32_t>{3, 3, 3}));
}

TEST(Asynchronous, AStepTakesNoMoreThanASegment) {
  const RunPtr run = start(small_model(), pipedream(2, 4));
  const TensorPtr x = noise({10, 6}), y = noise({10, 3});
  Error err;
  expect_error(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_EINVAL,
               {"batch has 10 samples", "from 2 to 8"});
}

TEST(Asynchronous, WhatCannotBeIsRefused) {
  const ModelPtr model = small_model();
  weft_plan* out = nullptr;
  Error err;
  weft_optimizer clipping = unclipped();
  clipping.clip = 0.5;
  weft_plan_config config = pipedream(2, 0);
  config.optimizer = &clipping;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"'pipedream'", "without a flush", "clip is 0.5"});
  config = pipedream(2, 0);
  config.micro_batches = 3;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"'pipedream'", "micro_batches is 3, expected 1"});
  config = plan_config(2);
  config.vertical_sync = 1;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"'1f1b' is synchronous", "vertical sync"});
  EXPECT_EQ(out, nullptr);
}

}  // namespace
