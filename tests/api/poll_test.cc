// Waiting together with other descriptors: the descriptor of a run, and the memory that a run
// reports.
#include <poll.h>

#include "api.h"

namespace {

bool readable(const RunPtr& run, int milliseconds) {
  pollfd entry = {weft_run_fd(run.get()), POLLIN, 0};
  return poll(&entry, 1, milliseconds) == 1 && (entry.revents & POLLIN);
}

// Compute threads per rank.
class Poll : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, Poll, testing::Values(0u, 1u, 2u));

TEST_P(Poll, TheDescriptorIsReadableWhilePollHasSomethingToDo) {
  const RunPtr run = start(small_model(), plan_config(2), GetParam());
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  EXPECT_GE(weft_run_fd(run.get()), 0);
  EXPECT_FALSE(readable(run, 0));
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t tag = 0; tag < 2; ++tag)
      ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, tag), WEFT_OK);
    int finals = 0;
    while (finals < 2) {
      ASSERT_TRUE(readable(run, 20000));
      EXPECT_TRUE(readable(run, 0)) << "level-triggered";
      weft_event event = sized<weft_event>();
      ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
      finals += event.kind != WEFT_EVENT_MICRO_BATCH;
    }
    EXPECT_FALSE(readable(run, 0));
  }
}

TEST_P(Poll, ALimitBeyondAllTimesIsNone) {
  const RunPtr run = start(small_model(), plan_config(2), GetParam());
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  for (uint64_t tag = 0; tag < 8; ++tag) {
    ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, tag), WEFT_OK);
    weft_event event = sized<weft_event>();
    do ASSERT_EQ(weft_run_poll(run.get(), &event, INT64_MAX, nullptr), 1);
    while (event.kind == WEFT_EVENT_MICRO_BATCH);
  }
}

TEST_P(Poll, MemoryIsWhatThePlanSaid) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const RunPtr run = start(plan, GetParam());
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run.get(), &event, -1, nullptr) == 1) continue;
  Error err;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    int64_t bytes = 0;
    ASSERT_EQ(weft_run_resident(run.get(), rank, &bytes, &err), WEFT_OK) << err.text;
    EXPECT_GT(bytes, 0);
    EXPECT_LE(bytes, weft_plan_bytes(plan.get(), rank));
  }
  int64_t bytes = 0;
  expect_error(weft_run_resident(run.get(), 2, &bytes, &err), err, WEFT_EINVAL, {"rank is 2", "2"});
  EXPECT_EQ(weft_run_fd(nullptr), -1);
}

}  // namespace
