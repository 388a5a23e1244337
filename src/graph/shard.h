// Sharding: makes of a model one whose nodes are pieces of the nodes of that model, so that several
// processors can share the work of one node. The result is an ordinary model: the collectives of
// tensor parallelism are slices, concats and sums in it, and their gradients follow.
//
// Each piece has a coordinate from 0 to shards - 1. Model inputs, outputs and the loss stay whole,
// and keep their order; inputs keep their names. Node::origin and Param::piece lead back to the
// model that was sharded: dropout, first values, files and digests go by it.
#pragma once

#include <memory>

#include "graph/model.h"

namespace weft {

constexpr int32_t kMostShards = 16;  // what add and concat take

// A finished model that computes the same numbers but for the order of additions. With one shard,
// `whole` itself. Errors name the node that cannot be divided. The result borrows ops from `whole`.
Result<std::shared_ptr<const Model>> shard(const std::shared_ptr<const Model>& whole,
                                           int32_t shards);

}  // namespace weft
