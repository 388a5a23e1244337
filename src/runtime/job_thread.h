// The thread of one rank: runs its jobs on its worker, beside the loop.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "loop/team.h"
#include "runtime/worker.h"

namespace weft {

class JobThread {
 public:
  using Ran =
      std::function<void(int32_t job, Status status, const JobTime& time)>;  // on the loop thread

  // Loop thread, as push() and the destructor. `worker` outlives it.
  static Result<std::unique_ptr<JobThread>> make(Loop& loop, Worker& worker, Ran ran);
  // Waits for the job under way; those behind it are dropped.
  ~JobThread() = default;

  void push(const StepDescriptor& step, double scale, int32_t job);

 private:
  // An engine gives out two jobs at the most.
  static constexpr int64_t kDepth = 4;
  struct Slot {
    StepDescriptor step;
    double scale = 1;
    int32_t job = 0;
    Status status;
    JobTime time;
  };

  JobThread(Worker& worker, Ran ran) : worker_(worker), ran_(std::move(ran)), slots_(kDepth) {}
  Slot& slot(int64_t n) { return slots_[static_cast<size_t>(n % kDepth)]; }

  Worker& worker_;
  Ran ran_;
  std::vector<Slot> slots_;
  int64_t given_ = 0;
  std::unique_ptr<WorkerThread> thread_;  // last: it ends before the slots do
};

}  // namespace weft
