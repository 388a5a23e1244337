#include "graph/movement.h"

#include <algorithm>

namespace weft {

Result<NodeId> Movement::add_node(const Op& op, const Attrs& attrs, const std::vector<NodeId>& in,
                                  NodeOrigin origin) {
  return model_.add_node(names_.movement(whole_.node(origin.node).name, op.name()), &op, attrs, in,
                         {}, origin);
}

Result<NodeId> Movement::slice(NodeId from, int axis, Range range, NodeOrigin origin) {
  if (range == Range{0, extent(from, axis)}) return from;
  Attrs attrs;
  attrs.axis = axis;
  attrs.begin = range.begin;
  attrs.end = range.end;
  return add_node(*find_op("slice"), attrs, {from}, origin);
}

Result<NodeId> Movement::concat(const std::vector<NodeId>& parts, int axis, NodeOrigin origin) {
  if (parts.size() == 1) return parts.front();
  Attrs attrs;
  attrs.axis = axis;
  return add_node(*find_op("concat"), attrs, parts, origin);
}

Result<NodeId> Movement::sum(const std::vector<NodeId>& addends, NodeOrigin origin) {
  if (addends.size() == 1) return addends.front();
  return add_node(*find_op("add"), {}, addends, origin);
}

Result<NodeId> Movement::reshape(NodeId from, const Shape& shape, NodeOrigin origin) {
  Attrs attrs;
  attrs.dims = shape;
  attrs.dims[0] = -1;
  return add_node(*find_op("reshape"), attrs, {from}, origin);
}

Result<NodeId> Movement::zeros_like(NodeId value, NodeOrigin origin) {
  return add_node(zeros_op(), {}, {value}, origin);
}

std::vector<Movement::PieceRange> Movement::find(const Pieces& value, int axis,
                                                 const Ranges& wanted) const {
  std::vector<Ranges> pieces = value.cut.pieces;
  if (value.cut.whole()) pieces = {{{0, extent(value.nodes.front(), axis)}}};
  std::vector<PieceRange> all;  // of the whole axis, by first index
  std::vector<int64_t> begins;
  for (size_t p = 0; p < pieces.size(); ++p) {
    int64_t local = 0;
    for (const Range& range : pieces[p]) {
      const auto at = std::lower_bound(begins.begin(), begins.end(), range.begin) - begins.begin();
      begins.insert(begins.begin() + at, range.begin);
      all.insert(all.begin() + at, {p, {local, local + range.size()}});
      local += range.size();
    }
  }
  std::vector<PieceRange> out;
  for (const Range& range : wanted)
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t begin = std::max(range.begin, begins[i]);
      const int64_t end = std::min(range.end, begins[i] + all[i].local.size());
      if (begin >= end) continue;
      const int64_t shift = all[i].local.begin - begins[i];
      const Range local{begin + shift, end + shift};
      if (!out.empty() && out.back().piece == all[i].piece && out.back().local.end == local.begin)
        out.back().local.end = local.end;
      else
        out.push_back({all[i].piece, local});
    }
  return out;
}

Result<NodeId> Movement::fetch_along(const Pieces& value, int axis, const Ranges& wanted,
                                     int32_t coordinate, NodeId origin) {
  std::vector<NodeId> parts;
  for (const PieceRange& range : find(value, axis, wanted)) {
    const auto at = static_cast<int32_t>(range.piece);
    WEFT_TRY_ASSIGN(const NodeId part,
                    slice(value.nodes[range.piece], axis, range.local, {origin, at}));
    parts.push_back(part);
  }
  return concat(parts, axis, {origin, coordinate});
}

Result<NodeId> Movement::fetch(const Pieces& value, const Cut& wanted, int32_t coordinate,
                               NodeId origin) {
  if (value.cut.whole() && wanted.whole()) return value.nodes.front();
  if (wanted.whole()) {
    Ranges all;  // of the whole axis, in order
    for (const Ranges& piece : value.cut.pieces) all.insert(all.end(), piece.begin(), piece.end());
    std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.begin < b.begin; });
    return fetch_along(value, value.cut.axis, all, coordinate, origin);
  }
  const Ranges& ranges = wanted.pieces[static_cast<size_t>(coordinate)];
  if (value.cut.whole() || value.cut.axis == wanted.axis)
    return fetch_along(value, wanted.axis, ranges, coordinate, origin);
  // From one axis to another: each coordinate sends a slice of its piece to each coordinate.
  Pieces sliced{.cut = value.cut, .nodes = {}};
  for (size_t p = 0; p < value.nodes.size(); ++p) {
    const Pieces one{.cut = {}, .nodes = {value.nodes[p]}};
    WEFT_TRY_ASSIGN(const NodeId part,
                    fetch_along(one, wanted.axis, ranges, static_cast<int32_t>(p), origin));
    sliced.nodes.push_back(part);
  }
  return fetch(sliced, {}, coordinate, origin);
}

Result<Pieces> Movement::add(const std::vector<NodeId>& addends, const Cut& wanted, NodeId origin) {
  Pieces out{.cut = wanted, .nodes = {}};
  const size_t pieces = wanted.whole() ? 1 : wanted.pieces.size();
  for (size_t r = 0; r < pieces; ++r) {
    std::vector<NodeId> parts = addends;
    for (size_t t = 0; t < parts.size() && !wanted.whole(); ++t) {
      WEFT_TRY_ASSIGN(parts[t], slice(addends[t], wanted.axis, wanted.pieces[r].front(),
                                      {origin, static_cast<int32_t>(t)}));
    }
    WEFT_TRY_ASSIGN(const NodeId made, sum(parts, {origin, static_cast<int32_t>(r)}));
    out.nodes.push_back(made);
  }
  return out;
}

}  // namespace weft
