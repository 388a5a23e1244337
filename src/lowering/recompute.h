// The stages that drop the activations of their forward and compute them again for their backward
// (Chen et al. 2016; GPipe).
#pragma once

#include "lowering/stage_work.h"
#include "plan/plan.h"

namespace weft {

struct Recompute {
  enum class Kind : uint8_t { none, stage, every, fit } kind = Kind::none;
  int32_t every = 0;  // forward calls per recompute block

  static constexpr int32_t kWhole = 1 << 30;  // a block that is the whole stage
};

// "none", "stage", "every:N" or "auto".
Result<Recompute> parse_recompute(std::string_view text);

// Forward calls per recompute block for each stage, 0: keeps everything, as a stage of Kind::stage
// does where it saves no memory. A stage with an R in the schedule recomputes in any case.
std::vector<int32_t> calls_per_block(const Recompute& recompute, const Schedule& schedule);

// Adds an R before each I or B of the stages that recompute (`again`, per stage) and have no R yet.
// It needs no gradient, so that it runs while the rank waits for one.
void add_recompute(Schedule& schedule, std::vector<bool> again);

// An option of a stage for recomputing, and its effect on the rank.
struct RecomputeOption {
  int32_t calls_per_block = 0;    // forward calls per recompute block, 0: keeps everything
  double seconds = 0;             // time of a micro-batch to recompute
  int64_t kept = 0, scratch = 0;  // bytes of the rank if all its other stages keep everything:
                                  // without scratch memory, and scratch memory
};

// The combinations of one option per stage of a rank; the first option of each stage keeps
// everything. First those with at most `room` bytes of `kept` and `scratch`, in the order of their
// time; then the few smallest of the others, because the bytes are estimates.
std::vector<std::vector<int32_t>> ways_of(const std::vector<std::vector<RecomputeOption>>& stages,
                                          int64_t room);

}  // namespace weft
