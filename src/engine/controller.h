// The controller's state machine: cuts steps into micro-batches, sends inputs, collects readiness
// and norms, commits, and collects the deliveries of the step. It is in the process of rank 0 and
// does no I/O, like the engines.
//
// A step is a transaction: weights change only after every rank has reported that its gradients are
// complete. The norm and the commit are one exchange.
//
// Steps that overlap are in progress together, and end in the order in which they began.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

// The result of an update of a segment.
struct UpdateResult {
  double loss = 0, grad_norm = 0;
};

// The result of a step. Loss: sum over micro-batches, folded ascending in double, divided once.
struct StepResult {
  StepDescriptor step;
  double loss = 0;
  double grad_norm = 0;  // before clipping; train only; of a segment: of its last update
  double scale = 1;
  // From the step's first forward to its last backward action on any rank: the share in which a
  // rank ran no kernel. Valid until the next step. Times of done messages are on one clock.
  std::span<const double> idle_by_rank;
  std::span<const UpdateResult> updates;  // of a segment, ascending; as long valid
  double idle = 0;                        // mean over ranks
};

class ControllerEffects : public Effects {
 public:
  // Every delivery of that micro-batch has arrived at rank 0.
  virtual void micro_batch(int32_t micro_batch) = 0;
  virtual void step_done(const StepResult& result) = 0;
};

class Controller {
 public:
  explicit Controller(std::shared_ptr<const Plan> plan);

  // Starts the next step; while another one runs, one that overlaps. The driver answers post() of
  // feed edges from the inputs.
  Status begin(const StepDescriptor& step, ControllerEffects& effects);
  // Of the oldest step: from now on the inputs of so many micro-batches exist. A smaller number
  // than before has no effect.
  Status feed(int32_t micro_batches, ControllerEffects& effects);
  // The deliveries of the oldest step may arrive, because those of the step before it have been
  // read. For a step that overlaps; nothing otherwise.
  void open_sinks(ControllerEffects& effects);
  // Whether the oldest step waits for inputs that do not exist yet, or for open_sinks().
  bool awaits_owner() const {
    return !idle() && (oldest().fed < oldest().step.micro_batches || !oldest().open);
  }
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch, ControllerEffects& effects);
  // A delivery has landed; losses contain their sum over the micro-batch.
  Status delivered(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss,
                   ControllerEffects& effects);
  Status received(int32_t rank, const Control& message, ControllerEffects& effects);

  bool idle() const { return finished_ == begun_; }
  uint64_t next_sequence() const { return begun_; }
  // A step in progress; null: no such step is.
  const StepDescriptor* find(uint64_t sequence) const {
    return runs(sequence) ? &at(sequence).step : nullptr;
  }
  // The ranks that the controller waits for, as text.
  std::string describe() const;

 private:
  // An edge of inputs. Next: the micro-batch to send; granted: the first one without a slot at the
  // receiver.
  struct Feed {
    int32_t edge, next, granted;
  };
  // A step in progress.
  struct Running {
    StepDescriptor step;
    int32_t fed = 0;   // micro-batches whose inputs exist
    bool open = true;  // deliveries may arrive
    std::vector<Feed> feeds;
    std::vector<double> losses;    // per micro-batch
    std::vector<int32_t> due;      // per micro-batch: deliveries still missing
    int32_t reported = 0;          // of those before it, the owner knows that none is missing
    std::vector<uint8_t> done;     // per rank
    std::vector<RankTimes> times;  // per rank
    int32_t missing_done = 0, missing_deliveries = 0;
  };
  // The edges of a mode that begin or end at the controller.
  struct Ends {
    std::vector<int32_t> feeds;
    int32_t sinks = 0;
  };

  Result<Running*> check_tag(uint64_t sequence, int32_t edge, int32_t micro_batch, EdgeKind kind);
  Status ready(size_t rank, const Control& message, ControllerEffects& effects);
  void commit(const StepDescriptor& step, ControllerEffects& effects);
  void send_inputs(const Running& running, Feed& feed, ControllerEffects& effects);
  void finish_if_over(Running& running, ControllerEffects& effects);
  void measure_idle(const Running& running);
  const ModePlan& mode_of(const Running& running) const { return plan_->mode(running.step.mode); }
  const Running& at(uint64_t sequence) const { return steps_[sequence % kStepsAtOnce]; }
  bool runs(uint64_t sequence) const { return finished_ <= sequence && sequence < begun_; }
  Running* find_running(uint64_t sequence) {
    return runs(sequence) ? &steps_[sequence % kStepsAtOnce] : nullptr;
  }
  const Running& oldest() const { return at(finished_); }

  std::shared_ptr<const Plan> plan_;
  std::vector<std::vector<ParamId>> owned_;  // per rank, ascending
  std::array<Ends, kModes> ends_;
  std::vector<Running> steps_;         // by sequence % kStepsAtOnce
  uint64_t begun_ = 0, finished_ = 0;  // numbers of steps, which are sequences
  std::vector<double> squares_;        // per update of a segment (else one) and parameter
  std::vector<UpdateResult> updates_;
  std::vector<uint8_t> ready_;  // per rank
  int32_t missing_ready_ = 0;
  std::vector<double> idle_;  // per rank
  StepResult result_;
};

}  // namespace weft
