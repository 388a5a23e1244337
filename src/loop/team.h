// Compute threads. A Team runs the tiles of a kernel on several threads; a WorkerThread runs a
// rank's jobs one after another, beside the loop. After they are made neither allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "kernels/tiles.h"
#include "loop/loop.h"
#include "loop/thread.h"

namespace weft {

// The calling thread and threads - 1 helpers share the tiles. Each begins with its own range of
// them, so that successive kernels find rows in the cache of the core that wrote them, and then
// helps the others. One run at a time. Helpers spin for a fraction of a millisecond until the next
// run, then sleep. They have a ComputeScope; the caller has its own.
class Team final : public Tiles {
 public:
  // `rank` is for the names of helpers: "weft-r<rank>.<n>".
  static Result<std::unique_ptr<Team>> make(int threads, int rank = 0);
  ~Team() override;  // no run may be in progress
  void run(int count, Fn fn, void* context) override;
  int threads() const override { return static_cast<int>(helpers_.size()) + 1; }

 private:
  Team() = default;
  // The tiles of a run that a thread takes first.
  struct alignas(64) Range {
    std::atomic<int> next = 0;
    int end = 0;
  };

  void help(size_t thread);
  void take_tiles(size_t thread);
  bool enter();
  void leave();

  // The current run: the caller writes it while the gate is closed and no helper is inside.
  Fn fn_ = nullptr;
  void* context_ = nullptr;
  std::vector<Range> ranges_;  // one per thread; that of the caller is the first
  size_t in_use_ = 0;
  // Helpers enter only while the gate is open, and the caller leaves only when it is closed and
  // empty: a late helper never reads a partly written run. kOpen, plus the number inside.
  alignas(64) std::atomic<uint32_t> gate_ = 0;
  // Counts runs; helpers sleep on it. The last one ends them.
  alignas(64) std::atomic<uint32_t> epoch_ = 0;
  std::atomic<bool> ending_ = false;
  std::vector<std::unique_ptr<Thread>> helpers_;
};

// One thread that runs jobs in the order of push(), and reports each to the loop. push(), `done`
// and the destructor belong to the loop thread (the latter two also before and after it runs). A
// brief job that need not wait for others runs on the loop thread, after the callback
// that pushed it: to wake a thread, and then the loop again, would take longer.
class WorkerThread {
 public:
  // `run` on the worker thread, or on the loop thread while the worker sleeps; `done` on the loop
  // thread in the same order. At most `depth` jobs can be between push and done. The name of the
  // thread is "weft-r<rank>".
  static Result<std::unique_ptr<WorkerThread>> make(Loop& loop,
                                                    std::function<void(int64_t job)> run,
                                                    std::function<void(int64_t job)> done,
                                                    int depth = 64, int rank = 0);
  // Waits for the current job; later ones are dropped, and `done` is not called any more.
  ~WorkerThread();
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Whether fewer than `depth` jobs are in progress.
  bool has_room() const;
  // False if there is no room.
  [[nodiscard]] bool push(int64_t job, bool is_brief = false);

 private:
  WorkerThread() = default;
  void work();
  uint32_t given() const;  // to the worker thread, and not reported
  void hand_over(int64_t job);
  void deliver();

  std::function<void(int64_t)> run_, done_;
  std::vector<int64_t> ring_;  // job number n is at n mod size, from push until done
  uint32_t depth_ = 0;
  std::optional<int64_t> here_;                   // loop thread: to run on it, all others are done
  uint32_t delivered_ = 0;                        // loop thread
  alignas(64) std::atomic<uint32_t> pushed_ = 0;  // the worker sleeps on it
  alignas(64) std::atomic<uint32_t> ran_ = 0;
  std::atomic<bool> ending_ = false;
  std::unique_ptr<Loop::Signal> signal_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace weft
