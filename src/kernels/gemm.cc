// Selects the kernel and the tiles of a product. The tiles depend only on the product's shape.
#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>

#include "base/text.h"
#include "kernels/gemm_fused.h"
#include "kernels/packed.h"
#include "kernels/target.h"

namespace weft {

namespace {

// Minimal number of rows or columns; a multiple of the micro-kernels' block sizes on skx and
// haswell, so that tiles have no partial blocks.
constexpr int64_t kUnit = 96, kSmallest = 384, kUsual = 768;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr double kWorthSplitting = 4e6;

double work(int64_t m, int64_t n, int64_t k) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// BLIS does not read a packed factor; it multiplies by one strip of it after the other.
void blis_strips(const Gemm& g) {
  if (!g.packed_b) return blis_product(g);
  for (int64_t j = 0; j < g.n; j += kStrip) {
    Gemm part = g;
    part.n = std::min(kStrip, g.n - j);
    part.b = {g.packed_b + j * g.k, kStrip};
    part.c += j;
    part.packed_b = nullptr;
    blis_product(part);
  }
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
  assert(g.a.stride >= (g.a.transposed ? g.m : g.k) && g.stride >= g.n);
  assert(g.packed_b || g.b.stride >= (g.b.transposed ? g.k : g.n));
  if (gemm_is_fused()) return kernels::fused_product(g);
  blis_strips(g);
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
      if (g.packed_b)
        part.packed_b += begin * g.k;
      else
        part.b.data += begin * (g.b.transposed ? g.b.stride : 1);
      part.c += begin;
    }
    gemm_tile(part);
  });
}

bool gemm_is_fused() { return kernels::has_fused(); }

void init_gemm() {
  if (!gemm_is_fused()) init_blis();
}

GemmInfo gemm_info() {
  if (!gemm_is_fused()) return blis_info();
  GemmInfo info;
  info.target = simd_target();
  info.library = blis_version();
  return info;
}

std::string GemmInfo::text() const {
  if (!target.empty())
    return cat("fp32: weft kernels, ", target, "; ", library, " is the fallback");
  std::string out = cat("fp32: ", library, ", ", kernels, " kernels");
  if (set_by_host) out += " (BLIS_ARCH_TYPE is set)";
  if (!slow) return out;
  out += ": slow";
  if (!best.empty()) out += cat(", this processor runs ", best);
  return out;
}

}  // namespace weft
