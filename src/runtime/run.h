// A run: the execution of a plan, with a queue of steps and a queue of events. There is one
// interface; drivers differ in the threads and processes that compute.
//
// The owner's thread acquires a step, fills it, submits it, and polls events; after its final event
// the step belongs to the owner again. Steps and events are kept in rings of fixed size, so a run
// does not allocate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/controller.h"
#include "engine/trace.h"
#include "runtime/batch.h"
#include "runtime/events.h"
#include "runtime/input_checks.h"
#include "runtime/log.h"
#include "runtime/save.h"
#include "tensor/shape.h"

namespace weft {

// An entry of the queue of a run: a step, or a save between two steps.
struct Step {
  // Set by the owner.
  std::unique_ptr<SaveRequest> save;  // null: a step
  Mode mode = Mode::train;
  bool update = true;
  uint64_t tag = 0;
  Batch batch;
  int32_t fed = 0;  // micro-batches whose inputs exist at first, see feed(); 0: all
  std::vector<void*>
      kept;  // keeps the memory of the batch valid; passed to `drop` after the final event
  // Set by submit().
  StepDescriptor descriptor;
  std::vector<double> counts;        // per micro-batch: the divisor of its own mean loss
  std::vector<double> sums;          // of a segment, per update: the same
  std::vector<double> idle_by_rank;  // after its end, see StepResult
};

class Requests;
class Worker;
namespace rpc {
struct Request;
}

// The tensor that a name denotes in read and write.
enum class Part : uint8_t { value, grad, state0, state1 };

// How a run starts.
struct StartOptions {
  bool wait = true;  // until it has started; otherwise an event reports it
  LogSink log = {};
};

class Run : public EventSource {
 public:
  static constexpr size_t kQueue = 16;  // steps and saves that are queued or in progress, at most
  static_assert(kQueue <= kStepsAtOnce);

  // `drop` is called for each kept object, on the owner's thread.
  Run(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log);
  ~Run() override;

  const Plan& plan() const { return *plan_; }

  Step* acquire();             // null: kQueue of them are in use
  static Status full();        // the status if acquire() returned null
  void give_back(Step* step);  // acquired, but not submitted
  // On success there will be exactly one final event; on failure the step is given back.
  Status submit(Step* step);
  // Of the forward step in progress, which began with the inputs of Step::fed micro-batches: those
  // of so many exist now. After an event of the step.
  virtual void feed(int32_t micro_batches) = 0;
  // Saves after the submitted steps. On success there will be exactly one final event.
  Status submit_save(SaveRequest request, uint64_t tag);
  // The same, but only between steps; waits for the end.
  Status save(SaveRequest request);
  // Waits only while the start, a step or a save is in progress.
  bool poll(RunEvent& event, int64_t timeout_ns) override;
  // Makes the descriptor readable, also without an event: the owner has work before its next poll.
  virtual void hold(bool held) = 0;
  bool idle() const { return free_.size() == steps_.size(); }  // every final event has been polled
  // Ok if the run has started and has not failed. After a failed step it is an error for the rest
  // of the run: the ranks may be in the states of different steps.
  Status ready() const;
  Status settled() const;  // the same, and ok only between steps
  Log& log() { return log_; }

  // The ranks have no threads: everything is computed by the calls of the owner.
  virtual bool is_inline() const { return false; }
  // The memory of a rank of this process, between steps; null if the rank is in another process.
  virtual Worker* worker_here(int32_t rank) = 0;
  // The requests to ranks of other processes; null if there are no such ranks.
  virtual Requests* requests() { return nullptr; }

