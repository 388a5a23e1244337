// Actions are cut into units: gradients are sent while the rest of the backward runs, and values
// that other ranks keep are stored for one unit only.
#pragma once

#include <vector>

#include "lowering/stage_work.h"
#include "plan/plan.h"

namespace weft {

struct UnitCall {
  int32_t phase;
  size_t index;  // in StageWork::calls of the phase
};

std::vector<int32_t> phases_of(Kind kind);
// The calls of an action of that kind, in order and cut into one unit or more.
std::vector<std::vector<UnitCall>> units_of(const Plan& plan, const StageWork& work, Kind kind);
// The parameters whose values the unit reads, in the order of their first use.
std::vector<ParamId> reads_of(const Plan& plan, const StageWork& work,
                              const std::vector<UnitCall>& unit);

}  // namespace weft
