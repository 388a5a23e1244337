// The thread of one rank: runs its tasks on its worker, in parallel with the loop. Jobs that took
// only microseconds before run on the loop thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "loop/team.h"
#include "runtime/worker.h"

namespace weft {

class JobThread {
 public:
  // On the loop thread.
  using Ran = std::function<void(const WorkerTask& task, const Status& status, const JobTime&)>;

  // Called on the loop thread, as push() and the destructor. At most `depth` tasks may be queued or
  // running. `worker` must outlive this object. `ranks`: that have the same loop.
  static Result<std::unique_ptr<JobThread>> make(Loop& loop, Worker& worker, size_t depth,
                                                 int32_t ranks, Ran ran);
  // Waits for the running task; queued tasks are dropped.
  ~JobThread() = default;

  void push(const WorkerTask& task);

 private:
  struct Slot {
    WorkerTask task;
    Status status;
    JobTime time;
  };

  // What is known about a job of the plan. Ops of the caller are not regular.
  struct Known {
    bool is_regular = true;    // what it does depends on the mode and the micro-batch only
    int64_t took = INT64_MAX;  // the last time, in nanoseconds
  };

  JobThread(Worker& worker, size_t depth, int32_t ranks, Ran ran);
  Known& known(const WorkerTask& task) {
    return known_[static_cast<size_t>(task.step.mode)][static_cast<size_t>(task.job)];
  }
  void remember(const Slot& slot);
  Slot& slot(int64_t n) { return slots_[static_cast<size_t>(n) % slots_.size()]; }

  Worker& worker_;
  const int64_t brief_ns_;
  Ran ran_;
  std::vector<Slot> slots_;
  std::array<std::vector<Known>, kModes> known_;
  int64_t given_ = 0;
  std::unique_ptr<WorkerThread> thread_;  // last: it must end before the slots are destroyed
};

}  // namespace weft
