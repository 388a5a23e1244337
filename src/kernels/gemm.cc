// Selects the kernel and the tiles of a product.
#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>

#include "base/text.h"
#include "kernels/gemm_fused.h"
#include "kernels/packed.h"
#include "kernels/target.h"

namespace weft {

namespace {

// A product of fewer multiply-adds is not cut: a second thread costs more than it saves.
constexpr double kWorthSplitting = 4e6;
// Of a tile: multiply-adds, and rows or columns. Each tile packs what the others pack too.
constexpr double kTileWork = 1e6;
constexpr int64_t kSmallest = 96, kUsual = 768;

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
    if (g.bias) part.bias += j;
    part.packed_b = nullptr;
    blis_product(part);
  }
}

// What a tile computes.
Gemm cut(const Gemm& g, const GemmSplit& split, int tile) {
  const int64_t begin = tile * split.block;
  Gemm part = g;
  if (split.rows) {
    part.m = std::min(split.block, g.m - begin);
    part.a.data += begin * (g.a.transposed ? 1 : g.a.stride);
    part.c += begin * g.stride;
    return part;
  }
  part.n = std::min(split.block, g.n - begin);
  part.columns_after = std::min(split.block, g.n - begin - part.n);
  if (g.packed_b)
    part.packed_b += begin * g.k;
  else
    part.b.data += begin * (g.b.transposed ? g.b.stride : 1);
  part.c += begin;
  if (g.bias) part.bias += begin;
  return part;
}

// Tiles of at most kKept elements, if the shorter side permits, and 8 or more of a large C. `k`: of
// all parts.
GemmSplit split_of_sum(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kKept = 196608;
  GemmSplit split;
  split.rows = m > n;
  const int64_t length = std::max(m, n), other = std::max<int64_t>(1, std::min(m, n));
  split.block = length;
  if (work(m, n, k) < kWorthSplitting) return split;
  const int64_t most = std::max(kStrip, kKept / other / kStrip * kStrip);
  const int64_t even = (length / 8 + kStrip - 1) / kStrip * kStrip;
  split.block = std::min(most, std::max(even, kSmallest));
  split.count = static_cast<int>((length + split.block - 1) / split.block);
  return split;
}

}  // namespace

// Cuts the longer side. For several threads, into a number of equal tiles that 2 to 16 of them
// share well. For one thread, into few, because each tile packs what the others pack too: of such a
// length that the rows of A of a tile stay in a cache, or a single one if it reads A once.
GemmSplit gemm_split(const Gemm& g, int threads) {
  GemmSplit split;
  split.rows = g.m > g.n;
  const int64_t length = std::max(g.m, g.n);
  split.block = length;
  if (work(g.m, g.n, g.k) < kWorthSplitting) return split;
  const auto most = static_cast<int64_t>(work(g.m, g.n, g.k) / kTileWork);
  const int64_t limit = std::min(length / kSmallest, most);
  const bool one_thread = threads == 1 && gemm_is_fused();
  if (one_thread && !g.packed_b && g.n * g.k <= kGemmChunk) return split;
  int64_t count = std::min(limit, (length + kUsual - 1) / kUsual);
  if (!one_thread)
    for (const int64_t even : {2, 3, 4, 6, 8, 12, 16})
      if (even <= limit) count = std::max(count, even);
  if (count < 2) return split;
  const int64_t even = (length + count - 1) / count;
  split.block = (even + kStrip - 1) / kStrip * kStrip;
  split.count = static_cast<int>((length + split.block - 1) / split.block);
  return split;
}

void gemm_tile(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  assert(g.a.stride >= (g.a.transposed ? g.m : g.k) && g.stride >= g.n);
  assert(!(g.bias || g.past_caches) || g.beta == 0);
  assert(g.packed_b || g.b.stride >= (g.b.transposed ? g.k : g.n));
  if (gemm_is_fused()) return kernels::fused_product(g);
  blis_strips(g);
}

void gemm(const Gemm& g, Tiles& tiles) {
  const GemmSplit split = gemm_split(g, tiles.threads());
  if (split.count == 1) return gemm_tile(g);
  for_tiles(tiles, split.count, [&](int tile) { gemm_tile(cut(g, split, tile)); });
}

// A tile of C stays in the L2 cache while all products are added to it.
void gemm_sum(const Gemm& product, std::span<const GemmPart> parts, Tiles& tiles) {
  const auto part_of = [&](size_t i) {
    Gemm g = product;
    g.k = parts[i].k;
    g.a = parts[i].a;
    g.b = parts[i].b;
    if (i == 0) return g;
    g.beta = 1;
    g.past_caches = false;
    return g;
  };
  // The bits of BLIS may depend on the tiles.
  if (parts.size() == 1 || !gemm_is_fused()) {
    for (size_t i = 0; i < parts.size(); ++i) gemm(part_of(i), tiles);
    return;
  }
  int64_t k = 0;
  for (const GemmPart& part : parts) k += part.k;
  const GemmSplit split = split_of_sum(product.m, product.n, k);
  for_tiles(tiles, split.count, [&](int tile) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && parts[i].k == 0) continue;
      Gemm g = part_of(i);
      g.past_caches = false;  // the next part reads C
      gemm_tile(cut(g, split, tile));
    }
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
