#include "graph/axes.h"

#include "base/text.h"

namespace weft {

Result<Shape> local_shape(Shape whole, std::span<const AxisCut> cuts,
                          const std::vector<ModelAxis>& axes) {
  const Shape given = whole;
  for (size_t i = cuts.size(); i-- > 0;) {  // a dropped dimension moves only later ones
    const auto& [dim, axis, drop] = cuts[i];
    const ModelAxis& over = axes[static_cast<size_t>(axis)];
    if (dim < 0 || dim >= given.rank)
      return Status(Code::invalid, cat("dimension ", dim, " is cut, expected one of ", given.text(),
                                       ", 0 to ", given.rank - 1));
    if (whole[dim] % over.size != 0)
      return Status(Code::invalid,
                    cat("dimension ", dim, " of ", given.text(), " is ", whole[dim],
                        ", expected a multiple of axis '", over.name, "', ", over.size));
    whole[dim] /= over.size;
    if (!drop) continue;
    if (whole[dim] != 1)
      return Status(Code::invalid, cat("dimension ", dim, " of ", given.text(), " has ", whole[dim],
                                       " indices per coordinate of axis '", over.name,
                                       "', expected 1 where the dimension is dropped"));
    for (int d = dim; d + 1 < whole.rank; ++d) whole[d] = whole[d + 1];
    --whole.rank;
    whole[whole.rank] = 0;
  }
  return whole;
}

Result<Shape> whole_shape(const Shape& local, std::span<const AxisCut> cuts,
                          const std::vector<ModelAxis>& axes) {
  Shape whole = local;
  for (const auto& [dim, axis, drop] : cuts) {
    if (drop && whole.rank == kMaxRank)
      return Status(Code::invalid,
                    cat(local.text(), " has no room for another dimension, at most ", kMaxRank));
    if (dim < 0 || dim >= whole.rank + (drop ? 1 : 0))
      return Status(Code::invalid, cat("dimension ", dim, " is cut, expected one of ", whole.text(),
                                       ", 0 to ", whole.rank - (drop ? 0 : 1)));
    if (drop) {
      for (int d = whole.rank; d > dim; --d) whole[d] = whole[d - 1];
      ++whole.rank;
      whole[dim] = 1;
    }
    if (__builtin_mul_overflow(whole[dim], axes[static_cast<size_t>(axis)].size, &whole[dim]))
      return Status(Code::invalid, cat("dimension ", dim, " is longer than 64 bits can count"));
  }
  return whole;
}

Coordinates::Coordinates(const std::vector<ModelAxis>& axes) : strides_(axes.size()) {
  for (const ModelAxis& axis : axes) sizes_.push_back(axis.size);
  for (size_t a = axes.size(); a-- > 0;) {
    strides_[a] = count_;
    count_ *= sizes_[a];
  }
}

int32_t Coordinates::along(int32_t coordinate, int32_t axis) const {
  const auto a = static_cast<size_t>(axis);
  return coordinate / strides_[a] % sizes_[a];
}

int32_t Coordinates::with(int32_t coordinate, int32_t axis, int32_t number) const {
  return coordinate + (number - along(coordinate, axis)) * strides_[static_cast<size_t>(axis)];
}

}  // namespace weft
