// Data movement of a sharded model: nodes that convert a value from one division to another. The
// coordinate that has a value slices it, so that only the elements that are read move.
#pragma once

#include <vector>

#include "graph/cut.h"
#include "graph/model.h"
#include "graph/piece_names.h"

namespace weft {

// A value of the unsharded model in the sharded one.
struct Pieces {
  Cut cut;
  std::vector<NodeId> nodes;  // per coordinate; for a whole value, only coordinate 0
};

class Movement {
 public:
  // Nodes are added to `model`. Origins are nodes of `whole`.
  Movement(const Model& whole, Model& model, PieceNames& names)
      : whole_(whole), model_(model), names_(names) {}

  // The piece of a value for a coordinate under a cut, for a node made from `origin`.
  Result<NodeId> fetch(const Pieces& value, const Cut& wanted, int32_t coordinate, NodeId origin);
  // The sum of one addend per coordinate, divided as `wanted` says: a reduce-scatter, or a sum at
  // coordinate 0.
  Result<Pieces> add(const std::vector<NodeId>& addends, const Cut& wanted, NodeId origin);

  // One node, or the value itself if there is nothing to do.
  Result<NodeId> slice(NodeId from, int axis, Range range, NodeOrigin origin);
  Result<NodeId> concat(const std::vector<NodeId>& parts, int axis, NodeOrigin origin);
  Result<NodeId> sum(const std::vector<NodeId>& addends, NodeOrigin origin);
  // The same elements in another shape, of one sample.
  Result<NodeId> reshape(NodeId from, const Shape& shape, NodeOrigin origin);
  Result<NodeId> zeros_like(NodeId value, NodeOrigin origin);

 private:
  // Where the elements of a list of ranges are: adjacent elements in a piece.
  struct PieceRange {
    size_t piece;
    Range local;
  };
  int64_t extent(NodeId node, int axis) const { return model_.node(node).one.out.shape[axis]; }
  std::vector<PieceRange> find(const Pieces& value, int axis, const Ranges& wanted) const;
  Result<NodeId> fetch_along(const Pieces& value, int axis, const Ranges& wanted,
                             int32_t coordinate, NodeId origin);
  Result<NodeId> add_node(const Op& op, const Attrs& attrs, const std::vector<NodeId>& in,
                          NodeOrigin origin);

  const Model& whole_;
  Model& model_;
  PieceNames& names_;
};

}  // namespace weft
