// The messages between engines and the controller, and their effects for the driver.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/step.h"

namespace weft {

// When a job ran, in nanoseconds (or any unit) of the rank's clock. Ranks of one machine share it;
// see RankTimes.
struct JobTime {
  int64_t begin = 0, end = 0;
};

// A rank's actions of one step: from its first forward to its last action, and how much of that was
// spent in kernels. The process of rank 0 converts them to its own clock: the times at which the
// first and the last message of a step were sent and received give the offset.
struct RankTimes {
  int64_t begin = 0, end = 0, busy = 0;
  // When the rank received the begin of the step, and sent its end; 0 if all ranks share a clock.
  int64_t begin_received = 0, end_sent = 0;
};

// The same times on the clock of the process that sent the begin of the step at `begin_sent` and
// received its done at `end_received`. A message cannot arrive before it is sent, which limits the
// offset of the clocks. If an offset of 0 is possible it is used, otherwise the middle, so that a
// message takes the same time in both directions.
RankTimes on_our_clock(const RankTimes& theirs, int64_t begin_sent, int64_t end_received);

// Steps that have begun and are not finished, at most: see StepDescriptor::overlaps.
constexpr size_t kStepsAtOnce = 16;

// Made by the controller, and sent before the first forward.
struct StepDescriptor {
  uint64_t sequence = 0;  // counts the steps of all modes; tags messages
  uint64_t step = 0;      // training steps before this one; a key of random numbers
  Mode mode = Mode::train;
  bool update = true;         // train: false does not change weights; gradients can be read
  int32_t micro_batches = 0;  // of this step; at most the plan's
  // Only the controller reads it: the inputs of so many exist when the step begins. 0: of all.
  int32_t fed = 0;
  bool short_last = false;  // the last one has the plan's short size
  bool short_all = false;   // infer: all have it
  // Of a mode without a backward pass: a rank begins the step when it has finished the step before
  // it, of the same mode, which other ranks may still compute. So its receivers grant all slots,
  // also while they compute the step before, and the controller grants the sinks.
  bool overlaps = false;
  double denominator =
      1;  // divisor of the loss: the number of samples or of counted targets of the whole step
  // A segment of an asynchronous schedule is one step with several updates, each with this number
  // of micro-batches; the last one may have fewer. `step` is then the number of the first update.
  // 0: the step has at most one update.
  int32_t per_update = 0;
  double rate = -1;  // the learning rate of all updates of the step; negative: that of the plan
  // Divisor of the loss of each update, instead of `denominator`; empty: `denominator`. Borrowed
  // until the end of the step.
  std::span<const double> denominators = {};
};

// Updates that the step makes, and the one that a micro-batch belongs to.
inline int32_t updates_of(const StepDescriptor& step) {
  if (step.per_update == 0) return step.mode == Mode::train && step.update ? 1 : 0;
  return (step.micro_batches + step.per_update - 1) / step.per_update;
}
inline int32_t update_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.per_update ? micro_batch / step.per_update : 0;
}

// The key of the random numbers and the loss of a micro-batch; each update of a segment has the key
// of its own step.
inline uint64_t step_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.step + static_cast<uint64_t>(update_of(step, micro_batch));
}
inline int32_t micro_batch_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.per_update ? micro_batch % step.per_update : micro_batch;
}
inline double denominator_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.denominators.empty()
             ? step.denominator
             : step.denominators[static_cast<size_t>(update_of(step, micro_batch))];
}

// The shapes of a micro-batch of the step: 0 full, 1 short.
inline int32_t variant_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.short_all || (step.short_last && micro_batch == step.micro_batches - 1) ? 1 : 0;
}

enum class ControlKind : uint8_t {
  begin,   // controller -> rank: a step
  ready,   // rank -> controller: gradients complete (for a segment: updates complete); sums of
           // squares of the parameters that it owns, ascending
  commit,  // controller -> rank: change the weights (for a segment: continue with those of the last
           // update)
  done,    // rank -> controller: the step is complete on this rank
};

struct Control {
  ControlKind kind = ControlKind::begin;
  StepDescriptor step;              // begin
  uint64_t sequence = 0;            // ready, commit, done
  double scale = 1;                 // commit: factor of the gradients (clipping)
  std::span<const double> squares;  // ready; of a segment: update by update; borrowed for the call
  RankTimes times = {};             // done
};

constexpr int32_t kController = 0;  // the rank of its process

// The effects of an engine or controller. The driver executes them after the call that made them
// has returned, never by calling the same engine from within.
class Effects {
 public:
  virtual ~Effects() = default;
  // Run that job of the mode's program on this rank. Jobs run in the order given; answer with
  // ran(). `deliver`: all messages that it posts have been granted, so that the job itself can copy
  // them to ranks of this process.
  virtual void run(int32_t job, bool deliver) = 0;
  // Send micro-batch mb of this edge; the receiver has a free slot. Answer with released() once its
  // own slot may be written again. `delivered`: it comes from a job that was run with `deliver`.
  virtual void post(const StepDescriptor& step, int32_t edge, int32_t micro_batch,
                    bool delivered) = 0;
  // Grant this micro-batch to the sender of the edge.
  virtual void grant(const StepDescriptor& step, int32_t edge, int32_t micro_batch) = 0;
  virtual void control(int32_t to_rank, const Control& message) = 0;
};

}  // namespace weft
