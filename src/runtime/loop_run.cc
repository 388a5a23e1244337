#include "runtime/loop_run.h"

#include "kernels/fpenv.h"

namespace weft {

LoopRun::LoopRun(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log)
    : Run(std::move(plan), drop, log),
      events_(most_events(*plan_)),
      submitted_(kQueue),
      waiting_(kQueue),
      running_(kQueue),
      saver_(*this, [this] { wake_->raise(); }) {}

Status LoopRun::begin(bool wait, std::function<Status()> open) {
  if (wait) {
    WEFT_TRY(open());
    events_.drop_replaceable();
    set_started();
    return {};
  }
  announces_ = true;
  WEFT_TRY_ASSIGN(starter_, Thread::start("weft-start", [this, begin = std::move(open)] {
                    const ComputeScope scope;
                    const Status status = attempt(begin);
                    if (!status.ok()) events_.push(failed_event(status));
                  }));
  return {};
}

Status LoopRun::attach(Loop& loop) {
  loop_ = &loop;
  return on_loop(loop, [this] {
    if (!failure_.ok()) return failure_;
    wake_ = std::make_unique<Loop::Signal>(*loop_, [this] { take_submitted(); });
    if (announces_) events_.push(started_event());  // here, before the event of a failure
    return Status();
  });
}

void LoopRun::detach() {
  if (!loop_) return;
  (void)on_loop(*loop_, [this] {
    detached_ = true;
    saver_.stop();
  });
  saver_.join();  // not on the loop, which delivers the answers of the ranks to it
  (void)on_loop(*loop_, [this] { wake_.reset(); });
  loop_ = nullptr;
}

void LoopRun::start(Step* step) {
  {
    const std::lock_guard lock(mutex_);
    submitted_.push(step);
  }
  wake_->raise();
}

void LoopRun::feed(int32_t micro_batches) {
  {
    const std::lock_guard lock(mutex_);
    fed_ = micro_batches;
  }
  wake_->raise();
}

void LoopRun::proceed() {
  {
    const std::lock_guard lock(mutex_);
    proceed_ = true;
  }
  wake_->raise();
}

void LoopRun::take_steps() {
  const std::lock_guard lock(mutex_);
  while (!submitted_.empty()) waiting_.push(submitted_.pop());
}

void LoopRun::take_submitted() {
  int32_t fed = 0;
  take_steps();
  {
    const std::lock_guard lock(mutex_);
    if (proceed_) being_read_ = proceed_ = false;
    fed = std::exchange(fed_, 0);
  }
  if (fed > 0 && !running_.empty()) feed_step(fed);
  follow_save();
  begin_waiting();
}

void LoopRun::follow_save() {
  if (!running_.empty() && running_.front() == saver_.step() && saver_.has_left()) running_.pop();
  Status status;
  if (Step* saved = saver_.take_done(status)) events_.push(saved_event(saved, status));
}

void LoopRun::begin_waiting() {
  if (detached_) return;
  // Deliveries replace those of the step before, which has ended, and which the owner has read.
  if (failure_.ok() && !being_read_ && !running_.empty() && running_.front()->descriptor.overlaps)
    open_step();
  while (!waiting_.empty() && may_begin(*waiting_.front())) {
    Step* const step = waiting_.pop();
    if (!failure_.ok()) {
      events_.push(error_event(step, failure_));
      continue;
    }
    step->descriptor.overlaps = !running_.empty() || being_read_;
    running_.push(step);
    last_mode_ = step->mode;
    if (step->save)
      saver_.begin(*step);
    else
      begin_step(*step);
  }
}

bool LoopRun::may_begin(const Step& next) const {
  if (running_.empty() && !being_read_)
    return !failure_.ok() || !next.save || !saver_.step();  // one save at a time
  return failure_.ok() && may_overlap(next);
}

// The ranks that have finished a step begin the next one if it uses memory as that step does. Its
// deliveries wait until those of the step before it have been read.
bool LoopRun::may_overlap(const Step& next) const {
  const auto whole = [](const Step& step) { return !step.save && step.fed == 0; };
  return whole(next) && next.mode == last_mode_ && plan_->config.can_overlap(last_mode_) &&
         (running_.empty() || whole(*running_.front()));
}

// A run that fails before it is attached has no steps.
void LoopRun::begin_soon() {
  if (wake_) wake_->raise();
}

void LoopRun::micro_batch_over(int32_t micro_batch) {
  events_.push(micro_batch_event(*running_.front(), micro_batch));
}

void LoopRun::step_over(const StepResult& result) {
  Step* const step = running_.pop();
  being_read_ = plan_->config.delivers_outputs(step->mode);
  for (size_t u = 0; u < result.updates.size(); ++u) events_.push(update_event(*step, result, u));
  events_.push(final_event(step, result));
}

void LoopRun::run_failed(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  being_read_ = false;
  take_steps();  // those that were submitted before have the failure as their event
  // The failure of the start is what open() returns, and steps and saves have their own events.
  if (wake_ && running_.empty() && waiting_.empty() && !saver_.step())
    events_.push(failed_event(status));
  while (!running_.empty())
    if (Step* const step = running_.pop(); step != saver_.step())  // a save ends by itself
      events_.push(error_event(step, status));
}

Result<std::unique_ptr<LoopThread>> LoopThread::make() {
  std::unique_ptr<LoopThread> out(new LoopThread);
  WEFT_TRY_ASSIGN(out->loop_, Loop::make());
  Loop* loop = out->loop_.get();
  WEFT_TRY_ASSIGN(out->thread_, Thread::start("weft-loop", [loop] {
                    const ComputeScope scope;  // norms and losses are summed here; the mode is
                                               // inherited from who made the thread
                    loop->run();
                  }));
  return out;
}

LoopThread::~LoopThread() {
  if (thread_) loop_->stop();
  thread_.reset();
}

}  // namespace weft
