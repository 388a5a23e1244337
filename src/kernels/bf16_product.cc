#include "kernels/bf16_product.h"

#include <algorithm>
#include <cassert>

#include <hwy/cache_control.h>

#include "kernels/fpenv.h"

namespace weft::kernels {

namespace {

// A tile of a product: wide if k is short, since C is then most of the traffic.
constexpr int64_t kShort = 256, kColumns = 128, kWideColumns = 1024, kWideRows = 64;

// With a long k, reading A for each tile takes much of the time of many rows on AMX.
int64_t tile_columns(const Bf16Product& g, Bf16Unit unit) {
  if (g.k <= kShort) return kWideColumns;
  return unit == Bf16Unit::amx && g.k > kBf16Long && g.m >= kWideRows ? kBf16LongColumns : kColumns;
}

bool lies_past_caches(const Bf16Product& g) {
  constexpr int64_t kLine = 64, kLineFloats = kLine / static_cast<int64_t>(sizeof(float));
  return g.past_caches && g.c_row % kLineFloats == 0 &&
         reinterpret_cast<uintptr_t>(g.c) % kLine == 0;
}

// What bf16_weight_grad() packs at once.
constexpr int64_t kGradRows = 256, kGradSide = 4096;
static_assert(kGradRows % kBf16Chunk == 0 && kGradSide % kBf16Panel == 0);

// Elements of a packed piece of X and of dY.
int64_t piece_elements(int64_t rows, int64_t side) {
  return bf16_panels(std::min(side, kGradSide)) * bf16_panel_elements(std::min(rows, kGradRows));
}

// Rows `begin` and on of a weight gradient's sums.
void add_rows(const Bf16WeightGrad& g, int64_t begin, Tiles& tiles, Bf16Unit unit) {
  auto* x = reinterpret_cast<Bf16*>(g.scratch);
  Bf16* dy = x + piece_elements(g.rows, g.k);
  const int64_t rows = std::min(kGradRows, g.rows - begin), depth = bf16_chunks(rows) * kBf16Chunk;
  for (int64_t j = 0; j < g.n; j += kGradSide) {
    const int64_t columns = std::min(kGradSide, g.n - j);
    const Bf16* source = g.dy + begin * g.dy_row + j;
    pack_bf16(PackBf16<Bf16>{rows, columns, source, g.dy_row, false, dy}, tiles);
    for (int64_t i = 0; i < g.k; i += kGradSide) {
      const int64_t height = std::min(kGradSide, g.k - i);
      transpose_bf16(rows, height, g.x + begin * g.x_row + i, g.x_row, x, tiles);
      const Bf16Product product{.m = height,
                                .n = columns,
                                .k = depth,
                                .a = x,
                                .a_row = depth,
                                .b = dy,
                                .c = g.acc + i * g.acc_row + j,
                                .c_row = g.acc_row,
                                .add = g.add || begin > 0,
                                .past_caches = g.past_caches && g.rows <= kGradRows};
      bf16_product(product, tiles, unit);
    }
  }
}

}  // namespace

void bf16_product(const Bf16Product& g, Tiles& tiles, Bf16Unit unit) {
  if (g.m == 0 || g.n == 0) return;
  assert(!g.c != !g.rounded && !(g.add && (g.bias || g.rounded || g.past_caches)));
  const int64_t height = g.k <= kShort ? kWideRows : kBf16BlockRows;
  const int64_t width = tile_columns(g, unit);
  const bool past_caches = lies_past_caches(g);
  const int64_t across = (g.n + width - 1) / width, down = (g.m + height - 1) / height;
  for_tiles(tiles, static_cast<int>(across * down), [&](int tile) {
    const int64_t i = tile / across * height, j = tile % across * width;
    Bf16Product block = g;
    block.m = std::min(height, g.m - i);
    block.n = std::min(width, g.n - j);
    block.past_caches = past_caches;
    block.a += i * g.a_row;
    block.b += j / kBf16Panel * bf16_panel_elements(g.k);
    if (g.bias) block.bias += j;
    if (g.c)
      block.c += i * g.c_row + j;
    else
      block.rounded += i * g.c_row + j;
    const FlushScope scope;
    if (unit == Bf16Unit::amx)
      bf16_block_amx(block);
    else
      bf16_block_fma(block);
    if (past_caches) hwy::FlushStream();
  });
}

int64_t bf16_weight_grad_bytes(int64_t rows, int64_t k, int64_t n) {
  return (piece_elements(rows, k) + piece_elements(rows, n)) * static_cast<int64_t>(sizeof(Bf16));
}

void bf16_weight_grad(const Bf16WeightGrad& g, Tiles& tiles, Bf16Unit unit) {
  int64_t begin = 0;
  do {  // also without rows, which clears acc
    add_rows(g, begin, tiles, unit);
    begin += kGradRows;
  } while (begin < g.rows);
}

Bf16Unit bf16_unit() { return bf16_has_amx() ? Bf16Unit::amx : Bf16Unit::fma; }

const char* bf16_info() { return bf16_unit() == Bf16Unit::amx ? "AMX" : "FMA"; }

}  // namespace weft::kernels
