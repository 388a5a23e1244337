// Blocks of bf16 products by fused multiply-adds. A is widened to float32 in blocks; B is widened
// in registers, where the rows of a part share it.
#include <algorithm>

#include "kernels/bf16_product.h"
#include "kernels/bf16_strip.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_fma.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"
#include "kernels/unroll.h"

// The loop over pairs is unrolled, too: the end of a short loop costs 8 % of the time. A
// sanitizer's checks would then take minutes to compile.
#if HWY_IS_ASAN
#define WEFT_UNROLL_PAIRS
#else
#define WEFT_UNROLL_PAIRS WEFT_UNROLL
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sums of even and odd elements, two vectors of B or one, and one of A: at most 28 registers of 32,
// or 15 of 16. Without vectors a call of fma() takes the time, and the code stays small.
constexpr int64_t kMostVecs = HWY_ARCH_ARM || kLanes == 16 ? 2 : 1;
constexpr int64_t kRows = kLanes == 1 ? 1 : 6;
constexpr int64_t kWidened = 4608;  // elements of A, in float32 at a time
constexpr int64_t kColumns = 512;   // sums of a row at a time
constexpr int64_t kBlock = 16;      // columns of B that lie together
constexpr int64_t kPairs = 16;

// With so few rows, reading B takes the time: its lines are read in ascending order, as the
// processor fetches them best.
constexpr int64_t kInOrder = 2;
constexpr int64_t vecs_of(int64_t rows) {
  return rows <= kInOrder && kLanes == kBlock ? 1 : kMostVecs;
}

// Of `rows` rows of A, what is widened at a time. Rows lie in different sets of the cache.
constexpr int64_t depth_of(int64_t rows) { return kWidened / rows / kBf16Chunk * kBf16Chunk; }
constexpr int64_t a_row_of(int64_t rows) { return depth_of(rows) + 16; }

struct Work {
  HWY_ALIGN float a[kWidened + 16 * kRows];
  HWY_ALIGN float sums[kRows * kColumns];
};

// Where column j of a chunk begins, in pairs.
constexpr int64_t column_of(int64_t j) { return j / kBlock * kBlock * kPairs + j % kBlock; }

// Adds one chunk to vecs_of(Rows) vectors of sums of each row. `a` and `pairs` are those of the
// chunk.
template <int64_t Rows>
HWY_INLINE void add_chunk(const float* a, const uint32_t* pairs, float* sums) {
  constexpr int64_t kVecs = vecs_of(Rows);
  const FloatTag d;
  const BitsTag bits;
  FloatVec even[Rows][kVecs], odd[Rows][kVecs];
  WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) {
    WEFT_UNROLL for (int64_t v = 0; v < kVecs; ++v) even[i][v] = odd[i][v] = hn::Zero(d);
  }
  WEFT_UNROLL_PAIRS for (int64_t r = 0; r < kPairs; ++r) {
    FloatVec first[kVecs], second[kVecs];
    WEFT_UNROLL for (int64_t v = 0; v < kVecs; ++v) {
      const BitsVec pair = hn::LoadU(bits, pairs + r * kBlock + column_of(v * kLanes));
      first[v] = hn::BitCast(d, hn::ShiftLeft<16>(pair));
      second[v] = hn::BitCast(d, hn::And(pair, hn::Set(bits, 0xffff0000u)));
    }
    WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) {
      const FloatVec x = hn::Set(d, a[i * a_row_of(Rows) + 2 * r]);
      WEFT_UNROLL for (int64_t v = 0; v < kVecs; ++v) even[i][v] =
          hn::MulAdd(x, first[v], even[i][v]);
      const FloatVec y = hn::Set(d, a[i * a_row_of(Rows) + 2 * r + 1]);
      WEFT_UNROLL for (int64_t v = 0; v < kVecs; ++v) odd[i][v] =
          hn::MulAdd(y, second[v], odd[i][v]);
    }
  }
  WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) {
    WEFT_UNROLL for (int64_t v = 0; v < kVecs; ++v) {
      float* sum = sums + i * kColumns + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, sum), hn::Add(even[i][v], odd[i][v])), d, sum);
    }
  }
}

// Rows i .. i + rows - 1 and columns j .. j + columns - 1 of C.
struct Part {
  int64_t i, rows, j, columns;
};

// Lines of a chunk of B.
constexpr int64_t kChunkElements = kBf16Chunk * kBf16Panel, kLine = 64;
constexpr int64_t kLineFloats = kLine / static_cast<int64_t>(sizeof(float));
constexpr int64_t kLines = kChunkElements * static_cast<int64_t>(sizeof(Bf16)) / kLine;

HWY_INLINE const char* line_of(const Bf16* chunk, int64_t line) {
  return reinterpret_cast<const char*>(chunk) + line * kLine;
}

// A block has few rows if reading B takes more time than the arithmetic.
HWY_INLINE bool has_few_rows(const Bf16Product& g) { return g.m <= 2 * kRows; }

