// Blocks of bf16 products by AMX: two by two tiles of sums. The columns of a panel are summed over
// up to 384 elements of k at a time, for all rows, so that this part of B stays in the L1 cache.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/amx.h"
#include "kernels/bf16_product.h"
#include "kernels/bf16_strip.h"

#if WEFT_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft::kernels {

#if WEFT_AMX

namespace {

constexpr int64_t kTile = amx::kTileRows;  // and columns of sums
constexpr int64_t kPairRows = 2 * kTile;
constexpr int64_t kShortChunks = 8;   // of a short k
constexpr int64_t kDepthChunks = 12;  // of a longer one at a time, at most
constexpr int64_t kChunkElements = kBf16Chunk * kBf16Panel;
constexpr int64_t kChunkLines = 2 * kTile;

// Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B.
amx::Config config_of(int64_t rows) {
  const auto first = static_cast<uint8_t>(std::min(rows, kTile));
  const auto second = static_cast<uint8_t>(rows - first);
  amx::Config config;
  for (int tile = 0; tile < amx::kTiles; ++tile) config.row_bytes[tile] = amx::kTileBytes;
  config.rows[0] = config.rows[1] = config.rows[4] = first;
  config.rows[2] = config.rows[3] = config.rows[5] = second ? second : first;
  config.rows[6] = config.rows[7] = kTile;
  return config;
}

// Rows of A, with their distance in bytes.
struct Rows {
  const Bf16* data;
  int64_t row;
};

// Sums of up to 32 rows and the 32 columns of a panel.
struct Sums {
  float* data;
  int64_t row;  // bytes
};

// A stays in the L1 cache if its rows are few; more of them would replace B there.
template <int Tile, bool Stays>
inline void load_a(const Bf16* a, int64_t row) {
  if constexpr (Stays)
    amx::load<Tile>(a, row);
  else
    amx::load_once<Tile>(a, row);
}

template <bool Two, bool Stays>
inline void add_chunk(const Bf16* a, int64_t row, const Bf16* b) {
  load_a<4, Stays>(a, row);
  amx::load<6>(b, amx::kTileBytes);
  amx::load<7>(b + kChunkElements / 2, amx::kTileBytes);
  amx::multiply<0, 4, 6>();
  amx::multiply<1, 4, 7>();
  if constexpr (Two) {
    load_a<5, Stays>(a + kTile * row / static_cast<int64_t>(sizeof(Bf16)), row);
    amx::multiply<2, 5, 6>();
    amx::multiply<3, 5, 7>();
  }
}

// What to fetch into the L2 cache beside each chunk of B: lines first .. last - 1 of the chunk at
// the same distance from `next`. Each pair of tiles of A takes a share of the lines.
struct Ahead {
  const Bf16* next;
  int64_t first, last;
};

inline void fetch_lines(Ahead ahead, int64_t chunk) {
  const auto* at = reinterpret_cast<const char*>(ahead.next + chunk * kChunkElements);
  for (int64_t line = ahead.first; line < ahead.last; ++line)
    __builtin_prefetch(at + line * amx::kTileBytes, 0, 2);
}

// What will be written: `lines` lines of each of 32 rows. They are fetched, because each would wait
// for memory otherwise: its neighbours in the row are written much later.
struct Written {
  const char* data = nullptr;
  int64_t row = 0;  // bytes
  int64_t lines = 0;
};

inline void fetch_written(Written written, int64_t chunk) {
  constexpr int64_t kRows = kPairRows / kShortChunks;
  if (chunk >= kShortChunks) return;
  const char* at = written.data + chunk * kRows * written.row;
  for (int64_t i = 0; i < kRows; ++i, at += written.row)
    for (int64_t line = 0; line < written.lines; ++line)
      __builtin_prefetch(at + line * amx::kTileBytes, 1, 2);
}

// Adds `whole` chunks of A, then one of `tail` unless it is null. A call would wait for the stores
// of the tiles before, because it copies its arguments through memory.
template <bool Two, bool Stays>
[[gnu::always_inline]] inline void add_chunks(Rows a, int64_t whole, Rows tail, const Bf16* b,
                                              Ahead ahead, Sums c, bool from_zero,
                                              Written written) {
  float* lower = c.data + kTile * c.row / static_cast<int64_t>(sizeof(float));
  if (from_zero) {
    amx::zero<0>();
    amx::zero<1>();
    if constexpr (Two) {
      amx::zero<2>();
      amx::zero<3>();
    }
  } else {
    amx::load<0>(c.data, c.row);
    amx::load<1>(c.data + kTile, c.row);
    if constexpr (Two) {
      amx::load<2>(lower, c.row);
      amx::load<3>(lower + kTile, c.row);
    }
  }
  for (int64_t chunk = 0; chunk < whole; ++chunk, b += kChunkElements) {
    fetch_lines(ahead, chunk);
    fetch_written(written, chunk);
    add_chunk<Two, Stays>(a.data + chunk * kBf16Chunk, a.row, b);
  }
  if (tail.data) add_chunk<Two, Stays>(tail.data, tail.row, b);
  amx::store<0>(c.data, c.row);
  amx::store<1>(c.data + kTile, c.row);
  if constexpr (Two) {
    amx::store<2>(lower, c.row);
    amx::store<3>(lower + kTile, c.row);
  }
}

// Rows of a block that share one configuration: multiples of 32, or those that are left.
struct Part {
  const Bf16Product& g;
  int64_t begin, end;
  const Bf16* tail;  // the last chunk of A's rows, padded; null if it needs no padding
};

// Chunks first .. end - 1 of k, and where they begin in row 0 of A.
struct Slice {
  int64_t first, end;
  const Bf16* a;
  int64_t a_row;     // elements
  const Bf16* tail;  // the last of them, padded; null if it needs no padding
};

// A panel of sums that are not added in place.
struct Strip {
  float* sums;
  int64_t row;  // floats
};

// Rows i .. end - 1 of one panel. `next` is the part of B that is read after `b`, of which `lines`
// lines of each chunk are fetched.
void add_depth(Slice depth, int64_t i, int64_t end, const Bf16* b, const Bf16* next, int64_t lines,
               Sums c, bool from_zero, Written written) {
  const int64_t bytes = depth.a_row * static_cast<int64_t>(sizeof(Bf16));
  const int64_t whole = depth.end - depth.first - (depth.tail != nullptr);
  const int64_t begin = i, rows = end - i;
  for (; i < end; i += kPairRows) {
    const Ahead ahead{next, (i - begin) * lines / rows,
                      std::min(rows, i - begin + kPairRows) * lines / rows};
    const Rows a{depth.a + i * depth.a_row, bytes};
    const Rows tail{depth.tail ? depth.tail + i * kBf16Chunk : nullptr, amx::kTileBytes};
    if (end - i > kTile && rows > kPairRows)
      add_chunks<true, false>(a, whole, tail, b, ahead, c, from_zero, written);
    else if (end - i > kTile)
      add_chunks<true, true>(a, whole, tail, b, ahead, c, from_zero, written);
    else
      add_chunks<false, true>(a, whole, tail, b, ahead, c, from_zero, {});
    c.data += kPairRows * c.row / static_cast<int64_t>(sizeof(float));
    written.data += kPairRows * written.row;
  }
}

// How many of these chunks to sum at a time, so that all passes have about as many.
int64_t depth_chunks(int64_t chunks) {
  const int64_t passes = std::max<int64_t>(1, (chunks + kDepthChunks - 1) / kDepthChunks);
  return (chunks + passes - 1) / passes;
}

// Rows i .. end - 1 of one panel, a slice of k.
void add_panel(const Part& part, int64_t i, int64_t end, int64_t panel, Slice slice, Strip out) {
  const Bf16Product& g = part.g;
  const int64_t j = panel * kBf16Panel, columns = std::min(kBf16Panel, g.n - j);
  const Bf16Strip strip{i, end - i, j, columns, out.sums, out.row};
  const bool in_place = g.c && !g.bias && !g.past_caches && columns == kBf16Panel;
  const bool begins = slice.first == 0, ends = slice.end == bf16_chunks(g.k);
  if (!in_place && g.add && begins) begin_strip(g, strip);
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const Sums c =
      in_place ? Sums{g.c + i * g.c_row + j, g.c_row * kFloat} : Sums{out.sums, out.row * kFloat};
  Written written;
  if (in_place)  // if it is read first, the next panel
    written = {reinterpret_cast<const char*>(c.data + (g.add ? kBf16Panel : 0)), c.row, 2};
  else if (g.rounded)
    written = {reinterpret_cast<const char*>(g.rounded + i * g.c_row + j),
               g.c_row * static_cast<int64_t>(sizeof(Bf16)), 1};
  const Bf16* b = g.b + panel * bf16_panel_elements(g.k) + slice.first * kChunkElements;
  const Bf16* const next_panel = b + bf16_panel_elements(g.k);
  // If the rows pass one after the other, k is short, and all of B is soon in the L2 cache.
  const int64_t lines = i == part.begin && end == part.end ? kChunkLines : 0;
  const int64_t step = depth_chunks(slice.end - slice.first);
  Slice depth = slice;
  for (;;) {  // also without a chunk, which clears C
    const bool first = depth.first == 0, last = depth.first + step >= slice.end;
    depth.end = last ? slice.end : depth.first + step;
    depth.tail = last ? slice.tail : nullptr;
    const Bf16* const following = last ? next_panel : b + step * kChunkElements;
    add_depth(depth, i, end, b, following, lines, c, !g.add && first, first ? written : Written{});
    if (last) break;
    depth.first = depth.end;
    depth.a += step * kBf16Chunk;
    b = following;
  }
  if (!in_place && ends) end_strip(g, strip);
}

// With a long k, a slice of A stays in the L2 cache while all panels are multiplied. It is copied,
// with zeros up to a whole chunk: rows of A may begin anywhere in a line.
[[gnu::noinline]] void add_slices(const Part& part) {
  constexpr int64_t kSlice = kDepthChunks * kBf16Chunk, kRow = kSlice + kBf16Chunk;
  alignas(64) float sums[kBf16BlockRows * kBf16LongColumns];
  alignas(64) Bf16 a[kBf16BlockRows * kRow];
  const Bf16Product& g = part.g;
  const int64_t panels = bf16_panels(g.n), chunks = bf16_chunks(g.k);
  assert(panels * kBf16Panel <= kBf16LongColumns);
  for (int64_t first = 0; first < chunks; first += kDepthChunks) {
    const int64_t end = std::min(chunks, first + kDepthChunks), begin = first * kBf16Chunk;
    const int64_t count = std::min(g.k, end * kBf16Chunk) - begin;
    for (int64_t i = part.begin; i < part.end; ++i) {
      Bf16* const to = std::copy_n(g.a + i * g.a_row + begin, count, a + i * kRow);
      std::fill(to, a + i * kRow + (end - first) * kBf16Chunk, Bf16{0});
    }
    for (int64_t panel = 0; panel < panels; ++panel)
      add_panel(part, part.begin, part.end, panel, {first, end, a, kRow, nullptr},
                {sums + panel * kBf16Panel, kBf16LongColumns});
  }
}

void add_part(const Part& part) {
  if (part.begin == part.end) return;
  const amx::Scope tiles(config_of(std::min(part.end - part.begin, kPairRows)));
  const int64_t panels = bf16_panels(part.g.n), chunks = bf16_chunks(part.g.k);
  if (part.g.k > kBf16Long && part.end - part.begin > kPairRows) return add_slices(part);
  alignas(64) float sums[kBf16BlockRows * kBf16Panel];
  // With a short k, 32 rows of A stay in the L1 cache, and C is written along its rows.
  const int64_t step = chunks <= kShortChunks ? kPairRows : part.end - part.begin;
  for (int64_t i = part.begin; i < part.end; i += step)
    for (int64_t panel = 0; panel < panels; ++panel)
      add_panel(part, i, std::min(part.end, i + step), panel,
                {0, chunks, part.g.a, part.g.a_row, part.tail}, {sums, kBf16Panel});
}

}  // namespace

