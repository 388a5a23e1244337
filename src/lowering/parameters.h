// The tensors of parameters on every rank.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "lowering/gradient_runs.h"
#include "plan/plan.h"

namespace weft {

// `local`: per sum of uses, whether it is on the rank, which is one of `replicas`. `runs`: of its
// position. Places are empty.
ResidentParam resident_param(const Model& model, const PlanConfig& config, ParamId param,
                             bool owned, const std::vector<bool>& local, const RunOfSum& runs,
                             int32_t replica, int32_t replicas);

// The places of accumulators that are not kept: those of a run are adjacent, in its slot.
class RunSlots {
 public:
  // The offset in the slot of a tensor of the run.
  int64_t add(int32_t run, int64_t bytes);
  const std::array<int64_t, kRunSlots>& bytes() const { return bytes_; }

 private:
  std::map<int32_t, int64_t> used_;  // per run
  std::array<int64_t, kRunSlots> bytes_ = {};
};

// The ranks that update a parameter: its owner and, if the optimizer state is not sharded, the rank
// of the first use in every other replica.
std::vector<int32_t> updaters_of(const Plan& plan, ParamId param);

// The rank that owns each parameter: of the candidates, the one that owns the fewest bytes so far.
// The largest parameters come first, and frozen ones, which have no other tensors, last. -1: it has
// no candidate.
std::vector<int32_t> choose_owners(
    const Model& model, int32_t ranks,
    const std::function<std::vector<int32_t>(const Param&)>& candidates);
// The same for the plan: the ranks of its first use are the candidates for a parameter.
std::vector<int32_t> owners_of(const Plan& plan);

// Ring 0 of a rank: its weights, accumulators, optimizer state. Fills plan.resident and
// plan.permanent_bytes.
void place_parameters(Plan& plan);
// Of a rank, by a parameter that it uses.
const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param);
// The accumulator of a sum in a replica, on a rank that has it.
const ResidentTensor& accumulator_of(const Plan& plan, int32_t rank, ParamId param, int32_t sum,
                                     int32_t replica);

}  // namespace weft
