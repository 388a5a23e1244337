// The stage of each node of a model. partition.h itself only knows indexes and costs of nodes.
#pragma once

#include "partition/partition.h"
#include "plan/plan.h"

namespace weft {

class KnownRuns;

// The model's nodes without its inputs, which follow the stage of their first use.
struct OpNodes {
  // `times` as in PlanConfig: per node of the model, or empty.
  OpNodes(const Model& model, int64_t samples, const std::vector<NodeTimes>& times);

  std::vector<NodeId> ids;
  std::vector<double> costs;    // seconds of F, I and W
  std::vector<double> forward;  // of F
  std::vector<NodeEdge> edges;
  std::vector<int32_t> index;  // per node of the model, -1: an input
};

// The memory limit of a rank, by the configuration.
constexpr int64_t kNoLimit = INT64_MAX;
int64_t limit_of(const PlanConfig& config, size_t rank);
// Whether the cuts depend on bytes.
bool cuts_by_bytes(const PlanConfig& config);

// The configuration for the code that orders the actions of stages: a replica, whose ranks that
// share a stage are one rank, as fast and as large as the least of them.
PlanConfig pipeline_config(const PlanConfig& config);

// The stage of every node of the model, by the configuration of all ranks. Errors name the cut, the
// type, the sizes or the rank that is not valid.
Result<std::vector<int32_t>> choose_stages(const Model& model, const PlanConfig& all,
                                           int32_t stages, KnownRuns& known);

// The first nodes of the stages.
std::vector<size_t> first_nodes(const OpNodes& ops, const std::vector<int32_t>& stage_of_node);
// The names of those of stages 1, 2, ...
std::vector<std::string> cuts_of(const Model& model, const std::vector<int32_t>& stage_of_node);

}  // namespace weft
