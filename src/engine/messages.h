// What engines and the controller say to each other and to their driver.
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
// spent in kernels. The controller hears them on its own clock: what lies between two ranks' clocks
// follows from when a step's first and last messages were sent and heard.
struct RankTimes {
  int64_t begin = 0, end = 0, busy = 0;
  int64_t heard = 0, told = 0;  // when the rank heard of the step, and told its end; of drivers
                                // whose ranks share a clock: 0
};

// The same on the clock of whoever sent the step's begin at `said` and heard its done at
// `answered`. Nobody hears a thing before it is said, which bounds how far the clocks are apart; if
// that allows one clock it is one, else the middle is taken, so that a message takes as long one
// way as the other.
RankTimes on_our_clock(const RankTimes& theirs, int64_t said, int64_t answered);

// Made by the controller, sent ahead of the first forward.
struct StepDescriptor {
  uint64_t sequence = 0;  // counts every step of the run, whatever its mode; tags messages
  uint64_t step = 0;      // training steps so far: keys random numbers and the learning rate
  Mode mode = Mode::train;
  bool update = true;         // train: false leaves weights alone and gradients readable
  int32_t micro_batches = 0;  // of this step; at most the plan's
  bool short_last = false;    // the last one has the plan's short size
  double denominator =
      1;  // what the loss is divided by: samples or counted targets of the whole step
  // A segment of an asynchronous schedule is one step that makes several updates, each of that many
  // micro-batches, the last of what is left; 0: the step is one update at most. `step` is then the
  // number of the first.
  int32_t per_update = 0;
  // What the loss of each update is divided by, in the place of `denominator`; empty: that.
  // Borrowed until the step is over.
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

// What random numbers and the loss of a micro-batch depend on; a segment's are those of as many
// steps.
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

// Which shapes a micro-batch of the step has: 0 the full ones, 1 those of the short last one.
inline int32_t variant_of(const StepDescriptor& step, int32_t micro_batch) {
  return step.short_last && micro_batch == step.micro_batches - 1 ? 1 : 0;
}

enum class ControlKind : uint8_t {
  begin,  // controller -> rank: a step
  ready,  // rank -> controller: gradients complete (of a segment: updates made); sums of squares of
          // the parameters it owns, ascending
  commit,  // controller -> rank: change the weights (a segment: go on from those that the last
           // update made)
  done,    // rank -> controller: the step is over here
};

struct Control {
  ControlKind kind = ControlKind::begin;
  StepDescriptor step;              // begin
  uint64_t sequence = 0;            // ready, commit, done
  double scale = 1;                 // commit: what gradients are multiplied by (clipping)
  std::span<const double> squares;  // ready; of a segment: update by update; borrowed for the call
  RankTimes times = {};             // done
};

constexpr int32_t kController = 0;  // the rank whose process it lives in

// The effects of an engine or controller. The driver carries them out after the call that made them
// returns or later, never by calling back into the same engine from inside.
class Effects {
 public:
  virtual ~Effects() = default;
  // Run that job of the mode's program on this rank. Jobs run in the order given; answer with
  // ran(). `deliver`: everything that it posts has been granted, so the job itself may copy it to
  // ranks of this process.
  virtual void run(int32_t job, bool deliver) = 0;
  // Send micro-batch mb of that edge; the receiver has room. Answer with released() once the place
  // may be written again. `delivered`: it comes from a job that was run with `deliver`.
  virtual void post(int32_t edge, int32_t micro_batch, bool delivered) = 0;
  // Tell the edge's sender that there is room for that micro-batch.
  virtual void grant(int32_t edge, int32_t micro_batch) = 0;
  virtual void control(int32_t to_rank, const Control& message) = 0;
};

}  // namespace weft
