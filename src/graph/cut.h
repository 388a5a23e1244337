// How a tensor is cut into pieces along one dimension, one piece per coordinate.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

using Ranges = std::vector<Range>;  // a piece contains them one after another

int64_t length_of(const Ranges& ranges);

struct Cut {
  int axis = -1;               // -1: the tensor is whole
  std::vector<Ranges> pieces;  // per coordinate; each index of the axis is in one piece
  bool whole() const { return axis < 0; }
  friend bool operator==(const Cut&, const Cut&) = default;
};

// Cuts each of `groups` equal parts of the axis between units of `unit` indices. A piece has one
// range of each part. The numbers of units in the pieces differ by at most one.
Cut even_cut(int axis, int64_t extent, int32_t pieces, int32_t groups = 1, int64_t unit = 1);

}  // namespace weft
