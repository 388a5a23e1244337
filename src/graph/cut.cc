#include "graph/cut.h"

namespace weft {

int64_t length_of(const Ranges& ranges) {
  int64_t length = 0;
  for (const Range& range : ranges) length += range.size();
  return length;
}

Cut even_cut(int axis, int64_t extent, int32_t pieces, int32_t groups, int64_t unit) {
  Cut out{.axis = axis, .pieces = {}};
  const int64_t part = extent / groups, units = part / unit;
  for (int32_t piece = 0; piece < pieces; ++piece) {
    Ranges& ranges = out.pieces.emplace_back();
    for (int32_t group = 0; group < groups; ++group)
      ranges.push_back({group * part + piece * units / pieces * unit,
                        group * part + (piece + 1) * units / pieces * unit});
  }
  return out;
}

}  // namespace weft
