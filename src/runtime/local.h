// All ranks of a plan in one process. Their links are memory: the worker copies the messages of a
// job to the other ranks, in the same job if the grant has arrived by then. Otherwise the receiver
// copies in a separate task, before its next job, or the sender if only the receiver is busy. This
// class knows no threads: a driver runs the tasks, on the caller's thread or on others, and reports
// when they are complete.
#pragma once

#include <memory>
#include <vector>

#include "base/fifo.h"
#include "node/effect_router.h"
#include "runtime/batch.h"
#include "runtime/worker.h"

namespace weft {

class LocalRanks {
 public:
  class Driver {
   public:
    virtual ~Driver() = default;
    // Runs worker(rank).run(task) later, in the order of these calls; then calls ran().
    virtual void run(int32_t rank, const WorkerTask& task) = 0;
    virtual void micro_batch(int32_t micro_batch) = 0;  // all its deliveries have arrived
    virtual void over(const StepResult& result) = 0;
    virtual void failed(const Status& status) = 0;  // once; the run stops
  };

  // `tiles`: by rank. They and `driver` must outlive this object.
  static Result<std::unique_ptr<LocalRanks>> make(std::shared_ptr<const Plan> plan,
                                                  const std::vector<Tiles*>& tiles, Driver& driver);
  ~LocalRanks();

  // One thread calls these. `batch` is borrowed until over() or failed(). If memory runs out in
  // them, they call failed().
  void begin(const StepDescriptor& step, const Batch& batch);  // see Controller::begin()
  void feed(int32_t micro_batches);                            // see Run::feed()
  void open_sinks();                                           // see Controller::open_sinks()
  void ran(int32_t rank, const WorkerTask& task, const Status& status, const JobTime& time);
  // Stops the run; reports the first failure to the driver, without allocating.
  void fail(const Status& status);
  // A step is in progress, but no task runs and nothing can happen: an internal error of weft,
  // which is reported to the driver. For drivers that have run every task.
  void check_progress();

  Worker& worker(int32_t rank) { return *workers_[static_cast<size_t>(rank)]; }
  size_t most_tasks(int32_t rank) const;  // how many tasks of that rank may be queued or running

 private:
  struct Rank;
  struct Event {
    enum class Kind : uint8_t { arrived, granted, released, control } kind;
    int32_t rank, from;
    uint64_t sequence = 0;
    int32_t edge = 0, micro_batch = 0;
    Control control = {};
  };

  LocalRanks(std::shared_ptr<const Plan> plan, Driver& driver);
  static size_t most_events(const Plan& plan);
  template <typename F>
  void protect(F&& body) noexcept;
  // That failure of a rank, with the rank's activity at the time.
  Status of_rank(int32_t rank, const Status& status, const Activity& during = {}) const;
  void copied(const WorkerTask& task);
  void drain();
  double loss_of(const Event& event);
  Status handle(const Event& event);
  EffectRouter& router(int32_t rank);

  std::shared_ptr<const Plan> plan_;
  Driver& driver_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> local_;  // the same
  std::vector<std::unique_ptr<Rank>> ranks_;
  Fifo<Event> queue_;  // not handled while a router is on the stack
  bool failed_ = false;
};

}  // namespace weft
