// The tensors of parameters on every rank.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lowering/gradient_runs.h"
#include "plan/plan.h"

namespace weft {

// Whether the call, forward or input_grad, multiplies by the transpose of weight 0.
bool multiplies_transposed(const Node& node, CallKind kind);
// Of a full micro-batch.
int64_t rows_of_product(const Model& model, const PlanConfig& config, const Node& node);
// Whether a packed copy of weight 0 saves time, if it serves several micro-batches.
bool pays_to_pack(const Model& model, const PlanConfig& config, const Node& node);
// The value of a parameter on a rank that updates it or does not, and in messages to such ranks:
// bf16 if the rank does not change it, and all that reads it rounds it to bf16, or its copies. With
// an asynchronous schedule, values that steps change have versions, which are float32.
Desc stored_desc(const Model& model, const PlanConfig& config, ParamId param, bool updates);
// A packed copy of a weight, for products with tensors of that type: of a matrix, or its transpose.
Desc packed_desc(DType dtype, const Shape& weight, bool transposed);

using RanksOfNode = std::function<std::vector<int32_t>(NodeId)>;
// A rank among those with the same stages, the runs of their position, and the updates of which
// other stages can send their sums before the first one is made.
struct Replica {
  int32_t number, count;
  const RunOfSum* runs;
  int32_t in_flight = 1;
};

// Per rank: what it keeps of each parameter that its nodes use. Places are empty. `params`: those
// with a use on one of the ranks, ascending; may have others.
std::vector<std::vector<ResidentParam>> residents_of(
    const Model& model, const PlanConfig& config, std::span<const ParamId> params,
    const std::vector<int32_t>& owners, int32_t ranks, const RanksOfNode& ranks_of,
    const std::function<Replica(int32_t)>& replica_of);
// Ring 0 of a rank: its weights, accumulators, optimizer state. Sets the places and the size of a
// version, which has neither frozen parameters nor bf16 values; the result is in bytes.
int64_t place_residents(const Model& model, std::vector<ResidentParam>& resident,
                        WeightVersions& versions);

// Per rank: the state of its nodes, which lies behind its parameters. Places are empty until
// place_states() sets them, from the end of the parameters, which it moves. `nodes`: those with a
// state, ascending; may have others.
std::vector<std::vector<ResidentState>> states_of(const Model& model, const PlanConfig& config,
                                                  std::span<const NodeId> nodes, int32_t ranks,
                                                  const RanksOfNode& ranks_of);
void place_states(std::vector<ResidentState>& states, int64_t& top);

// The ranks that update a parameter: its owner and, if the optimizer state is not sharded, the rank
// of the first use in every other replica.
std::vector<int32_t> updaters_of(const Plan& plan, ParamId param);

// The rank that owns each parameter: of those with its first use, the one that owns the fewest
// bytes so far. The largest parameters come first, and frozen ones, which have no other tensors,
// last. -1: none of the ranks has it. `params` as in residents_of.
std::vector<int32_t> choose_owners(const Model& model, const PlanConfig& config,
                                   std::span<const ParamId> params, int32_t ranks,
                                   const RanksOfNode& ranks_of);

// Fills plan.owner_of_param, plan.resident, plan.states and plan.permanent_bytes.
void place_parameters(Plan& plan);
// Of a rank, by a parameter that it uses.
const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param);
// The accumulator of a sum in a replica, on a rank that has it.
const ResidentTensor& accumulator_of(const Plan& plan, int32_t rank, ParamId param, int32_t sum,
                                     int32_t replica);

}  // namespace weft
