// Actions are cut into units: gradients are sent while the rest of the backward runs, and values
// that other ranks keep are stored for one unit only.
#pragma once

#include <vector>

#include "lowering/gradient_runs.h"
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
// The same without a plan. `runs`: of the accumulators that are not kept.
std::vector<std::vector<UnitCall>> units_of(const Model& model, const PlanConfig& config,
                                            const StageWork& work, Kind kind, const RunOfSum& runs);
// The parameters whose values the unit reads, in the order of their first use.
std::vector<ParamId> reads_of(const Model& model, const StageWork& work,
                              const std::vector<UnitCall>& unit);

// The slots of the values that units gather: the units of an action that gather any use them in
// turn.
class GatherSlots {
 public:
  void begin_action() { turn_ = -1; }
  void begin_unit();
  // The slot of a value of the unit, and the offset there.
  std::pair<int32_t, int64_t> add(int64_t bytes);
  const std::array<int64_t, kGatherSlots>& bytes() const { return bytes_; }

 private:
  std::array<int64_t, kGatherSlots> bytes_ = {};
  int32_t turn_ = -1;
  int64_t offset_ = 0;
};

}  // namespace weft
