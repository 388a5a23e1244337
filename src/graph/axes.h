// The axes of an SPMD model. The model is one program that runs at each coordinate of a mesh of
// axes. Its nodes use the values of one coordinate, which have the same shape at all coordinates.
// Inputs, parameters and outputs are tensors outside of the program, and may be cut over axes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/shape.h"

namespace weft {

constexpr int32_t kMostCoordinates = 16;  // of an axis: the maximum of add and concat

struct ModelAxis {
  std::string name;
  int32_t size;
};

// Dimension `dim` of a tensor is cut over an axis into equal pieces. A piece of one index may drop
// the dimension.
struct AxisCut {
  int32_t dim;
  int32_t axis;
  bool drop;
};

// The shape of a piece from that of the whole, and the reverse. Cuts ascend by dimension.
Result<Shape> local_shape(Shape whole, std::span<const AxisCut> cuts,
                          const std::vector<ModelAxis>& axes);
Result<Shape> whole_shape(const Shape& local, std::span<const AxisCut> cuts,
                          const std::vector<ModelAxis>& axes);

// Coordinates of a mesh as numbers from 0; the number along the last axis changes fastest.
class Coordinates {
 public:
  explicit Coordinates(const std::vector<ModelAxis>& axes);
  int32_t count() const { return count_; }
  int32_t along(int32_t coordinate, int32_t axis) const;
  // The same coordinate with another number along an axis.
  int32_t with(int32_t coordinate, int32_t axis, int32_t number) const;

 private:
  std::vector<int32_t> sizes_, strides_;
  int32_t count_ = 1;
};

}  // namespace weft
