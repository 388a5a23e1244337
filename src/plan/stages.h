// Which stage each node of a model lives in: the model's side of partition.h, which knows nodes by index and cost alone.
#pragma once

#include "plan/partition.h"
#include "plan/plan.h"

namespace weft {

// The model's nodes without its inputs, which follow the stage of their first use.
struct OpNodes {
  OpNodes(const Model& model, int64_t samples);

  std::vector<NodeId> ids;
  std::vector<double> costs;    // by analysis: multiply-adds and bytes, in no unit
  std::vector<NodeEdge> edges;
  std::vector<int32_t> index;   // per node of the model, -1: an input
};

// The stage of every node of the model, cut as `config` says. Errors name the cut or the sizes that cannot be.
Result<std::vector<int32_t>> choose_stages(const Model& model, const PlanConfig& config, int32_t stages);

}  // namespace weft
