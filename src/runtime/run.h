// A run: a plan at work behind a queue of steps and a queue of events. One interface; drivers
// differ in who computes and where.
//
// The owner's thread acquires a step, fills it, submits it, and polls events; a step is the owner's
// again after its final event. Steps and events live in rings that are made once, so that a run
// allocates nothing.
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

// What takes its turn in a run: a step, or a save between two of them.
struct Step {
  // Set by the owner.
  std::unique_ptr<SaveRequest> save;  // null: it is a step
  Mode mode = Mode::train;
  bool update = true;
  uint64_t tag = 0;
  Batch batch;
  std::vector<void*>
      kept;  // what keeps the batch's memory valid; given to `drop` after the final event
  // Set by submit().
  StepDescriptor descriptor;
  std::vector<double> counts;  // per micro-batch: what its loss is divided by for its own mean
  std::vector<double> sums;    // of a segment, per update: the same
  std::vector<double> idle_by_rank;  // after its end, see StepResult
};

struct RunEvent {
  enum class Kind : uint8_t { micro_batch = 1, done = 2, error = 3, update = 4, saved = 5 };
  Kind kind = Kind::done;
  Step* step = nullptr;  // final events: valid until the next acquire()
  uint64_t tag = 0;
  // Training steps before this one; update: and of the segment before that update; saved: in the
  // checkpoint.
  uint64_t number = 0;
  Mode mode = Mode::train;
  int32_t micro_batch = 0;
  double loss = 0;  // mean over what counts: of the micro-batch, of the update, or of the step
  double grad_norm = 0;
  double idle = 0;  // final: mean over ranks; by rank in the step
  Status status;
};

class Requests;
class Worker;
namespace rpc {
struct Request;
}

// What a name means to read and write.
enum class Part : uint8_t { value, grad, state0, state1 };

class Run {
 public:
  static constexpr size_t kQueue = 16;  // steps and saves that may be under way

  // `drop` is called for each kept object, on the owner's thread.
  Run(std::shared_ptr<const Plan> plan, void (*drop)(void*));
  virtual ~Run();

  const Plan& plan() const { return *plan_; }

  Step* acquire();             // null: kQueue of them are under way
  static Status full();        // the status if acquire() returned null
  void give_back(Step* step);  // acquired, but not submitted
  // On success exactly one final event will come; on failure the step is given back.
  Status submit(Step* step);
  // Saves behind what was submitted. On success exactly one final event will come.
  Status submit_save(SaveRequest request, uint64_t tag);
  // The same between steps, and waits for the end.
  Status save(SaveRequest request);
  // The next event, if there is one within the time (nanoseconds; negative: no limit). False at
  // once when nothing is under way.
  bool poll(RunEvent& event, int64_t timeout_ns);
  // Readable while poll() has something to do; level-triggered, never read from it. -1: the process
  // had no descriptor left.
  virtual int descriptor() const = 0;
  bool idle() const { return free_.size() == steps_.size(); }  // every final event has been polled
  // Ok between steps. After a failed one never again: what each rank has reached by then is not one
  // step's state.
  Status settled() const;

  // The memory of a rank of this process, between steps; null: the rank is in another one.
  virtual Worker* worker_here(int32_t rank) = 0;
  // The way to the ranks of other processes; null: there are none.
  virtual Requests* requests() { return nullptr; }

  // Only between steps, whichever rank keeps it (run_ranks.cc). Sizes are checked by the caller.
  Status read(ParamId param, Part part, std::span<float> out);
  Status write(ParamId param, Part part, std::span<const float> in);
  // Every rank keeps the spans of its next `jobs` jobs; 0: no more. spans(): those kept so far.
  Status trace(size_t jobs);
  Status spans(int32_t rank, std::vector<TraceSpan>& out);
  Status save_trace(const std::string& path);  // as a Chrome trace
  // Bytes of that rank's tensors that are really in memory.
  Result<int64_t> resident_bytes(int32_t rank);
  // XXH3-128 over all parameters by name, as weft_run_digest(3) says.
  Result<Digest> digest();
  // The same over the optimizer state: per parameter in the order of names, per slot, the tensor
  // named PARAMETER.SLOT.
  Result<Digest> optimizer_digest();
  // A delivery at rank 0 of the step whose event was polled last.
  virtual View delivered(int32_t edge, int32_t micro_batch) = 0;
  // The gradient of a model input, of the samples of the last training step; `out` has them all.
  Status read_input_grad(NodeId input, std::span<float> out);

  uint64_t trained() const { return trained_; }
  void set_trained(uint64_t steps) { trained_ = steps; }  // a resumed run

 protected:
  // Begins the step after those before it. After a step of mode infer nothing begins before
  // proceed(): its deliveries are being read.
  virtual void start(Step* step) = 0;
  virtual bool next_event(RunEvent& event, int64_t timeout_ns) = 0;
  virtual void proceed() = 0;

  RunEvent micro_batch_event(const Step& step, int32_t micro_batch);
  static RunEvent update_event(const Step& step, const StepResult& result,
                               size_t update);  // of a segment, before its final event
  static RunEvent final_event(Step* step, const StepResult& result);
  // Events of one step at the most.
  static size_t most_events(const Plan& plan) {
    return static_cast<size_t>(plan.most_micro_batches() + plan.config.segment + 1);
  }
  // The final event of what the run has not carried out.
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
  size_t traced_ = 0;  // jobs of each rank whose spans are kept, at most
  Status failure_;     // of the step that failed first, once it was polled
};

// All ranks in this process on the caller's thread: steps run inside poll().
Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan, void (*drop)(void*));
// All ranks in this process, each with a thread that runs its jobs and threads - 1 that help with
// tiles; a loop thread joins them.
Result<std::unique_ptr<Run>> start_threads(std::shared_ptr<const Plan> plan, int threads,
                                           void (*drop)(void*));

}  // namespace weft
