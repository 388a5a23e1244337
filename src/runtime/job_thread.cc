#include "runtime/job_thread.h"

#include <algorithm>

namespace weft {

namespace {

// Of a brief job: less than the wake-ups of two threads, and little for those who wait for the
// loop. One of each rank that shares the loop run one after another: not much more than these
// wake-ups.
constexpr int64_t kBriefNs = 10'000, kBriefTogetherNs = 40'000;

bool calls_user_op(const Model& model, const RankProgram& program, const Job& job) {
  if (job.kind != JobKind::action) return false;
  const std::vector<ProgramCall>& calls = program.programs[static_cast<size_t>(job.program)].calls;
  return std::any_of(calls.begin(), calls.end(), [&model](const ProgramCall& call) {
    return !folds(call.kind) && model.node(call.node).op->of_caller();
  });
}

}  // namespace

JobThread::JobThread(Worker& worker, size_t depth, int32_t ranks, Ran ran)
    : worker_(worker),
      brief_ns_(std::min(kBriefNs, kBriefTogetherNs / ranks)),
      ran_(std::move(ran)),
      slots_(depth) {
  const Plan& plan = worker.plan();
  for (const ModePlan& mode : plan.modes) {
    if (!mode.present) continue;
    const RankProgram& program = mode.ranks[static_cast<size_t>(worker.rank())];
    for (const Job& job : program.jobs)
      known_[static_cast<size_t>(mode.mode)].push_back(
          {.is_regular = job.kind == JobKind::action ? !calls_user_op(*plan.model, program, job)
                                                     : !plan.asynchronous()});
  }
}

Result<std::unique_ptr<JobThread>> JobThread::make(Loop& loop, Worker& worker, size_t depth,
                                                   int32_t ranks, Ran ran) {
  std::unique_ptr<JobThread> out(new JobThread(worker, depth, ranks, std::move(ran)));
  JobThread* self = out.get();
  auto run = [self](int64_t n) {
    Slot& slot = self->slot(n);
    slot.status = attempt([&] { return self->worker_.run(slot.task); });
    slot.time = self->worker_.last_time();
  };
  auto done = [self](int64_t n) {
    const Slot slot = std::move(self->slot(n));  // a new task may reuse the slot
    self->remember(slot);
    self->ran_(slot.task, slot.status, slot.time);
  };
  WEFT_TRY_ASSIGN(out->thread_,
                  WorkerThread::make(loop, run, done, static_cast<int>(depth), worker.rank()));
  return out;
}

void JobThread::remember(const Slot& slot) {
  const WorkerTask& task = slot.task;
  if (task.job < 0 || !known(task).is_regular) return;
  const RankProgram& program =
      worker_.plan().mode(task.step.mode).ranks[static_cast<size_t>(worker_.rank())];
  const Job& job = program.jobs[static_cast<size_t>(task.job)];
  // An action of a micro-batch that the step does not have only clears.
  if (job.kind == JobKind::action && job.micro_batch >= task.step.micro_batches) return;
  known(task).took = slot.time.end - slot.time.begin;
}

void JobThread::push(const WorkerTask& task) {
  if (!thread_->has_room())  // its slot is that of another task
    return ran_(task, Status(Code::internal, "a rank has more tasks than its queue can contain"),
                {});
  slot(given_) = {task, {}, {}};
  const bool is_brief = task.job >= 0 && known(task).took < brief_ns_;
  (void)thread_->push(given_++, is_brief);
}

}  // namespace weft
