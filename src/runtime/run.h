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
  std::vector<void*>
      kept;  // keeps the memory of the batch valid; passed to `drop` after the final event
  // Set by submit().
  StepDescriptor descriptor;
  std::vector<double> counts;        // per micro-batch: the divisor of its own mean loss
  std::vector<double> sums;          // of a segment, per update: the same
  std::vector<double> idle_by_rank;  // after its end, see StepResult
};

struct RunEvent {
  enum class Kind : uint8_t { micro_batch = 1, done = 2, error = 3, update = 4, saved = 5 };
  Kind kind = Kind::done;
  Step* step = nullptr;  // final events: valid until the next acquire()
  uint64_t tag = 0;
  // Training steps before this one; update: plus the updates of the segment before it; saved: in
  // the checkpoint.
  uint64_t number = 0;
  Mode mode = Mode::train;
  int32_t micro_batch = 0;
  double loss = 0;  // mean over the counted elements: of the micro-batch, the update, or the step
  double grad_norm = 0;
  double idle = 0;  // final: mean over the ranks; per rank in the step
  Status status;
};

class Requests;
class Worker;
namespace rpc {
struct Request;
}

// The tensor that a name denotes in read and write.
enum class Part : uint8_t { value, grad, state0, state1 };

class Run {
 public:
  static constexpr size_t kQueue = 16;  // steps and saves that are queued or in progress, at most

  // `drop` is called for each kept object, on the owner's thread.
  Run(std::shared_ptr<const Plan> plan, void (*drop)(void*));
  virtual ~Run();

  const Plan& plan() const { return *plan_; }

  Step* acquire();             // null: kQueue of them are in use
  static Status full();        // the status if acquire() returned null
  void give_back(Step* step);  // acquired, but not submitted
  // On success there will be exactly one final event; on failure the step is given back.
  Status submit(Step* step);
  // Saves after the submitted steps. On success there will be exactly one final event.
  Status submit_save(SaveRequest request, uint64_t tag);
  // The same, but only between steps; waits for the end.
  Status save(SaveRequest request);
  // The next event, if one arrives within the time (nanoseconds; negative: no limit). Returns false
  // at once if no step and no save is queued or in progress.
  bool poll(RunEvent& event, int64_t timeout_ns);
  // Readable if poll() has something to do; level-triggered, the caller must not read from it. -1:
  // the process had no free descriptor.
  virtual int descriptor() const = 0;
  bool idle() const { return free_.size() == steps_.size(); }  // every final event has been polled
  // Ok between steps. After a failed step an error for the rest of the run: the ranks may be in the
  // states of different steps.
  Status settled() const;

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
  // A delivery at rank 0 of the step of the last polled event.
  virtual View delivered(int32_t edge, int32_t micro_batch) = 0;
  // The gradient of a model input for all samples of the last training step.
  Status read_input_grad(NodeId input, std::span<float> out);

  uint64_t trained() const { return trained_; }
  void set_trained(uint64_t steps) { trained_ = steps; }  // a resumed run

 protected:
  // Begins the next step. After a step of mode infer, no step begins before proceed(), because the
  // owner reads its deliveries.
  virtual void start(Step* step) = 0;
  virtual bool next_event(RunEvent& event, int64_t timeout_ns) = 0;
  virtual void proceed() = 0;

  RunEvent micro_batch_event(const Step& step, int32_t micro_batch);
  static RunEvent update_event(const Step& step, const StepResult& result,
                               size_t update);  // of a segment, before its final event
  static RunEvent final_event(Step* step, const StepResult& result);
  // Maximal number of events of one step.
  static size_t most_events(const Plan& plan) {
    return static_cast<size_t>(plan.most_micro_batches() + plan.config.segment + 1);
  }
  // The final event of an entry that the run has not carried out.
  static RunEvent error_event(Step* step, const Status& status);
  // The final event of a save.
  static RunEvent saved_event(Step* step, const Status& status);

  std::shared_ptr<const Plan> plan_;

 private:
  Status describe(Step& step);
  Status ask(int32_t rank, uint32_t type, const rpc::Request& request, std::vector<std::byte>& out);

  void (*drop_)(void*);
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Step*> free_;
  StepDescriptor last_;
  uint64_t trained_ = 0;
  size_t traced_ = 0;  // maximal number of recorded jobs per rank
  Status failure_;     // of the first step that failed, once it was polled
};

// All ranks in this process on the caller's thread: steps run in poll().
Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan, void (*drop)(void*));
// All ranks in this process. Each has a thread that runs its jobs and threads - 1 that help with
// tiles. One loop thread connects them.
Result<std::unique_ptr<Run>> start_threads(std::shared_ptr<const Plan> plan, int threads,
                                           void (*drop)(void*));

}  // namespace weft
