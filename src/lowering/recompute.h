// Which stages let go what their forward made and make it again for their backward (Chen et al.
// 2016; GPipe).
#pragma once

#include "lowering/stage_work.h"
#include "plan/plan.h"

namespace weft {

struct Recompute {
  enum class Kind : uint8_t { none, stage, every, fit } kind = Kind::none;
  int32_t every = 0;  // forward calls per segment

  static constexpr int32_t kWhole = 1 << 30;  // a segment that is the whole stage
};

// "none", "stage", "every:N" or "auto".
Result<Recompute> parse_recompute(std::string_view text);

// Forward calls per segment for each stage, 0: keeps everything. A stage whose R is in the schedule
// already recomputes in any case.
std::vector<int32_t> segments_of(const Recompute& recompute, const Schedule& schedule);

// Adds an R before each I or B of the stages that have something to make again (`again`, per stage)
// and no R yet: it needs no gradient, so it runs while the rank waits for one.
void add_recompute(Schedule& schedule, std::vector<bool> again);

// What a stage may let go, and what comes of it on its rank.
struct RecomputeOption {
  int32_t segment = 0;            // forward calls per segment, 0: keeps everything
  double seconds = 0;             // of a micro-batch, to make it again
  int64_t kept = 0, scratch = 0;  // bytes of the rank, were all its other stages to keep
                                  // everything: but scratch, and scratch
};

// The ways of a rank to choose one option for each of its stages; the first option of each keeps
// everything. Those that take no more than `room`, which is for `kept` and `scratch`, the quickest
// first; then the few smallest of the others, since it is an estimate.
std::vector<std::vector<int32_t>> ways_of(const std::vector<std::vector<RecomputeOption>>& stages,
                                          int64_t room);

}  // namespace weft
