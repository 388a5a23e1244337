// Elements of a packed matrix (kernels/packed.h; in bf16 kernels/bf16_pack.h), as floats in the
// order of the matrix that was packed.
#pragma once

#include <span>

#include "kernels/bf16.h"
#include "tensor/shape.h"

namespace weft::kernels {

// A packed B[k,n]. The matrix is B, or if `transposed` B transposed; its rows follow each other.
struct PackedMatrix {
  DType dtype = DType::f32;  // or bf16
  int64_t k = 0, n = 0;
  bool transposed = false;
  void* data = nullptr;
};

// What an update of a weight writes beside its float32 elements.
struct WeightCopies {
  std::span<const PackedMatrix> packed = {};  // of the weight, then a matrix
  Bf16* in_order = nullptr;                   // rounded as to_bf16() does
};

// Elements of a row of the matrix.
inline int64_t width_of(const PackedMatrix& matrix) {
  return matrix.transposed ? matrix.k : matrix.n;
}

// write_packed() is fastest for this many rows, or a multiple, from a multiple on.
constexpr int64_t kPackedRows = 32;

// The elements of the matrix from `first` on. As bf16, they are rounded as to_bf16() does. Threads
// may write different elements at once.
void write_packed(const PackedMatrix& matrix, int64_t first, std::span<const float> values);
// To several forms of one matrix, which is faster.
void write_packed(std::span<const PackedMatrix> forms, int64_t first,
                  std::span<const float> values);
void read_packed(const PackedMatrix& matrix, int64_t first, std::span<float> out);

}  // namespace weft::kernels
