// What a stage does for one micro-batch, phase by phase, and how long each tensor lives there.
//
// With recompute, part of what F made is let go and made again. The stage's forward calls are cut
// into segments; what crosses from one segment to a later one is kept, the rest is made again,
// segment by segment, when the backward first reads it: the segment that is read first in the
// action R, which waits for nothing and so fills the wait for the gradient; each other one within I
// or W, where its tensors can share memory. The calls are the same calls on the same operands, so
// the bits are the same.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "plan/plan.h"
#include "schedule/lock_step.h"

namespace weft {

// First and last phase in which a stage touches a tensor, and whether it makes it.
struct Life {
  int32_t first = -1, last = -1;
  bool made = false;
};

struct StageWork {
  bool split = false;  // the schedule parts I and W of this stage
  std::array<std::vector<const StepCall*>, kPhases>
      calls;                        // not split: W's calls are in I, in canonical order
  std::map<TensorId, Life> lives;   // what arrives, and what the first making leaves
  std::map<TensorId, Life> remade;  // what is made again, in R or later
  std::map<TensorId, bool>
      reads_remade;  // made again, and read in that making (else the first is kept and read)

  // Where a call of `phase` reads, or writes, the tensor: the second making, or the first.
  bool second(int32_t phase, TensorId t, bool writes) const;
};

// Of the calls of one stage, in canonical order, which must outlive the result. `segment`: forward
// calls per segment, 0: it keeps everything.
StageWork make_stage_work(const std::vector<const StepCall*>& calls, bool split, int32_t segment);
// Which stages part I and W.
std::vector<bool> split_stages(const Schedule& schedule);

// Per stage.
std::vector<StageWork> make_work(const StepGraph& graph, const std::vector<int32_t>& stage_of_node,
                                 const Schedule& schedule,
                                 const std::vector<int32_t>& segment_of_stage);

// Seconds of a micro-batch for what is made again, in R and I, and in W.
NodeTimes remade_seconds(const StageWork& work, const std::vector<NodeTimes>& times);

// The tensors a call reads and writes (without -1).
std::vector<TensorId> reads_of(const StepCall& call);
std::vector<TensorId> writes_of(const StepCall& call);

}  // namespace weft
