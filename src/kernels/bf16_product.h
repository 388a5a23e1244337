// Products of bf16 matrices with sums in float32, by AMX where the processor has it, otherwise by
// fused multiply-adds. Both give the same bits.
//
// The contract of bits. k is padded with zeros to chunks of 32. Each element c of C begins with 0,
// or with its value if the product is added. Then for each chunk, ascending:
//
//   even = fma(a[2r], b[2r], even)           for r = 0 .. 15, from +0
//   odd  = fma(a[2r + 1], b[2r + 1], odd)    for r = 0 .. 15, from +0
//   c    = c + (even + odd)
//
// At the end the bias is added, and a result in bf16 is rounded. All of these round to nearest
// even, and a subnormal operand or result of any of them is a zero of the same sign; only the
// rounding to bf16 keeps subnormal numbers. So the bits do not depend on how m and n are cut, and k
// may be cut at multiples of 32, in order. Only the sign and payload of a NaN in float32 are
// unspecified. Two kinds of processor may differ where numbers overflow or leave the normal range:
// x86 without FMA rounds each product; ARM flushes what would be rounded up to 2^-126.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/bf16_pack.h"
#include "kernels/tiles.h"

namespace weft::kernels {

// C[m,n] = A[m,k] B[k,n] (+ bias). Rows of A and C are a_row and c_row elements apart. C is `c` or
// `rounded`, and overlaps neither A nor B.
struct Bf16Product {
  int64_t m = 0, n = 0, k = 0;
  const Bf16* a = nullptr;
  int64_t a_row = 0;
  const Bf16* b = nullptr;  // packed
  float* c = nullptr;
  Bf16* rounded = nullptr;
  int64_t c_row = 0;
  const float* bias = nullptr;  // n floats; none with `add`
  bool add = false;             // the product is added to c
  bool past_caches = false;     // c is read much later, and is large; not with `add`
};

// Rows of X and of dY.
struct Bf16Rows {
  int64_t rows = 0;
  const Bf16* x = nullptr;
  const Bf16* dy = nullptr;
};

// acc[k,n] = X^T[k,rows] dY[rows,n], or that added to acc, for one part after another. The sums run
// over chunks of 32 rows of each part.
struct Bf16WeightGrad {
  std::span<const Bf16Rows> parts;
  int64_t k = 0, n = 0;
  int64_t x_row = 0, dy_row = 0;
  float* acc = nullptr;
  int64_t acc_row = 0;
  bool add = false;
  bool past_caches = false;      // acc is read much later, and is large; not with `add`
  std::byte* scratch = nullptr;  // bf16_weight_grad_bytes() of its chunks, aligned to 64
};

// What computes.
enum class Bf16Unit { fma, amx };
bool bf16_has_amx();   // asks the operating system once for its use
Bf16Unit bf16_unit();  // the faster one that this process has

void bf16_product(const Bf16Product& product, Tiles& tiles, Bf16Unit unit = bf16_unit());

int64_t bf16_weight_grad_bytes(int64_t chunks, int64_t k, int64_t n);
void bf16_weight_grad(const Bf16WeightGrad& grad, Tiles& tiles, Bf16Unit unit = bf16_unit());

// For people: "AMX" or "FMA".
const char* bf16_info();

// Only for bf16_product.cc: at most kBf16BlockRows rows of a product, in the thread and mode of the
// caller, a FlushScope. What goes past the caches is aligned to 64 bytes, and so are its rows. A
// block with more than kBf16Long elements of k has at most kBf16LongColumns columns.
constexpr int64_t kBf16BlockRows = 256, kBf16Long = 8192, kBf16LongColumns = 384;
void bf16_block_fma(const Bf16Product& block);
void bf16_block_amx(const Bf16Product& block);

}  // namespace weft::kernels
