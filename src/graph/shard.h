// Sharding: converts a model to one whose nodes are pieces of its nodes, so that several processors
// can share the work of one node. The result is an ordinary model: the collectives of tensor
// parallelism are slices, concats and sums, which determine their gradients.
//
// Each piece has a coordinate from 0 to shards - 1. Model inputs, outputs and the loss stay whole,
// and keep their order; inputs keep their names. Node::origin and Param::piece refer to the
// original model, which determines dropout, initial values, files and digests.
#pragma once

#include <memory>

#include "graph/model.h"

namespace weft {

constexpr int32_t kMostShards = 16;  // the maximum number of inputs of add and concat

// A finished model that computes the same numbers but for the order of additions. With one shard,
// `whole` itself. Errors name the node that cannot be divided. The result borrows ops from `whole`.
Result<std::shared_ptr<const Model>> shard(const std::shared_ptr<const Model>& whole,
                                           int32_t shards);

}  // namespace weft
