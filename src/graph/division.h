// Which nodes of a model are computed in pieces, and how: the table of how each op is sharded,
// applied to a model.
#pragma once

#include <string_view>
#include <vector>

#include "graph/cut.h"
#include "graph/model.h"

namespace weft {

// How a tensor of a node is divided among the coordinates.
enum class Along : uint8_t {
  nothing,  // all of it is at every coordinate
  once,     // weights: all of it is at coordinate 0 only
  first,    // cut along the first dimension
  second,   // cut along the second dimension
  last,     // cut along the last dimension
  heads,    // cut along the last dimension, between the heads of attention
  groups,   // already cut along the last dimension, between groups as long as weight 0
  input,    // like the first input that is cut
  sum,      // outputs: each coordinate has one addend
  loss,     // outputs: each coordinate has an input of cross_entropy_of_parts
};

struct ShardRule {
  std::string_view op;
  uint32_t mask, flags;  // the rule is for nodes with these flags under the mask
  Along inputs[2];       // input 0; the others
  Along weights[2];
  Along output;
};

struct NodeDivision {
  const ShardRule* rule = nullptr;  // null: coordinate 0 computes the whole node
  std::vector<Cut> inputs, weights;
  Cut output;  // as other nodes read it: for a sum, after the reduce-scatter
};

struct Division {
  int32_t shards;
  std::vector<NodeDivision> nodes;
  std::vector<Cut> params;
};

// Errors name the node that cannot be divided.
Result<Division> divide(const Model& model, int32_t shards);

}  // namespace weft
