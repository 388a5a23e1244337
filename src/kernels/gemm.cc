// Selects the kernel and the tiles of a product. Both depend only on the product's shape.
#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>

#include "kernels/block_product.h"

namespace weft {

namespace {

// Minimal number of rows or columns; a multiple of the micro-kernels' block sizes on skx and
// haswell, so that tiles have no partial blocks.
constexpr int64_t kUnit = 96, kSmallest = 384, kUsual = 768;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr double kWorthSplitting = 4e6;

// BLIS packs both factors, which takes microseconds. Measured with its skx kernels, block_product
// is faster if one side is short (two to three times at 64 x 64 x 64, sixty times at 16 x 16 x 4),
// and about equally fast at these bounds.
constexpr int64_t kShort = 64;
constexpr double kSmall = 4e6;

double work(int64_t m, int64_t n, int64_t k) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

bool is_small(const Gemm& g) {
  return (g.beta == 0 || g.beta == 1) &&
         (std::min(g.m, g.n) <= kShort || work(g.m, g.n, g.k) <= kSmall);
}

}  // namespace

// Measured with the skx kernels on GPT-2's shapes: each tile packs the operand that is not cut once
// more, which costs 3 % at 768 columns, 6 % at 384, 15 % at 192. So four tiles where they stay at
// 384 or more, and more only when they are 768 wide.
GemmSplit gemm_split(int64_t m, int64_t n, int64_t k) {
  GemmSplit split;
  split.rows = m > n;
  const int64_t length = std::max(m, n);
  int64_t count = length >= 4 * kUsual ? (length + kUsual - 1) / kUsual
                                       : std::min<int64_t>(4, length / kSmallest);
  if (work(m, n, k) < kWorthSplitting || count < 1) count = 1;
  const int64_t even = (length + count - 1) / count;
  split.block = count == 1 ? length : (even + kUnit - 1) / kUnit * kUnit;
  split.count = count == 1 ? 1 : static_cast<int>((length + split.block - 1) / split.block);
  return split;
}

void gemm_tile(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  assert(g.a.stride >= (g.a.transposed ? g.m : g.k) && g.b.stride >= (g.b.transposed ? g.k : g.n) &&
         g.stride >= g.n);
  if (!is_small(g)) return blis_product(g);
  const auto row = [](const Factor& f) { return f.transposed ? 1 : f.stride; };
  const auto column = [](const Factor& f) { return f.transposed ? f.stride : 1; };
  kernels::block_product({g.m, g.n, g.k, g.a.data, row(g.a), column(g.a), g.b.data, row(g.b),
                          column(g.b), g.c, g.stride, g.alpha, g.beta == 1});
}

void gemm(const Gemm& g, Tiles& tiles) {
  const GemmSplit split = gemm_split(g.m, g.n, g.k);
  if (split.count == 1) return gemm_tile(g);
  for_tiles(tiles, split.count, [&](int tile) {
    const int64_t begin = tile * split.block;
    Gemm part = g;
    if (split.rows) {
      part.m = std::min(split.block, g.m - begin);
      part.a.data += begin * (g.a.transposed ? 1 : g.a.stride);
      part.c += begin * g.stride;
    } else {
      part.n = std::min(split.block, g.n - begin);
      part.b.data += begin * (g.b.transposed ? g.b.stride : 1);
      part.c += begin;
    }
    gemm_tile(part);
  });
}

}  // namespace weft
