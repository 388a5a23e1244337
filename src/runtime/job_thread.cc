#include "runtime/job_thread.h"

namespace weft {

Result<std::unique_ptr<JobThread>> JobThread::make(Loop& loop, Worker& worker, size_t depth,
                                                   Ran ran) {
  std::unique_ptr<JobThread> out(new JobThread(worker, depth, std::move(ran)));
  JobThread* self = out.get();
  auto run = [self](int64_t n) {
    Slot& slot = self->slot(n);
    slot.status = attempt([&] { return self->worker_.run(slot.task); });
    slot.time = self->worker_.last_time();
  };
  auto done = [self](int64_t n) {
    const Slot slot = std::move(self->slot(n));  // a new task may reuse the slot
    self->ran_(slot.task, slot.status, slot.time);
  };
  WEFT_TRY_ASSIGN(out->thread_, WorkerThread::make(loop, run, done, static_cast<int>(depth),
                                                   {.rank = worker.rank()}));
  return out;
}

void JobThread::push(const WorkerTask& task) {
  slot(given_) = {task, {}, {}};
  if (!thread_->push(given_++))
    ran_(task, Status(Code::internal, "a rank has more tasks than its queue can contain"), {});
}

}  // namespace weft
