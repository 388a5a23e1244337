// The thread of one rank: runs its tasks on its worker, in parallel with the loop.
#pragma once

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
  // running. `worker` must outlive this object.
  static Result<std::unique_ptr<JobThread>> make(Loop& loop, Worker& worker, size_t depth, Ran ran);
  // Waits for the running task; queued tasks are dropped.
  ~JobThread() = default;

  void push(const WorkerTask& task);

 private:
  struct Slot {
    WorkerTask task;
    Status status;
    JobTime time;
  };

  JobThread(Worker& worker, size_t depth, Ran ran)
      : worker_(worker), ran_(std::move(ran)), slots_(depth) {}
  Slot& slot(int64_t n) { return slots_[static_cast<size_t>(n) % slots_.size()]; }

  Worker& worker_;
  Ran ran_;
  std::vector<Slot> slots_;
  int64_t given_ = 0;
  std::unique_ptr<WorkerThread> thread_;  // last: it must end before the slots are destroyed
};

}  // namespace weft
