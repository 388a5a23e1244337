// Team and WorkerThread: every tile and job once, in any order that may be, without an allocation.
#include "loop/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

// Counts what the whole process allocates through C++. The thread sanitizer brings operators of its
// own; the other builds count.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TEST_DOES_NOT_COUNT
#endif
#endif
#if !defined(WEFT_TEST_DOES_NOT_COUNT) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t a = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace weft {
namespace {

std::unique_ptr<Team> make_team(int threads) {
  auto team = Team::make(threads);
  EXPECT_TRUE(team.ok()) << team.status().text();
  return team.take();
}

TEST(Team, RunsEachTileOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    auto team = make_team(threads);
    EXPECT_EQ(team->threads(), threads);
    for (int run = 0; run < 2000; ++run) {
      const int count = run % 13;
      // Not atomic on purpose: the thread sanitizer proves that run() hands the results over.
      std::vector<int> times(static_cast<size_t>(count), 0);
      for_tiles(*team, count, [&](int tile) { ++times[static_cast<size_t>(tile)]; });
      EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

TEST(Team, HelpersTakePart) {
  auto team = make_team(3);
  // Each tile waits until all three have begun: a single thread would never return.
  std::atomic<int> begun = 0;
  for_tiles(*team, 3, [&](int) {
    begun.fetch_add(1);
    while (begun.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(begun.load(), 3);
}

// The first line of a file of a thread of this process.
std::string line_of(const std::filesystem::path& task, const char* file) {
  std::ifstream in(task / file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::filesystem::path task_named(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    if (line_of(task.path(), "comm") == name) return task.path();
  return {};
}

TEST(Team, HelpersWakeAfterTheySlept) {
  auto team = make_team(2);
  for (int run = 0; run < 20; ++run) {
    std::atomic<int> begun = 0;
    for_tiles(*team, 2, [&](int) {
      begun.fetch_add(1);
      while (begun.load() < 2) std::this_thread::yield();
    });
    const auto helper = task_named("weft-r0.1");
    ASSERT_FALSE(helper.empty());
    while (line_of(helper, "stat").find(") S ") == std::string::npos) std::this_thread::yield();
  }
}

TEST(Team, OthersFinishTheRangeOfAThreadThatIsHeldUp) {
  auto team = make_team(3);
  constexpr int kTiles = 300;
  for (int run = 0; run < 20; ++run) {
    std::vector<int> times(kTiles, 0);
    std::atomic<int> done = 0;
    // The first tile of the caller's range waits for all others.
    for_tiles(*team, kTiles, [&](int tile) {
      while (tile == 0 && done.load() < kTiles - 1) std::this_thread::yield();
      ++times[static_cast<size_t>(tile)];
      done.fetch_add(1);
    });
    EXPECT_EQ(times, std::vector<int>(kTiles, 1));
  }
}

TEST(Team, HelpersComputeAsTheCallerDoes) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);  // a host's choice, inherited by new threads
  auto team = make_team(2);
  std::fesetround(FE_TONEAREST);
  std::atomic<int> begun = 0;
  volatile float dividend = -1, divisor = 3;
  const float nearest = dividend / divisor;
  float quotient[2] = {};
  for_tiles(*team, 2, [&](int tile) {
    quotient[tile] = dividend / divisor;
    begun.fetch_add(1);
    while (begun.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(quotient[0], nearest);
  EXPECT_EQ(quotient[1], nearest);
}

TEST(Team, AllocatesNothing) {
  auto team = make_team(4);
  std::atomic<int> tiles = 0;
  const int64_t before = allocations.load();
  for (int run = 0; run < 500; ++run)
    for_tiles(*team, 7, [&](int) { tiles.fetch_add(1, std::memory_order_relaxed); });
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(tiles.load(), 3500);
}

TEST(Team, RefusesNoThreadsAndThousands) {
  for (const int threads : {0, 1025, 1 << 20}) {
    const auto team = Team::make(threads);
    ASSERT_FALSE(team.ok());
    EXPECT_EQ(team.status().text(),
              "threads is " + std::to_string(threads) + ", expected 1 to 1024");
  }
}

// `push` gives the first jobs to *worker; `done` stops the loop after the last one.
void run_jobs(Loop& loop, WorkerThread*& worker, const std::function<void()>& push,
              const std::function<void(int64_t)>& run, const std::function<void(int64_t)>& done) {
  auto made = WorkerThread::make(loop, run, done, 5);
  ASSERT_TRUE(made.ok()) << made.status().text();
  worker = made.value().get();
  EXPECT_TRUE(loop.post(push));
  loop.run();
}

TEST(WorkerThread, RunsJobsInOrderAndTellsOfEach) {
  auto loop = Loop::make().take();
  constexpr int64_t kJobs = 3000;
  const std::thread::id loop_thread = std::this_thread::get_id();
  std::vector<int64_t> ran, done;
  ran.reserve(kJobs);
  int64_t pushed = 0, before = 0;
  WorkerThread* worker = nullptr;
  const auto push = [&] {
    while (pushed < kJobs && worker->push(pushed)) ++pushed;
  };
  done.reserve(kJobs);
  run_jobs(
      *loop, worker, push, [&](int64_t job) { ran.push_back(job); },
      [&](int64_t job) {
        EXPECT_EQ(std::this_thread::get_id(), loop_thread);
        done.push_back(job);
        if (job == 100) before = allocations.load();
        if (job == kJobs - 100) before = allocations.load() - before;
        push();
        if (job == kJobs - 1) loop->stop();
      });
  ASSERT_EQ(done.size(), static_cast<size_t>(kJobs));
  for (int64_t i = 0; i < kJobs; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
  EXPECT_EQ(ran, done);
  EXPECT_EQ(before, 0) << "allocations while jobs ran";
}

// One to three jobs at a time, of which some are brief. A brief one is on the loop thread if it is
// the only one.
TEST(WorkerThread, RunsBriefJobsOnTheLoopThreadInTheSameOrder) {
  auto loop = Loop::make().take();
  constexpr int64_t kJobs = 3000;
  const std::thread::id loop_thread = std::this_thread::get_id();
  std::vector<int64_t> ran, alone(kJobs), here(kJobs);
  int64_t pushed = 0, done = 0;
  WorkerThread* worker = nullptr;
  const auto push = [&] {
    for (int64_t some = pushed % 3; some >= 0 && pushed < kJobs; --some) {
      const bool is_brief = pushed * 7 % 5 < 3;
      alone[static_cast<size_t>(pushed)] = is_brief && pushed == done && some == 0;
      ASSERT_TRUE(worker->push(pushed++, is_brief));
    }
  };
  run_jobs(
      *loop, worker, push,
      [&](int64_t job) {
        ran.push_back(job);
        here[static_cast<size_t>(job)] = std::this_thread::get_id() == loop_thread;
      },
      [&](int64_t job) {
        EXPECT_EQ(job, done++);
        if (done == pushed) push();
        if (job == kJobs - 1) loop->stop();
      });
  ASSERT_EQ(ran.size(), static_cast<size_t>(kJobs));
  for (int64_t i = 0; i < kJobs; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
  EXPECT_EQ(here, alone);
  EXPECT_GT(std::count(here.begin(), here.end(), 1), 100);
}

TEST(WorkerThread, HoldsNoMoreThanItsDepth) {
  auto loop = Loop::make().take();
  std::atomic<bool> go = false;
  int done = 0;
  auto made = WorkerThread::make(
      *loop,
      [&](int64_t) {
        while (!go.load()) std::this_thread::yield();
      },
      [&](int64_t) {
        if (++done == 3) loop->stop();
      },
      3);
  ASSERT_TRUE(made.ok()) << made.status().text();
  WorkerThread& worker = *made.value();
  EXPECT_TRUE(worker.push(1));
  EXPECT_TRUE(worker.push(2));
  EXPECT_TRUE(worker.push(3));
  EXPECT_FALSE(worker.push(4));  // also while the first is running
  go.store(true);
  loop->run();
  EXPECT_TRUE(worker.push(5));
  made.value().reset();
  EXPECT_EQ(done, 3);
}

TEST(WorkerThread, EndsAfterTheJobUnderWay) {
  auto loop = Loop::make().take();
  std::atomic<int> begun = 0;
  std::atomic<bool> go = false;
  auto made = WorkerThread::make(
      *loop,
      [&](int64_t) {
        begun.fetch_add(1);
        while (!go.load()) std::this_thread::yield();
      },
      [](int64_t) { FAIL() << "nobody listens any more"; });
  ASSERT_TRUE(made.ok()) << made.status().text();
  for (int64_t job = 0; job < 10; ++job) EXPECT_TRUE(made.value()->push(job));
  while (begun.load() == 0) std::this_thread::yield();
  std::thread frees([&] { go.store(true); });
  made.value().reset();
  frees.join();
  EXPECT_GE(begun.load(), 1);
}

}  // namespace
}  // namespace weft
