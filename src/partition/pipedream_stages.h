// PipeDream's partitioner for a model: its nodes in order are the chain of states.
#pragma once

#include "partition/cut_loads.h"
#include "partition/pipedream.h"
#include "partition/stages.h"

namespace weft {

// State k is the first k + 1 of `ops`; its output is the values that later nodes use.
Result<std::vector<ModelState>> states_of(const Model& model, const PlanConfig& config,
                                          const OpNodes& ops, const CutLoads& cuts);

// Stages of one machine each, for schedules other than 'pipedream'. Links without a bandwidth count
// as unlimited.
Result<Partition> partition_pipedream(const Model& model, const PlanConfig& config,
                                      const OpNodes& ops, const NodeCosts& costs, int32_t stages);

// The best use of the configuration's ranks, each stage on one or several of them. `first`: per
// stage, the node that it begins with.
struct ReplicatedStages {
  std::vector<NodeId> first;
  std::vector<int32_t> replicas;
};
Result<ReplicatedStages> replicated_stages(const Model& model, const PlanConfig& config);

}  // namespace weft
