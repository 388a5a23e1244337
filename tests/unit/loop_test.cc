// Loop: posts from many threads, timers, wake-ups, stop; Thread: what it shields the host from.
#include "loop/loop.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "loop/thread.h"

namespace {
std::atomic<int> yields = 0;
}

// Libraries call this one, too.
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace weft {
namespace {

std::unique_ptr<Loop> make_loop() {
  auto loop = Loop::make();
  EXPECT_TRUE(loop.ok()) << loop.status().text();
  return loop.take();
}

TEST(Loop, RunsPostsOfEachThreadInOrder) {
  constexpr int kThreads = 4, kPosts = 2000;
  auto loop = make_loop();
  std::vector<int> next(kThreads, 0);
  int in_order = 0, ended = 0;
  const std::thread::id loop_thread = std::this_thread::get_id();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i)
        EXPECT_TRUE(loop->post([&, t, i] {
          in_order +=
              next[static_cast<size_t>(t)]++ == i && std::this_thread::get_id() == loop_thread;
        }));
      EXPECT_TRUE(loop->post([&] {
        if (++ended == kThreads) loop->stop();
      }));
    });
  loop->run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(in_order, kThreads * kPosts);
}

// A process that has only so many descriptors left, and no loop yet. No failure may end it.
void make_the_first_loop(int left) {
  const rlimit most{64, 64};
  setrlimit(RLIMIT_NOFILE, &most);
  std::vector<int> open;
  for (int at = 0; (at = eventfd(0, EFD_CLOEXEC)) >= 0;) open.push_back(at);
  for (int i = 0; i < left; ++i) close(open[static_cast<size_t>(i)]);
  const auto loop = Loop::make();
  std::_Exit(loop.ok() ? 1 : loop.status().code() == Code::no_memory ? 2 : 3);
}

// GoogleTest runs suites of this name first, so each child is a copy of a process without a loop.
TEST(LoopDeathTest, WithoutDescriptorsIsAFailureOfItsOwn) {
#ifdef WEFT_SANITIZED
  GTEST_SKIP() << "sanitizers end the process instead";
#endif
  for (int left = 0; left < 11; ++left)
    EXPECT_EXIT(make_the_first_loop(left), testing::ExitedWithCode(2), "") << left;
  EXPECT_EXIT(make_the_first_loop(11), testing::ExitedWithCode(1), "");
}

void end_a_loop_without_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(standard);
  const bool made = Loop::make().ok();
  std::_Exit(made ? 1 : 2);
}

TEST(LoopDeathTest, HasNoStandardDescriptor) {
  EXPECT_EXIT(end_a_loop_without_standard_descriptors(), testing::ExitedWithCode(1), "");
}

