// The part of a parameter of the unsharded model that a parameter is.
#pragma once

#include <string>
#include <vector>

#include "graph/cut.h"
#include "tensor/shape.h"

namespace weft {

struct ParamPiece {
  int32_t whole = -1;  // its index in the unsharded model
  std::string name;    // of the whole
  Shape shape;         // of the whole
  struct Part {
    int axis;
    Ranges ranges;
  };
  std::vector<Part> parts = {};  // ascending by axis; the piece is whole along the other axes

  bool is_whole() const { return parts.empty(); }

  // Elements that are adjacent in the piece and in the whole.
  struct Run {
    int64_t in_whole, count;
  };
  // The adjacent elements from that element of the piece on.
  Run run_at(int64_t element) const;
};

}  // namespace weft
