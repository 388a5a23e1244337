#include "graph/piece.h"

namespace weft {

ParamPiece::Run ParamPiece::run_at(int64_t element) const {
  if (is_whole()) return {element, shape.elements() - element};
  const int64_t inner = shape.elements(axis + 1, shape.rank);
  const int64_t row = length_of(ranges) * inner;
  int64_t rest = element % row;
  size_t r = 0;
  for (; rest >= ranges[r].size() * inner; ++r) rest -= ranges[r].size() * inner;
  const int64_t begin = element / row * shape[axis] + ranges[r].begin;
  return {begin * inner + rest, ranges[r].size() * inner - rest};
}

}  // namespace weft
