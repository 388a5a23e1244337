// The controller's state machine: cuts steps into micro-batches, sends inputs, collects readiness
// and norms, commits, and collects the deliveries of the step. It is in the process of rank 0 and
// does no I/O, like the engines.
//
// A step is a transaction: weights change only after every rank has reported that its gradients are
// complete. The norm and the commit are one exchange.
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

  // Starts the next step. The driver answers post() of feed edges from the inputs.
  Status begin(const StepDescriptor& step, ControllerEffects& effects);
  // From now on the inputs of so many micro-batches of the step exist. A smaller number than before
  // has no effect.
  Status feed(int32_t micro_batches, ControllerEffects& effects);
  // Whether the step waits for inputs that do not exist yet.
  bool awaits_inputs() const { return running_ && fed_ < step_.micro_batches; }
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch, ControllerEffects& effects);
  // A delivery has landed; losses contain their sum over the micro-batch.
  Status delivered(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss,
                   ControllerEffects& effects);
  Status received(int32_t rank, const Control& message, ControllerEffects& effects);

  bool idle() const { return !running_; }
  uint64_t next_sequence() const { return next_sequence_; }
  // The ranks that the controller waits for, as text.
  std::string describe() const;

 private:
  struct Feed;

  Status check_tag(uint64_t sequence, int32_t edge, int32_t micro_batch, EdgeKind kind) const;
  void commit(ControllerEffects& effects);
  void send_inputs(Feed& feed, ControllerEffects& effects);
  void finish_if_over(ControllerEffects& effects);
  double loss_of(int32_t first, int32_t end) const;  // sum over those micro-batches
  void measure_idle();
  const ModePlan& mode() const { return plan_->mode(step_.mode); }

  std::shared_ptr<const Plan> plan_;
  std::vector<std::vector<ParamId>> owned_;  // per rank, ascending
  StepDescriptor step_;
  bool running_ = false;
  uint64_t next_sequence_ = 0;
  int32_t fed_ = 0;              // micro-batches of the step whose inputs exist
  std::vector<double> losses_;   // per micro-batch
  std::vector<double> squares_;  // per update of a segment (else one) and parameter
  std::vector<UpdateResult> updates_;
  std::vector<int32_t> due_;           // per micro-batch: deliveries still missing
  int32_t reported_ = 0;               // of those before it, the owner knows that none is missing
  std::vector<uint8_t> ready_, done_;  // per rank
  std::vector<RankTimes> times_;       // per rank
  std::vector<double> idle_;           // per rank
  // The edges of a mode that begin or end at the controller. Next: the micro-batch to send;
  // granted: the first one without a place at the receiver.
  struct Feed {
    int32_t edge, next, granted;
  };
  struct Ends {
    std::vector<Feed> feeds;
    int32_t sinks = 0;
  };
  std::array<Ends, kModes> ends_;
  int32_t missing_ready_ = 0, missing_done_ = 0, missing_deliveries_ = 0;
  StepResult result_;
};

}  // namespace weft
