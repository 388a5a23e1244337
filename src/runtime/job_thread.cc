#include "runtime/job_thread.h"

namespace weft {

Result<std::unique_ptr<JobThread>> JobThread::make(Loop& loop, Worker& worker, Ran ran) {
  std::unique_ptr<JobThread> out(new JobThread(worker, std::move(ran)));
  JobThread* self = out.get();
  auto run = [self](int64_t n) {
    Slot& slot = self->slot(n);
    slot.status = attempt([&] { return self->worker_.run(slot.step, slot.scale, slot.job); });
    slot.time = self->worker_.last_time();
  };
  auto done = [self](int64_t n) {
    self->ran_(self->slot(n).job, std::move(self->slot(n).status), self->slot(n).time);
  };
  WEFT_TRY_ASSIGN(out->thread_,
                  WorkerThread::make(loop, run, done, kDepth, {.rank = worker.rank()}));
  return out;
}

void JobThread::push(const StepDescriptor& step, double scale, int32_t job) {
  slot(given_) = {step, scale, job, {}, {}};
  if (!thread_->push(given_++))
    ran_(job, Status(Code::internal, "more jobs are under way than an engine gives out"), {});
}

}  // namespace weft
