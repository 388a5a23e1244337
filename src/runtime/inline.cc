// The inline driver: everything runs inside poll() on the caller's thread, one event at a time in a
// fixed order. For tiny embeddings, debuggers and deterministic tests.
#include "base/fifo.h"
#include "runtime/clock.h"
#include "runtime/event_queue.h"
#include "runtime/local.h"
#include "runtime/run.h"

namespace weft {

namespace {

class InlineRun final : public Run, private LocalRanks::Driver {
 public:
  InlineRun(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log)
      : Run(std::move(plan), drop, log), waiting_(kQueue), events_(most_events(*plan_)) {}

  Status open(bool wait) {
    const std::vector<Tiles*> tiles(static_cast<size_t>(plan_->config.ranks), &tiles_);
    WEFT_TRY_ASSIGN(ranks_, LocalRanks::make(plan_, tiles, *this));
    size_t most = 0;
    for (int32_t r = 0; r < plan_->config.ranks; ++r) most += ranks_->most_tasks(r);
    tasks_ = Fifo<std::pair<int32_t, WorkerTask>>(most);
    if (wait) {
      set_started();
    } else {
      events_.push(started_event());
      flag_.set(true);
    }
    return {};
  }

  bool is_inline() const override { return true; }
  Worker* worker_here(int32_t rank) override { return &ranks_->worker(rank); }
  int descriptor() const override { return flag_.descriptor(); }
  void hold(bool held) override { flag_.hold(held); }

 private:
  void start(Step* step) override {
    waiting_.push(step);
    flag_.set(true);
  }
  void feed(int32_t micro_batches) override {
    ranks_->feed(micro_batches);
    flag_.set(true);
  }
  void proceed() override {}

  // Works until there is an event or the time has passed. The time is checked after each job.
  bool next_event(RunEvent& event, int64_t timeout_ns) override {
    const int64_t begin = monotonic_ns();
    const auto in_time = [&] { return timeout_ns < 0 || monotonic_ns() - begin < timeout_ns; };
    while (events_.empty() && work() && in_time()) continue;
    if (events_.empty()) return false;
    event = events_.pop();
    flag_.set(!events_.empty() || !waiting_.empty() || has_job());
    return true;
  }

  bool has_job() const { return !tasks_.empty() && failure_.ok(); }

  // One job, a whole save, or the beginning of a step. False: there is nothing to do.
  bool work() {
    if (has_job()) {
      run_job();
      return true;
    }
    if (waiting_.empty()) return false;
    current_ = waiting_.pop();
    if (!failure_.ok()) {
      events_.push(error_event(current_, failure_));
    } else if (current_->save) {
      events_.push(saved_event(current_, carry_out(*current_->save)));
    } else {
      ranks_->begin(current_->descriptor, current_->batch);
      if (!has_job()) ranks_->check_progress();
    }
    return true;
  }

  void run_job() {
    const std::pair<int32_t, WorkerTask> next = tasks_.pop();
    Worker& worker = ranks_->worker(next.first);
    const Status status = attempt([&] { return worker.run(next.second); });
    ranks_->ran(next.first, next.second, status, worker.last_time());
    if (!has_job()) ranks_->check_progress();
  }

  Status carry_out(SaveRequest& request) {
    const std::atomic<bool> stop = false;
    return attempt([&] { return save_run(*this, request, {}, stop); });
  }

  void run(int32_t rank, const WorkerTask& task) override { tasks_.push({rank, task}); }
  void micro_batch(int32_t mb) override { events_.push(micro_batch_event(*current_, mb)); }
  void over(const StepResult& result) override {
    for (size_t u = 0; u < result.updates.size(); ++u)
      events_.push(update_event(*current_, result, u));
    events_.push(final_event(current_, result));
  }
  void failed(const Status& status) override {
    failure_ = status;
    events_.push(error_event(current_, status));
  }

  SerialTiles tiles_;
  std::unique_ptr<LocalRanks> ranks_;
  Fifo<std::pair<int32_t, WorkerTask>> tasks_;  // rank, task
  Fifo<Step*> waiting_;
  Fifo<RunEvent> events_;
  Flag flag_;
  Step* current_ = nullptr;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan, void (*drop)(void*),
                                          const StartOptions& options) {
  auto run = std::make_unique<InlineRun>(std::move(plan), drop, options.log);
  WEFT_TRY(run->open(options.wait));
  return std::unique_ptr<Run>(std::move(run));
}

}  // namespace weft
