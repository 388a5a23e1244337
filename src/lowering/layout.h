// The memory layout of a rank: the parameters, followed by rings of slots for the holdings of its
// stages.
#pragma once

#include <map>
#include <vector>

#include "lowering/holdings.h"
#include "plan/plan.h"

namespace weft {

// The tensors between stages and ranks in a mode, whose graph and edges must be set.
struct Crossings {
  Crossings() = default;
  Crossings(const Plan& plan, const ModePlan& mode, const std::vector<StageWork>& work);

  std::vector<StageTraffic> traffic;                           // per stage
  std::vector<std::vector<int32_t>> edges_into, edges_out_of;  // per replica and stage, see cell()
  std::vector<std::vector<int32_t>> edges_of_rank;             // that begin or end there
  std::vector<std::vector<int32_t>> stages_at;                 // per position

  size_t cell(int32_t replica, int32_t stage) const {
    return static_cast<size_t>(replica) * traffic.size() + static_cast<size_t>(stage);
  }
};

// The places of the tensors of a stage: of the first and of the recomputed ones.
struct StagePlaces {
  std::map<TensorId, Place> first, again;
  std::map<std::pair<const StepCall*, int32_t>, Place> call_scratch;  // per call and phase
};

// The input for the programs of a mode.
struct ModeLayout {
  std::vector<StageWork> work;
  Crossings crossings;
  std::vector<StagePlaces> places;  // per replica and stage, see Crossings::cell()
};

constexpr int32_t kScratchRing = 1;  // of RankProgram::rings

// Fills the rings, edges and bytes of mode.ranks and the places of mode.edges. `times`: the
// lock-step order of the pipeline.
ModeLayout lay_out(const Plan& plan, const Shapes& shapes, const StageTimes& times,
                   std::vector<StageWork> work, ModePlan& mode);

}  // namespace weft