// With few rows, the first part fetches what it reads later into the L2 cache: the processor itself
// stops at the end of a page, and where the next panel begins. Lines that are read in order need
// only the first ones of a chunk: on an AMD EPYC, fetching all of them takes a sixth more time.
// There, fetching into the L1 cache is slower, too, and fetching farther ahead gains nothing.
HWY_INLINE void fetch_soon(const Bf16Product& g, const Part& part, const Bf16* b, int64_t chunk,
                           int64_t chunks) {
  constexpr int64_t kAhead = 8;  // chunks
  constexpr int64_t kFirstLines = 4;
  if (part.i > 0 || !has_few_rows(g)) return;
  const int64_t later = chunk + kAhead;
  const Bf16* from = later < chunks
                         ? b + later * kChunkElements
                         : b + bf16_panel_elements(g.k) + (later - chunks) * kChunkElements;
  const int64_t lines = part.rows <= kInOrder ? kFirstLines : kLines;
  for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(line_of(from, line), 0, 2);
}

// With many, each part fetches some lines of each chunk of the block's next columns into the L2
// cache.
HWY_INLINE void fetch_share(const Bf16Product& g, const Part& part, const Bf16* chunk) {
  if (has_few_rows(g)) return;
  const Bf16* next = chunk + bf16_panels(part.columns) * bf16_panel_elements(g.k);
  const int64_t last = (part.i + part.rows) * kLines / g.m;
  for (int64_t line = part.i * kLines / g.m; line < last; ++line)
    __builtin_prefetch(line_of(next, line), 0, 2);
}

// Fetches `Rows` rows of C, which the next part begins with, in the panel at column j.
template <int64_t Rows>
HWY_INLINE void fetch_sums(const Bf16Product& g, const Part& part, int64_t j) {
  const int64_t next = part.i + Rows;
  if (!g.c || g.past_caches || next + Rows > g.m) return;
  const float* c = g.c + next * g.c_row + part.j + j;
  for (int64_t r = 0; r < Rows; ++r)
    for (int64_t column = 0; column < kBf16Panel; column += kLineFloats)
      __builtin_prefetch(c + r * g.c_row + column, 1, 2);
}

// Adds `chunks` chunks from `begin` on, at most depth_of(Rows) elements of k, to the sums of a
// part.
template <int64_t Rows>
HWY_NOINLINE void add_depth(const Bf16Product& g, const Part& part, int64_t begin, int64_t chunks,
                            Work& work) {
  for (int64_t j = 0; j < part.columns; j += kBf16Panel) {
    const Bf16* b =
        g.b + (part.j + j) / kBf16Panel * bf16_panel_elements(g.k) + begin * kChunkElements;
    if (begin == 0) fetch_sums<Rows>(g, part, j);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      fetch_soon(g, part, b, chunk, chunks);
      fetch_share(g, part, b + chunk * kChunkElements);
      const auto* pairs = reinterpret_cast<const uint32_t*>(b + chunk * kChunkElements);
      const float* a = work.a + chunk * kBf16Chunk;
      for (int64_t column = 0; column < kBf16Panel; column += vecs_of(Rows) * kLanes)
        add_chunk<Rows>(a, pairs + column_of(column), work.sums + j + column);
    }
  }
}

// Rows i .. i + Rows - 1, columns j .. j + columns - 1 of C.
template <int64_t Rows>
HWY_INLINE void add_rows(const Bf16Product& g, int64_t i, int64_t j, int64_t columns, Work& work) {
  const Bf16Strip strip{i, Rows, j, columns, work.sums, kColumns};
  begin_strip(g, strip);
  constexpr int64_t kDepth = depth_of(Rows);
  for (int64_t p = 0; p < g.k; p += kDepth) {
    const int64_t depth = HWY_MIN(kDepth, g.k - p), chunks = bf16_chunks(depth);
    for (int64_t r = 0; r < Rows; ++r) {
      float* row = work.a + r * a_row_of(Rows);
      widen_row(g.a + (i + r) * g.a_row + p, row, depth);
      std::fill(row + depth, row + chunks * kBf16Chunk, 0.0f);
    }
    add_depth<Rows>(g, {i, Rows, j, columns}, p / kBf16Chunk, chunks, work);
  }
  end_strip(g, strip);
}

// Rows from i on, in one pass.
template <int64_t Rows>
HWY_INLINE void last_rows(const Bf16Product& g, int64_t i, int64_t j, int64_t columns, Work& work) {
  if (g.m - i == Rows) return add_rows<Rows>(g, i, j, columns, work);
  if constexpr (Rows > 1) last_rows<Rows - 1>(g, i, j, columns, work);
}

void bf16_block_fma(const Bf16Product& g) {
  Work work;
  for (int64_t j = 0; j < g.n; j += kColumns) {
    const int64_t columns = HWY_MIN(kColumns, g.n - j);
    int64_t i = 0;
    for (; i + kRows <= g.m; i += kRows) add_rows<kRows>(g, i, j, columns, work);
    if constexpr (kRows > 1) last_rows<kRows - 1>(g, i, j, columns, work);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(bf16_block_fma);
void bf16_block_fma(const Bf16Product& block) { HWY_DYNAMIC_DISPATCH(bf16_block_fma)(block); }

}  // namespace weft::kernels
#endif
