#include "loop/team.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/most_threads.h"
#include "base/text.h"
#include "kernels/fpenv.h"

namespace weft {

namespace {

constexpr uint32_t kOpen = uint32_t{1} << 31;

// The time between two kernels of a job, or two jobs, is often shorter than a sleep and a wake-up,
// so that spinning is faster. A thread that has spun for some microseconds lets others run.
constexpr auto kSpins = std::chrono::microseconds(300);
constexpr int kLooks = 256;  // between two looks at the clock

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until the atomic has another value than `old`; returns one.
uint32_t await_change(const std::atomic<uint32_t>& value, uint32_t old) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kSpins;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (const uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
      pause();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

Result<std::unique_ptr<Team>> Team::make(int threads, int rank) {
  if (threads < 1 || threads > kMostThreads)
    return Status(Code::invalid, cat("threads is ", threads, ", expected 1 to ", kMostThreads));
  std::unique_ptr<Team> team(new Team);
  team->ranges_ = std::vector<Range>(static_cast<size_t>(threads));
  team->helpers_.reserve(
      static_cast<size_t>(threads - 1));  // its destructor ends the existing threads
  for (int i = 1; i < threads; ++i) {
    WEFT_TRY_ASSIGN(auto helper, Thread::start(cat("weft-r", rank, ".", i), [t = team.get(), i] {
                      t->help(static_cast<size_t>(i));
                    }));
    team->helpers_.push_back(std::move(helper));
  }
  return team;
}

Team::~Team() {
  ending_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  helpers_.clear();
}

void Team::run(int count, Fn fn, void* context) {
  const int wanted = std::min(static_cast<int>(helpers_.size()), count - 1);
  if (wanted <= 0) {
    for (int i = 0; i < count; ++i) fn(context, i);
    return;
  }
  fn_ = fn;
  context_ = context;
  in_use_ = static_cast<size_t>(wanted) + 1;
  for (int64_t i = 0; i <= wanted; ++i) {
    Range& range = ranges_[static_cast<size_t>(i)];
    range.next.store(static_cast<int>(i * count / (wanted + 1)), std::memory_order_relaxed);
    range.end = static_cast<int>((i + 1) * count / (wanted + 1));
  }
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  if (wanted == static_cast<int>(helpers_.size()))
    epoch_.notify_all();
  else
    for (int i = 0; i < wanted; ++i) epoch_.notify_one();
  take_tiles(0);
  for (uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; inside != 0;)
    inside = await_change(gate_, inside);
}

void Team::take_tiles(size_t thread) {
  for (size_t i = 0; i < in_use_; ++i) {
    Range& range = ranges_[(thread + i) % in_use_];
    if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
    // One by one, so that `next` is at most `end` + threads.
    int tile = range.next.fetch_add(1, std::memory_order_relaxed);
    while (tile < range.end) {
      fn_(context_, tile);
      tile = range.next.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

bool Team::enter() {
  uint32_t gate = gate_.load(std::memory_order_relaxed);
  while ((gate & kOpen) != 0)
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel,
                                    std::memory_order_relaxed))
      return true;
  return false;
}

void Team::leave() {
  // The last helper that leaves a closed gate. The caller may return, and the next run may begin,
  // before the notification, which then wakes no thread.
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
}

void Team::help(size_t thread) {
  const ComputeScope scope;
  for (uint32_t epoch = 0;;) {
    epoch = await_change(epoch_, epoch);
    if (ending_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    take_tiles(thread);
    leave();
  }
}

Result<std::unique_ptr<WorkerThread>> WorkerThread::make(Loop& loop,
                                                         std::function<void(int64_t job)> run,
                                                         std::function<void(int64_t job)> done,
                                                         int depth, int rank) {
  if (depth < 1) return Status(Code::invalid, cat("depth is ", depth, ", expected 1 or more"));
  std::unique_ptr<WorkerThread> worker(new WorkerThread);
  WorkerThread* w = worker.get();
  w->run_ = std::move(run);
  w->done_ = std::move(done);
  size_t size = 1;  // a power of two, so that the counters may wrap around
  while (size < static_cast<size_t>(depth)) size *= 2;
  w->depth_ = static_cast<uint32_t>(depth);
  w->ring_.resize(size);
  w->signal_ = std::make_unique<Loop::Signal>(loop, [w] { w->deliver(); });
  WEFT_TRY_ASSIGN(w->thread_, Thread::start(cat("weft-r", rank), [w] { w->work(); }));
  return worker;
}

WorkerThread::~WorkerThread() {
  ending_.store(true, std::memory_order_relaxed);
  pushed_.fetch_add(1, std::memory_order_release);  // a change that wakes the worker, without a job
  pushed_.notify_one();
  thread_.reset();
}

uint32_t WorkerThread::given() const {
  return pushed_.load(std::memory_order_relaxed) - delivered_;
}

bool WorkerThread::has_room() const { return given() + (here_ ? 1 : 0) < depth_; }

bool WorkerThread::push(int64_t job, bool is_brief) {
  if (!has_room()) return false;
  if (is_brief && given() == 0 && !here_) {
    here_ = job;
    signal_->raise();
    return true;
  }
  if (here_) hand_over(*std::exchange(here_, std::nullopt));
  hand_over(job);
  return true;
}

void WorkerThread::hand_over(int64_t job) {
  const uint32_t n = pushed_.load(std::memory_order_relaxed);
  ring_[n % ring_.size()] = job;
  pushed_.store(n + 1, std::memory_order_seq_cst);  // seen by others before notify_one() looks
                                                    // whether anybody sleeps
  pushed_.notify_one();
}

void WorkerThread::work() {
  for (uint32_t n = 0;; ++n) {
    // Without spinning: between two jobs is at least a turn of the loop, which may need this core.
    pushed_.wait(n, std::memory_order_acquire);
    if (ending_.load(std::memory_order_relaxed)) return;
    run_(ring_[n % ring_.size()]);
    ran_.store(n + 1, std::memory_order_release);
    signal_->raise();
  }
}

void WorkerThread::deliver() {
  while (delivered_ != ran_.load(std::memory_order_acquire)) {
    const int64_t job = ring_[delivered_ % ring_.size()];
    ++delivered_;  // first, because `done` may push
    done_(job);
  }
  if (!here_) return;
  const int64_t job = *std::exchange(here_, std::nullopt);
  run_(job);
  done_(job);
}

}  // namespace weft