TEST(Loop, RunsWhatWasPostedBeforeStopAndRefusesTheRest) {
  auto loop = make_loop();
  std::vector<int> ran;
  EXPECT_TRUE(loop->post([&] {
    ran.push_back(1);
    EXPECT_TRUE(loop->post([&] {
      ran.push_back(3);
      loop->stop();
      EXPECT_FALSE(loop->post([&] { ran.push_back(5); }));
    }));
  }));
  EXPECT_TRUE(loop->post([&] { ran.push_back(2); }));
  loop->run();
  EXPECT_FALSE(loop->post([&] { ran.push_back(6); }));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(Loop, StopBeforeRunStillRunsWhatWasPosted) {
  auto loop = make_loop();
  bool ran = false;
  EXPECT_TRUE(loop->post([&] { ran = true; }));
  loop->stop();
  loop->run();
  EXPECT_TRUE(ran);
}

TEST(Loop, ALoopThatNeverRanGivesBackItsDescriptors) {
  const int before = dup(0);
  close(before);
  {
    auto loop = make_loop();
    Loop::Timer timer(*loop, [] { FAIL(); });
    timer.start(0);
    EXPECT_TRUE(loop->post([] { FAIL(); }));
  }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(Timer, FiresOnceInOrderOfTimeAndNotBefore) {
  auto loop = make_loop();
  std::vector<int> fired;
  const int64_t start = loop->now_ms();
  int64_t first_after = 0;
  Loop::Timer late(*loop, [&] {
    fired.push_back(2);
    loop->stop();
  });
  Loop::Timer early(*loop, [&] {
    fired.push_back(1);
    first_after = loop->now_ms() - start;
  });
  Loop::Timer stopped(*loop, [&] { fired.push_back(3); });
  {
    Loop::Timer destroyed(*loop, [&] { fired.push_back(4); });
    destroyed.start(0);
  }
  late.start(0);
  late.start(20);  // replaces
  early.start(10);
  stopped.start(1);
  stopped.stop();
  loop->run();
  EXPECT_EQ(fired, (std::vector<int>{1, 2}));
  EXPECT_GE(first_after, 10);
}

TEST(Timer, MayBeStartedAgainByItself) {
  auto loop = make_loop();
  int fired = 0;
  Loop::Timer* self = nullptr;
  Loop::Timer timer(*loop, [&] { ++fired < 3 ? self->start(1) : loop->stop(); });
  self = &timer;
  timer.start(-5);  // as 0
  loop->run();
  EXPECT_EQ(fired, 3);
}

TEST(Signal, RunsAfterTheLastRaise) {
  auto loop = make_loop();
  std::atomic<int> value = 0;
  int seen = 0, runs = 0;
  Loop::Signal signal(*loop, [&] {
    ++runs;
    seen = value.load();
    if (seen == 1000) loop->stop();
  });
  std::thread thread([&] {
    for (int i = 1; i <= 1000; ++i) {
      value.store(i);
      signal.raise();
    }
  });
  loop->run();
  thread.join();
  EXPECT_EQ(seen, 1000);
  EXPECT_LE(runs, 1000);
}

// On one processor, which the loop takes from a thread of lower priority as soon as that wakes it:
// the loop must not wait until the thread comes on again.
TEST(Signal, DoesNotWaitForTheThreadThatRaisedIt) {
  constexpr int kRaises = 2000;
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  yields = 0;
  auto loop = make_loop();
  const int answers = eventfd(0, EFD_CLOEXEC);  // to sleep without a yield
  int seen = 0;
  Loop::Signal signal(*loop, [&] {
    if (++seen == kRaises) loop->stop();
    EXPECT_EQ(eventfd_write(answers, 1), 0);
  });
  const auto raises = [&] {
    setpriority(PRIO_PROCESS, 0, 10);  // the loop takes the processor at each signal
    for (int i = 0; i < kRaises; ++i) {
      signal.raise();
      eventfd_t answer = 0;
      EXPECT_EQ(eventfd_read(answers, &answer), 0);
    }
  };
  {
    const auto thread = Thread::start("raises", raises);
    loop->run();
  }
  EXPECT_EQ(yields, 0);
  close(answers);
  sched_setaffinity(0, sizeof all, &all);
}

TEST(Signal, MayBeDestroyedByAnother) {
  auto loop = make_loop();
  int ran = 0;
  std::array<std::optional<Loop::Signal>, 2> signals;
  const auto run = [&](size_t other) {
    ++ran;
    signals[other].reset();
    EXPECT_TRUE(loop->post([&] { loop->stop(); }));
  };
  signals[0].emplace(*loop, [&] { run(1); });
  signals[1].emplace(*loop, [&] { run(0); });
  signals[1]->raise();
  signals[0]->raise();
  loop->run();
  EXPECT_EQ(ran, 1);
}

// An eventfd stands for ZeroMQ's: its edge is swallowed by another callback, and only `ready` knows
// that there is work.
TEST(Turn, RunsAlthoughTheEdgeWasSwallowed) {
  auto loop = make_loop();
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  auto waker = Loop::Waker::make(*loop, fd);
  ASSERT_TRUE(waker.ok()) << waker.status().text();
  int queued = 0, done = 0;
  Loop::Turn turn(
      *loop, [&] { return queued > 0; },
      [&] {
        if (queued == 0) return;
        --queued;  // one per turn: the rest must not wait for another edge
        if (++done == 3) loop->stop();
      });
  Loop::Timer swallows(*loop, [&] {
    uint64_t value = 1;
    EXPECT_EQ(write(fd, &value, sizeof value), static_cast<ssize_t>(sizeof value));
    EXPECT_EQ(read(fd, &value, sizeof value), static_cast<ssize_t>(sizeof value));
    queued = 3;
  });
  swallows.start(1);
  loop->run();
  EXPECT_EQ(done, 3);
  waker.value().reset();
  close(fd);
}

TEST(Turn, RunsWhenADescriptorWakesTheLoop) {
  auto loop = make_loop();
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  auto waker = Loop::Waker::make(*loop, fd);
  ASSERT_TRUE(waker.ok()) << waker.status().text();
  uint64_t value = 0;
  Loop::Turn turn(
      *loop, [] { return false; },
      [&] {
        if (read(fd, &value, sizeof value) > 0) loop->stop();
      });
  std::thread thread([&] {
    const uint64_t seven = 7;
    EXPECT_EQ(write(fd, &seven, sizeof seven), static_cast<ssize_t>(sizeof seven));
  });
  loop->run();
  thread.join();
  EXPECT_EQ(value, 7u);
  waker.value().reset();
  close(fd);
}

TEST(Waker, TellsOnceThatItsDescriptorWasReadable) {
  auto loop = make_loop();
  const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  auto waker = Loop::Waker::make(*loop, fd);
  ASSERT_TRUE(waker.ok()) << waker.status().text();
  EXPECT_FALSE(waker.value()->take());  // the loop has not looked yet
  Loop::Turn turn(
      *loop, [] { return false; },
      [&] {
        uint64_t value = 0;
        if (read(fd, &value, sizeof value) > 0) loop->stop();
      });
  loop->run();
  EXPECT_TRUE(waker.value()->take());
  EXPECT_FALSE(waker.value()->take());
  waker.value().reset();
  close(fd);
}

TEST(Waker, RefusesADescriptorThatIsNone) {
  auto loop = make_loop();
  const auto waker = Loop::Waker::make(*loop, 9999);
  ASSERT_FALSE(waker.ok());
  EXPECT_NE(waker.status().text().find("descriptor 9999"), std::string::npos)
      << waker.status().text();
}

TEST(Thread, HasANameAndBlocksSignals) {
  char name[16] = "";
  int blocked = -1;
  {
    auto thread = Thread::start("a-name-that-is-too-long", [&] {
      pthread_getname_np(pthread_self(), name, sizeof name);
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      blocked =
          sigismember(&mask, SIGINT) + sigismember(&mask, SIGTERM) + sigismember(&mask, SIGCHLD);
    });
    ASSERT_TRUE(thread.ok()) << thread.status().text();
  }
  EXPECT_STREQ(name, "a-name-that-is-");
  EXPECT_EQ(blocked, 3);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0) << "the caller's own mask was changed";
}

TEST(Thread, LeavesItsFaultsToTheHostsHandlers) {
  std::vector<int> blocked;
  {
    auto thread = Thread::start("faults", [&] {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
        if (sigismember(&mask, fault)) blocked.push_back(fault);
    });
    ASSERT_TRUE(thread.ok()) << thread.status().text();
  }
  EXPECT_EQ(blocked, std::vector<int>());
}

}  // namespace
}  // namespace weft
