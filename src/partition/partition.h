// The stage of each node. Stages are runs of nodes in topological order, so that no edge leads to
// an earlier stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace weft {

struct NodeEdge {
  int32_t from = 0, to = 0;
};

// Nodes in topological order, by index.
struct NodeCosts {
  std::span<const double> cost;  // finite, 0 or more; any unit
  std::span<const NodeEdge> edges;
};

struct Partition {
  std::vector<int32_t> stage_of_node;
  std::vector<int32_t> first_node;  // per stage; ascending, the first is 0
  std::vector<double> cost;         // per stage, summed

  int32_t stages() const { return static_cast<int32_t>(first_node.size()); }
};

// Every stage has at least one node. Errors name the cut, edge, node or sizes that are not valid.

// A new stage begins at each of `cuts`, node indexes that ascend from 1.
Result<Partition> partition_at(const NodeCosts& nodes, std::span<const int32_t> cuts);

// Equal numbers of blocks per stage; if the number is not divisible, the first stages have one
// more. A block begins at each of `block_starts` (ascending, the first is 0); without them, every
// node is a block.
Result<Partition> partition_uniform(const NodeCosts& nodes, int32_t stages,
                                    std::span<const int32_t> block_starts = {});

}  // namespace weft
