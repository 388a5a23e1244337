// All ranks in this process, each with its own thread. A loop thread connects them: it owns the
// engines and the controller.
#include "base/text.h"
#include "runtime/job_thread.h"
#include "runtime/local.h"
#include "runtime/loop_run.h"

namespace weft {

namespace {

class ThreadRun final : public LoopRun, private LocalRanks::Driver {
 public:
  ThreadRun(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log)
      : LoopRun(std::move(plan), drop, log) {}

  ~ThreadRun() override {
    end_start();
    detach();  // a step that began later would have no threads
    if (!loop_) return;
    (void)on_loop(loop_->loop(), [this] {
      threads_.clear();  // waits for the running jobs
    });
  }

  Status open(int threads) {
    std::vector<Tiles*> tiles;
    for (int32_t r = 0; r < plan_->config.ranks; ++r) {
      WEFT_TRY_ASSIGN(auto team, Team::make(threads, r));
      tiles.push_back(team.get());
      teams_.push_back(std::move(team));
    }
    WEFT_TRY_ASSIGN(ranks_, LocalRanks::make(plan_, tiles, *this));
    WEFT_TRY_ASSIGN(loop_, LoopThread::make());
    WEFT_TRY(on_loop(loop_->loop(), [this] {
      loop_->loop().on_failure([this](const Status& status) {
        ranks_->fail(status);
        begin_waiting();
      });
      return start_threads();
    }));
    return attach(loop_->loop());
  }

  Worker* worker_here(int32_t rank) override { return &ranks_->worker(rank); }

 private:
  Status start_threads() {
    for (int32_t r = 0; r < plan_->config.ranks; ++r) {
      auto ran = [this, r](const WorkerTask& task, const Status& status, const JobTime& time) {
        ranks_->ran(r, task, status, time);
        begin_waiting();
      };
      WEFT_TRY_ASSIGN(auto thread,
                      JobThread::make(loop_->loop(), ranks_->worker(r), ranks_->most_tasks(r),
                                      plan_->config.ranks, ran));
      threads_.push_back(std::move(thread));
    }
    return {};
  }

  // --- loop thread
  void begin_step(Step& step) override { ranks_->begin(step.descriptor, step.batch); }
  void feed_step(int32_t micro_batches) override { ranks_->feed(micro_batches); }
  void open_step() override { ranks_->open_sinks(); }
  void run(int32_t rank, const WorkerTask& task) override {
    threads_[static_cast<size_t>(rank)]->push(task);
  }
  void micro_batch(int32_t mb) override { micro_batch_over(mb); }
  void over(const StepResult& result) override { step_over(result); }
  void failed(const Status& status) override { run_failed(status); }

  std::vector<std::unique_ptr<Team>> teams_;
  std::unique_ptr<LocalRanks> ranks_;
  std::vector<std::unique_ptr<JobThread>> threads_;
  std::unique_ptr<LoopThread> loop_;
};

}  // namespace

Result<std::unique_ptr<Run>> start_threads(std::shared_ptr<const Plan> plan, int threads,
                                           void (*drop)(void*), const StartOptions& options) {
  auto run = std::make_unique<ThreadRun>(std::move(plan), drop, options.log);
  WEFT_TRY(
      run->begin(options.wait, [opened = run.get(), threads] { return opened->open(threads); }));
  return std::unique_ptr<Run>(std::move(run));
}

}  // namespace weft
