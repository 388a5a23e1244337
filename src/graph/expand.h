// Expansion: converts an SPMD model (axes.h) to a model that contains each node once per
// coordinate. The result is an ordinary model, like that of shard(): a collective is a pattern of
// slices, sums, joins and edges, which determine its gradient.
//
// Model inputs and outputs become whole and keep their names and order, and the loss is that of
// coordinate 0. Node::origin and Param::piece refer to the SPMD model.
#pragma once

#include <memory>

#include "graph/model.h"

namespace weft {

// A finished model. Errors name the node that cannot be expanded. The result borrows ops from
// `program`.
Result<std::shared_ptr<const Model>> expand(const Model& program);

}  // namespace weft
