#include "graph/piece.h"

namespace weft {

namespace {

// For an index of the piece: its index in the whole axis, and how many follow in its range.
Range locate(const Ranges& ranges, int64_t index) {
  size_t r = 0;
  for (; index >= ranges[r].size(); ++r) index -= ranges[r].size();
  return {ranges[r].begin + index, ranges[r].end};
}

}  // namespace

ParamPiece::Run ParamPiece::run_at(int64_t element) const {
  if (is_whole()) return {element, shape.elements() - element};
  // From the last cut axis, where adjacent elements end, to the first.
  const int last = parts.back().axis;
  const int64_t inner = shape.elements(last + 1, shape.rank);
  int64_t in_whole = element % inner, stride = inner, rest = element / inner, count = 0;
  auto part = parts.rbegin();
  for (int axis = last; axis >= 0; --axis) {
    const bool cut = part != parts.rend() && part->axis == axis;
    const int64_t extent = cut ? length_of(part->ranges) : shape[axis];
    const Range at = cut ? locate(part->ranges, rest % extent) : Range{rest % extent, shape[axis]};
    if (axis == last) count = at.size() * inner - in_whole;
    in_whole += at.begin * stride;
    stride *= shape[axis];
    rest /= extent;
    if (cut) ++part;
  }
  return {in_whole, count};
}

}  // namespace weft
