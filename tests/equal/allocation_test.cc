// After its first step a run allocates nothing: counted in operator new, on every driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "graph/presets.h"
#include "runtime/run.h"
#include "tune/make_plan.h"

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* at = std::malloc(size ? size : 1)) return at;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* at =
          std::aligned_alloc(static_cast<size_t>(alignment),
                             (size + static_cast<size_t>(alignment) - 1) /
                                 static_cast<size_t>(alignment) * static_cast<size_t>(alignment)))
    return at;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { std::free(at); }

namespace weft {
namespace {

// Steps of every mode with a loss or outputs; the first of each may allocate.
void expect_no_allocation(std::unique_ptr<Run> run, int64_t tokens_per_sample) {
  const auto samples_of = [&run](Mode mode) {
    return run->plan().mode(mode).schedule.micro_batches * run->plan().config.micro_batch_size;
  };
  std::vector<int32_t> tokens(static_cast<size_t>(samples_of(Mode::train) * tokens_per_sample), 7),
      targets(tokens.size(), 9);
  int64_t before = 0;
  double last = 0;
  const auto submit = [&](Mode mode) {
    Step* step = run->acquire();
    if (!step) return false;
    step->mode = mode;
    step->batch.samples = samples_of(mode);
    step->batch.inputs.push_back(tokens.data());
    step->batch.inputs.push_back(targets.data());
    EXPECT_TRUE(run->submit(step).ok());
    return true;
  };
  for (int n = 0; n < 14; ++n) {
    if (n == 6) before = allocations;
    ASSERT_TRUE(submit(kEveryMode[static_cast<size_t>(n % 3)]));
    while (n >= 12 && submit(kEveryMode[static_cast<size_t>(n % 2 + 1)])) {}  // overlap
    RunEvent event;
    while (run->poll(event, -1)) {
      ASSERT_TRUE(event.status.ok()) << event.status.text();
      if (event.kind == RunEvent::Kind::done && event.mode == Mode::train) last = event.loss;
    }
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(last, 0);
}

std::shared_ptr<const Plan> nano_plan(int32_t ranks, const char* schedule = "1f1b",
                                      const char* precision = "f32") {
  PlanConfig config;
  config.ranks = ranks;
  config.schedule = schedule;
  config.precision = precision;
  config.micro_batches = 6;
  config.micro_batch_size = 2;
  config.optim.clip = 1;
  return make_plan(make_preset("gpt-nano:width=32,dropout=0.1", {.seq_len = 16}).take().model,
                   config)
      .take();
}

// Replicas with two groups each, whose two ranks share every node's work.
std::shared_ptr<const Plan> shared_plan(const char* shard) {
  PlanConfig config;
  config.ranks = 4;
  config.data = 2;
  config.gradient_groups = 4;
  config.shard_ranks = 2;
  config.tensor = 2;
  config.shard = shard;
  config.bucket_bytes = 4096;
  config.micro_batches = 6;
  config.micro_batch_size = 2;
  config.optim.clip = 1;
  return make_plan(make_preset("gpt-nano:width=32,dropout=0.1", {.seq_len = 16}).take().model,
                   config)
      .take();
}

std::shared_ptr<const Plan> asynchronous_plan(const char* schedule, int32_t micro_batches) {
  PlanConfig config;
  config.ranks = 3;
  config.schedule = schedule;
  config.micro_batches = micro_batches;
  config.micro_batch_size = 2;
  config.segment = 5;
  return make_plan(
             make_preset("gpt-nano:width=32,dropout=0.1,tied=0", {.seq_len = 16}).take().model,
             config)
      .take();
}

void ignore(void*) {}

TEST(Allocation, NoneOnTheCallersThread) {
  expect_no_allocation(start_inline(nano_plan(3), ignore).take(), 16);
}
TEST(Allocation, NoneWithAThreadPerRank) {
  expect_no_allocation(start_threads(nano_plan(3), 1, ignore).take(), 16);
}
TEST(Allocation, NoneWithWeightGradientsAtOnce) {
  for (const char* precision : {"f32", "bf16"})
    expect_no_allocation(start_threads(nano_plan(2, "1f1b-delayed-w", precision), 1, ignore).take(),
                         16);
}
TEST(Allocation, NoneWithAsynchronousSchedules) {
  expect_no_allocation(start_inline(asynchronous_plan("pipedream", 1), ignore).take(), 16);
  expect_no_allocation(start_threads(asynchronous_plan("pipedream-2bw", 3), 1, ignore).take(), 16);
}
TEST(Allocation, NoneWithReplicasAndPieces) {
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    expect_no_allocation(start_inline(shared_plan(shard), ignore).take(), 16);
    expect_no_allocation(start_threads(shared_plan(shard), 1, ignore).take(), 16);
  }
}
TEST(Allocation, NoneWithSeveralThreadsPerRank) {
  expect_no_allocation(start_threads(nano_plan(2), 3, ignore).take(), 16);
}

}  // namespace
}  // namespace weft