void bf16_block_amx(const Bf16Product& g) {
  assert(g.m <= kBf16BlockRows);
  alignas(64) Bf16 tail[kBf16BlockRows * kBf16Chunk];
  const int64_t ragged = g.k % kBf16Chunk;
  if (ragged) {
    std::memset(tail, 0, static_cast<size_t>(g.m * kBf16Chunk) * sizeof(Bf16));
    for (int64_t i = 0; i < g.m; ++i)
      std::memcpy(tail + i * kBf16Chunk, g.a + i * g.a_row + g.k - ragged,
                  static_cast<size_t>(ragged) * sizeof(Bf16));
  }
  const int64_t whole = g.m / kPairRows * kPairRows;
  add_part({g, 0, whole, ragged ? tail : nullptr});
  add_part({g, whole, g.m, ragged ? tail : nullptr});
}

namespace {

constexpr unsigned kTileState = 3u << 17;  // XCR0: configuration and data of tiles
constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl

bool request_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  asm("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  if ((a & kTileState) != kTileState) return false;
  constexpr unsigned kFeatures = 1u << 22 | 1u << 24;  // AMX-BF16, AMX-TILE
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kFeatures) != kFeatures) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool bf16_has_amx() {
  static const bool has = request_amx();
  return has;
}

#else

void bf16_block_amx(const Bf16Product&) { assert(false); }
bool bf16_has_amx() { return false; }

#endif

}  // namespace weft::kernels
