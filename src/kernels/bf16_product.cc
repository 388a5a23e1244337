#include "kernels/bf16_product.h"

#include <algorithm>
#include <array>
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
constexpr int64_t kGradChunks = 8, kGradSide = 4096;
static_assert(kGradSide % kBf16Panel == 0);

// Elements of a packed piece of X and of dY.
int64_t piece_elements(int64_t chunks, int64_t side) {
  return bf16_panels(std::min(side, kGradSide)) *
         bf16_panel_elements(std::min(chunks, kGradChunks) * kBf16Chunk);
}

// The next chunks of a weight gradient: rows of one part or of several.
struct Batch {
  std::array<Bf16Rows, kGradChunks> pieces;
  std::array<int64_t, kGradChunks> first;  // chunk of each piece
  size_t count = 0;
  int64_t chunks = 0;

  void add(const Bf16Rows& piece) {
    pieces[count] = piece;
    first[count++] = chunks;
    chunks += bf16_chunks(piece.rows);
  }
};

// Takes the next rows of the parts.
class Batches {
 public:
  explicit Batches(const Bf16WeightGrad& g) : g_(g) {}

  Batch next() {
    Batch batch;
    while (part_ < g_.parts.size() && batch.chunks < kGradChunks) {
      const Bf16Rows& part = g_.parts[part_];
      const int64_t room = (kGradChunks - batch.chunks) * kBf16Chunk;
      const int64_t rows = std::min(room, part.rows - begin_);
      if (rows > 0) batch.add({rows, part.x + begin_ * g_.x_row, part.dy + begin_ * g_.dy_row});
      begin_ += rows;
      if (begin_ < part.rows) break;
      begin_ = 0;
      ++part_;
    }
    return batch;
  }
  bool is_done() const { return part_ == g_.parts.size(); }

 private:
  const Bf16WeightGrad& g_;
  size_t part_ = 0;
  int64_t begin_ = 0;  // in the part
};

void add_batch(const Bf16WeightGrad& g, const Batch& batch, bool add, bool past_caches,
               Tiles& tiles, Bf16Unit unit) {
  auto* const x = reinterpret_cast<Bf16*>(g.scratch);
  const int64_t depth = batch.chunks * kBf16Chunk;
  Bf16* const dy = x + piece_elements(batch.chunks, g.k);
  for (int64_t j = 0; j < g.n; j += kGradSide) {
    const int64_t columns = std::min(kGradSide, g.n - j);
    for (size_t p = 0; p < batch.count; ++p)
      pack_bf16(PackBf16<Bf16>{.k = batch.pieces[p].rows,
                               .n = columns,
                               .b = batch.pieces[p].dy + j,
                               .stride = g.dy_row,
                               .out = dy + batch.first[p] * kBf16Chunk * kBf16Panel,
                               .whole_k = depth,
                               .whole_n = columns},
                tiles);
    for (int64_t i = 0; i < g.k; i += kGradSide) {
      const int64_t height = std::min(kGradSide, g.k - i);
      for (size_t p = 0; p < batch.count; ++p)
        transpose_bf16(batch.pieces[p].rows, height, batch.pieces[p].x + i, g.x_row,
                       x + batch.first[p] * kBf16Chunk, depth, tiles);
      const Bf16Product product{.m = height,
                                .n = columns,
                                .k = depth,
                                .a = x,
                                .a_row = depth,
                                .b = dy,
                                .c = g.acc + i * g.acc_row + j,
                                .c_row = g.acc_row,
                                .add = add,
                                .past_caches = past_caches};
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

int64_t bf16_weight_grad_bytes(int64_t chunks, int64_t k, int64_t n) {
  return (piece_elements(chunks, k) + piece_elements(chunks, n)) *
         static_cast<int64_t>(sizeof(Bf16));
}

void bf16_weight_grad(const Bf16WeightGrad& g, Tiles& tiles, Bf16Unit unit) {
  Batches batches(g);
  bool add = g.add;
  do {  // also without rows, which clears acc
    const Batch batch = batches.next();
    const bool whole = !add && batches.is_done();
    add_batch(g, batch, add, g.past_caches && whole, tiles, unit);
    add = true;
  } while (!batches.is_done());
}

Bf16Unit bf16_unit() { return bf16_has_amx() ? Bf16Unit::amx : Bf16Unit::fma; }

const char* bf16_info() { return bf16_unit() == Bf16Unit::amx ? "AMX" : "FMA"; }

}  // namespace weft::kernels
