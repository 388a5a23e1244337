// From a mode's step graph, partition and schedule to what each rank runs and where every byte of it lies.
#pragma once

#include "plan/places.h"
#include "plan/plan.h"
#include "plan/work.h"

namespace weft {

// What every node infers for a full and for the short micro-batch.
class Shapes {
 public:
  explicit Shapes(const Plan& plan);
  const Inferred& of(NodeId node, size_t variant) const { return inferred_[variant][static_cast<size_t>(node)]; }
  Desc desc(const StepGraph& graph, TensorId t, size_t variant) const;

 private:
  std::vector<Inferred> inferred_[2];
};

// Ring 0 of a rank: its weights, accumulators, optimizer state. Fills plan.resident and plan.permanent_bytes.
void place_parameters(Plan& plan);

// What the lowering of every rank of a mode reads. Borrows what it is made from.
struct Lowering {
  Lowering(const Plan& plan, const Shapes& shapes, const ModePlan& mode, const std::vector<StageWork>& work);

  const Plan& plan;
  const Shapes& shapes;
  const std::vector<StageWork>& work;
  const StageTimes* times = nullptr;                           // the lock-step order of the mode's schedule
  std::vector<std::vector<int32_t>> readers;                   // per tensor: stages other than its maker's
  std::vector<std::vector<int32_t>> edges_of_tensor;           // per tensor: edges that it leaves by
  std::vector<std::vector<int32_t>> edges_into, edges_out_of;  // per stage
  std::vector<std::vector<int32_t>> edges_of_rank;             // that begin or end there
  std::vector<std::vector<int32_t>> stages_of_rank;
};

constexpr int32_t kScratchRing = 1;  // of RankProgram::rings

// Fills mode.ranks[rank], and the place counts of the edges that begin or end there.
void lower_rank(const Lowering& lowering, ModePlan& mode, int32_t rank);

}  // namespace weft
