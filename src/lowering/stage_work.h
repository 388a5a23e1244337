// The calls of a stage for one micro-batch in each phase, and the lifetimes of its tensors.
//
// With recompute, some activations of F are dropped and computed again. The forward calls of the
// stage are cut into recompute blocks. Tensors between blocks are kept; the others are computed
// again, block by block, when the backward first reads them. The action R recomputes the first of
// these blocks: it waits for nothing, so that it can run while the rank waits for the gradient. I
// or W recompute the other blocks, whose tensors can share memory. The calls and their operands are
// the same, so that the bits are the same.
#pragma once

#include <array>
#include <vector>

#include "base/flat_map.h"
#include "plan/plan.h"
#include "schedule/lock_step.h"

namespace weft {

// First and last phase in which a stage uses a tensor, and whether it makes the tensor.
struct Life {
  int32_t first = -1, last = -1;
  bool made = false;
};

struct StageWork {
  bool split = false;  // I and W of this stage are separate in the schedule
  std::array<std::vector<const StepCall*>, kPhases>
      calls;                       // not split: W's calls are in I, in canonical order
  FlatMap<TensorId, Life> lives;   // tensors that arrive, and that F keeps
  FlatMap<TensorId, Life> remade;  // recomputed, in R or later
  FlatMap<TensorId, bool>
      reads_remade;  // tensors whose recomputed value is read (otherwise the first one)

  // Whether a call of `phase` uses the recomputed tensor or the first one.
  bool second(int32_t phase, TensorId t, bool writes) const;
};

// For the calls of one stage, in canonical order, which must outlive the result. `calls_per_block`:
// forward calls per recompute block, 0: it keeps everything.
StageWork make_stage_work(const std::vector<const StepCall*>& calls, bool split,
                          int32_t calls_per_block);
// The stages with separate I and W.
std::vector<bool> split_stages(const Schedule& schedule);

// Per stage, as `calls_per_block`.
std::vector<StageWork> make_work(const StepGraph& graph, const std::vector<int32_t>& stage_of_node,
                                 const Schedule& schedule,
                                 const std::vector<int32_t>& calls_per_block);

// Time of a micro-batch for recomputing: `forward` in R, the others in I and W.
NodeTimes remade_seconds(const StageWork& work, const std::vector<NodeTimes>& times);

// Calls visit(tensor) for each tensor that a call reads or writes (without -1).
template <typename Visit>
void each_read(const StepCall& call, Visit&& visit) {
  each_tensor(call, [&visit](TensorId t, bool written) {
    if (!written) visit(t);
  });
}
template <typename Visit>
void each_written(const StepCall& call, Visit&& visit) {
  each_tensor(call, [&visit](TensorId t, bool written) {
    if (written) visit(t);
  });
}

}  // namespace weft
