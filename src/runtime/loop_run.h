// A run whose steps are executed on a loop thread: the owner's thread passes steps to it and takes
// events from it. Drivers derive from it.
#pragma once

#include <mutex>

#include "base/fifo.h"
#include "loop/loop.h"
#include "loop/thread.h"
#include "runtime/event_queue.h"
#include "runtime/run.h"
#include "runtime/saver.h"
#include "runtime/waiter.h"

namespace weft {

// Runs body() on the loop thread and waits for its status; for any other thread. It allocates only
// what body() allocates.
template <typename F>
Status on_loop(Loop& loop, F&& body) {
  class OnLoop final : public Loop::Task {
   public:
    explicit OnLoop(F& f) : body_(f) {}
    void run() override { answer_.set(attempt(body_)); }
    Status wait() { return answer_.wait(); }

   private:
    F& body_;
    Waiter answer_;
  };
  OnLoop call(body);
  return loop.post(call) ? call.wait() : Status(Code::state, "the loop has stopped");
}

class LoopRun : public Run {
 public:
  int descriptor() const final { return events_.descriptor(); }
  void hold(bool held) final { events_.hold(held); }

  // Owner's thread. Starts the run with `open`, which calls attach() last: in this call, or on a
  // thread of the run, whose end is an event.
  Status begin(bool wait, std::function<Status()> open);

 protected:
  LoopRun(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log);

  // `loop` already runs, on a thread that must outlive the call of detach(). Fails if the run has
  // failed; a later failure is an event.
  Status attach(Loop& loop);
  // Owner's thread, first in a driver's destructor: waits until open() has returned.
  void end_start() { starter_.reset(); }
  // Owner's thread, then: after it no submitted step begins, so the driver may destroy what steps
  // use.
  void detach();

  // Any thread. An event of the mesh, see EventQueue::replace().
  void replace_event(RunEvent event) { events_.replace(std::move(event)); }

  // --- loop thread, for the driver
  // Starts a step. Its end is reported by step_over() or run_failed(), in this call or later.
  virtual void begin_step(Step& step) = 0;
  virtual void feed_step(int32_t micro_batches) = 0;  // the step in progress, see Run::feed()
  virtual void open_step() = 0;  // the oldest in progress, see Controller::open_sinks()
  void micro_batch_over(int32_t micro_batch);
  void step_over(const StepResult& result);
  void run_failed(const Status& status);  // the first call counts: all other steps fail
  void begin_waiting();                   // call it after anything that may have ended a step
  void begin_soon();                      // the same, if the driver cannot begin a step now

 private:
  void start(Step* step) final;
  void feed(int32_t micro_batches) final;
  bool next_event(RunEvent& event, int64_t timeout_ns) final {
    return events_.pop(event, timeout_ns);
  }
  void proceed() final;
  void take_steps();
  void take_submitted();
  void follow_save();
  bool may_begin(const Step& next) const;
  bool may_overlap(const Step& next) const;

  EventQueue events_;
  std::unique_ptr<Thread> starter_;
  std::mutex mutex_;  // submitted_, proceed_, fed_
  Fifo<Step*> submitted_;
  bool proceed_ = false;
  int32_t fed_ = 0;  // 0: feed() was not called since the loop saw it

  Fifo<Step*> waiting_;           // loop thread, as all members below
  Fifo<Step*> running_;           // several steps that overlap, otherwise one step or save
  Mode last_mode_ = Mode::train;  // of the last step that began
  bool being_read_ = false;       // the outputs of a step are being read
  bool announces_ = false;        // the start is an event
  bool detached_ = false;         // no step begins any more
  Saver saver_;
  Status failure_;
  std::unique_ptr<Loop::Signal> wake_;
  Loop* loop_ = nullptr;
};

// A loop and the thread that it runs on. Destroying it stops the loop after what was posted.
class LoopThread {
 public:
  static Result<std::unique_ptr<LoopThread>> make();
  ~LoopThread();
  Loop& loop() { return *loop_; }

 private:
  LoopThread() = default;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace weft