  // Only between steps; for parameters of any rank (run_ranks.cc). The caller checks sizes.
  Status read(ParamId param, Part part, std::span<float> out);
  Status write(ParamId param, Part part, std::span<const float> in);
  // Every rank records the spans of its next `jobs` jobs; 0: none. spans(): those recorded so far.
  Status trace(size_t jobs);
  Status spans(int32_t rank, std::vector<TraceSpan>& out);
  Status save_trace(const std::string& path);  // as a Chrome trace
  // Bytes of that rank's tensors that are in physical memory.
  Result<int64_t> resident_bytes(int32_t rank);
  // XXH3-128 over all parameters by name, as weft_run_digest(3) describes.
  Result<Digest> digest();
  // The same over the optimizer state: per parameter in the order of names, per slot, the tensor
  // named PARAMETER.SLOT.
  Result<Digest> optimizer_digest();
  // A delivery at rank 0 of a micro-batch whose event was polled last.
  View delivered(const RunEvent& micro_batch, int32_t edge) {
    return landed(*micro_batch.of, edge, micro_batch.micro_batch);
  }
  // Whether a step computes the gradient of the model input.
  Status check_input_grad(NodeId input) const;
  // That gradient, for all samples of the last training step.
  Status read_input_grad(NodeId input, std::span<float> out);

  // The learning rate of steps submitted from now on; negative: that of the plan.
  void set_rate(double rate) { rate_ = rate; }
  uint64_t trained() const { return trained_; }
  void set_trained(uint64_t steps) { trained_ = steps; }  // a resumed run
  // The checkpoint that this run has written last; for one save at a time.
  const std::string& last_saved() const { return last_saved_; }
  // The same if its values of frozen parameters are those of the run; otherwise empty.
  const std::string& frozen_saved() const { return frozen_saved_; }
  void set_last_saved(const std::string& path) { last_saved_ = frozen_saved_ = path; }
  // Values are written from outside.
  void forget_frozen_saved() { frozen_saved_.clear(); }

 protected:
  // The run has started without an event: its start was awaited.
  void set_started() { start_ = Start::done; }
  RunEvent started_event() const;
  // The run has failed, and no step or save was in progress.
  static RunEvent failed_event(const Status& status);
  // Begins the next step. After a step that delivers outputs, no later step replaces them before
  // proceed(), because the owner reads them.
  virtual void start(Step* step) = 0;
  virtual bool next_event(RunEvent& event, int64_t timeout_ns) = 0;
  virtual void proceed() = 0;

  RunEvent micro_batch_event(const Step& step, int32_t micro_batch);
  static RunEvent update_event(const Step& step, const StepResult& result,
                               size_t update);  // of a segment, before its final event
  static RunEvent final_event(Step* step, const StepResult& result);
  // Maximal number of events that are not polled yet: those of the steps, one per rank that joined
  // or left, refused, started, and failed.
  static size_t most_events(const Plan& plan) {
    const auto of_step = static_cast<size_t>(plan.most_micro_batches() + plan.config.segment + 1);
    return kQueue * of_step + static_cast<size_t>(plan.config.ranks) + 3;
  }
  // The final event of an entry that the run has not carried out.
  static RunEvent error_event(Step* step, const Status& status);
  // The final event of a save.
  static RunEvent saved_event(Step* step, const Status& status);

  std::shared_ptr<const Plan> plan_;

 private:
  Status describe(Step& step);
  View landed(const Step& step, int32_t edge, int32_t micro_batch);
  Status ask(int32_t rank, uint32_t type, const rpc::Request& request, std::vector<std::byte>& out);

  InputChecks checks_;
  void (*drop_)(void*);
  Log log_;
  enum class Start : uint8_t { pending, done, failed } start_ = Start::pending;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Step*> free_;
  StepDescriptor last_;
  double rate_ = -1;
  uint64_t trained_ = 0;
  std::string last_saved_, frozen_saved_;
  size_t traced_ = 0;  // maximal number of recorded jobs per rank
  Status failure_;     // the first failure of the run that was polled
};

// All ranks in this process on the caller's thread: steps run in poll().
Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan, void (*drop)(void*),
                                          const StartOptions& options = {});
// All ranks in this process. Each has a thread that runs its jobs and threads - 1 that help with
// tiles. One loop thread connects them.
Result<std::unique_ptr<Run>> start_threads(std::shared_ptr<const Plan> plan, int threads,
                                           void (*drop)(void*), const StartOptions& options = {});

}  // namespace weft
