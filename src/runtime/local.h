// All ranks of a plan in one process: engines, controller and workers, joined without sockets. A
// message is a copy from place to place. Nothing here knows threads: a driver runs the jobs, on the
// caller's thread or on others, and says when they ran.
#pragma once

#include <memory>
#include <vector>

#include "engine/controller.h"
#include "engine/engine.h"
#include "runtime/batch.h"
#include "runtime/worker.h"

namespace weft {

class LocalRanks {
 public:
  class Driver {
   public:
    virtual ~Driver() = default;
    // Runs worker(rank).run(step, scale, job), now or later; answers with ran(), from inside this
    // call or after it.
    virtual void run(int32_t rank, const StepDescriptor& step, double scale, int32_t job) = 0;
    virtual void micro_batch(int32_t micro_batch) = 0;  // all its deliveries have arrived
    virtual void over(const StepResult& result) = 0;
    virtual void failed(
        const Status& status,
        int32_t rank) = 0;  // once; nothing goes on. The rank that failed, -1: none in particular
  };

  // `tiles`: per rank; outlive this object, as does `driver`.
  static Result<std::unique_ptr<LocalRanks>> make(std::shared_ptr<const Plan> plan,
                                                  const std::vector<Tiles*>& tiles, Driver& driver);
  ~LocalRanks();

  // One thread calls these, one step at a time. `batch` is borrowed until over() or failed(). Where
  // memory runs out in them, failed() says so.
  void begin(const StepDescriptor& step, const Batch& batch);
  void ran(int32_t rank, int32_t job, Status status, const JobTime& time);
  // Nothing goes on; the first failure is told to the driver, without memory.
  void fail(const Status& status, int32_t rank = -1);
  // A step runs, no job does and nothing can happen: a fault of weft, told to the driver. For
  // drivers that run jobs at once.
  void check_progress();

  // A delivery of the last step; valid until the next one begins.
  View delivered(int32_t edge, int32_t micro_batch);
  Worker& worker(int32_t rank) { return *workers_[static_cast<size_t>(rank)]; }
  const StepDescriptor& step() const { return step_; }

 private:
  struct Event {
    enum class Kind : uint8_t { run, ran, arrived, granted, released, control } kind;
    int32_t rank;  // where it happens; kController: the controller
    int32_t edge_or_job = 0, micro_batch = 0;
    int32_t from = 0;
    Control control;
    JobTime time = {};
  };
  class RankEffects;
  class MainEffects;

  LocalRanks(std::shared_ptr<const Plan> plan, Driver& driver);
  void push(const Event& event) { queue_.push_back(event); }
  template <typename F>
  void protect(F&& body) noexcept;
  void drain();
  Status handle(const Event& event);
  void land(int32_t edge, int32_t micro_batch, std::span<const std::byte> bytes);

  std::shared_ptr<const Plan> plan_;
  Driver& driver_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<RankEffects>> effects_;
  std::unique_ptr<MainEffects> main_;
  Controller controller_;
  std::vector<Event> queue_;  // handled in order, never from inside an engine; keeps its memory
  size_t head_ = 0;
  bool draining_ = false, failed_ = false;
  StepDescriptor step_;
  const Batch* batch_ = nullptr;
};

}  // namespace weft
