// Elements of a packed matrix (kernels/bf16_pack.h), in the order of the matrix that was packed.
#pragma once

#include "kernels/bf16_pack.h"

namespace weft::kernels {

// A packed B[k,n]. The matrix is B, or if `transposed` B transposed; its rows follow each other.
struct PackedBf16 {
  int64_t k = 0, n = 0;
  bool transposed = false;
  Bf16* data = nullptr;  // packed_bf16_bytes(k, n)
};

// The elements first .. first + count - 1 of the matrix.
void write_packed(const PackedBf16& matrix, int64_t first, int64_t count, const Bf16* from);
void read_packed(const PackedBf16& matrix, int64_t first, int64_t count, Bf16* out);

}  // namespace weft::kernels
