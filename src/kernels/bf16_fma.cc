// Blocks of bf16 products by fused multiply-adds. A is widened to float32 in blocks; B is widened
// in registers, where twelve rows share it.
#include <algorithm>

#include "kernels/bf16_product.h"
#include "kernels/bf16_strip.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_fma.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/bf16-inl.h"

// The loops over rows must be unrolled for the sums to stay in registers.
#if defined(__clang__)
#define WEFT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WEFT_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

// Two sums per row, two vectors of B and one of A: 27 registers of 32, or 15 of 16.
constexpr int64_t kRows = HWY_ARCH_ARM || kLanes == 16 ? 12 : 6;
constexpr int64_t kDepth = 256;    // of A, widened at a time
constexpr int64_t kColumns = 512;  // sums of a row at a time
constexpr int64_t kBlock = 16;     // columns of B that lie together
constexpr int64_t kPairs = 16;

struct Work {
  HWY_ALIGN float a[kRows * kDepth];
  HWY_ALIGN float sums[kRows * kColumns];
};

// Adds one chunk to kLanes sums of each row. `a` and `pairs` are those of the chunk.
template <int64_t Rows>
HWY_INLINE void add_chunk(const float* a, const uint32_t* pairs, float* sums) {
  const FloatTag d;
  const BitsTag bits;
  FloatVec even[Rows], odd[Rows];
  WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) even[i] = odd[i] = hn::Zero(d);
  for (int64_t r = 0; r < kPairs; ++r) {
    const BitsVec pair = hn::LoadU(bits, pairs + r * kBlock);
    const FloatVec first = hn::BitCast(d, hn::ShiftLeft<16>(pair));
    WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) even[i] =
        hn::MulAdd(hn::Set(d, a[i * kDepth + 2 * r]), first, even[i]);
    const FloatVec second = hn::BitCast(d, hn::And(pair, hn::Set(bits, 0xffff0000u)));
    WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) odd[i] =
        hn::MulAdd(hn::Set(d, a[i * kDepth + 2 * r + 1]), second, odd[i]);
  }
  WEFT_UNROLL for (int64_t i = 0; i < Rows; ++i) {
    float* sum = sums + i * kColumns;
    hn::StoreU(hn::Add(hn::LoadU(d, sum), hn::Add(even[i], odd[i])), d, sum);
  }
}

// Adds chunks begin .. end - 1, at most kDepth elements of k, to `columns` sums of each row.
template <int64_t Rows>
HWY_INLINE void add_depth(const Bf16Product& g, const Bf16* b, int64_t begin, int64_t end,
                          int64_t columns, Work& work) {
  for (int64_t j = 0; j < columns; j += kBlock) {
    const int64_t at = j / kBf16Panel * bf16_panel_elements(g.k) + j % kBf16Panel * kBf16Chunk;
    const auto* pairs = reinterpret_cast<const uint32_t*>(b + at);
    for (int64_t v = 0; v < kBlock; v += kLanes)
      for (int64_t chunk = begin; chunk < end; ++chunk)
        add_chunk<Rows>(work.a + (chunk - begin) * kBf16Chunk,
                        pairs + chunk * kBf16Chunk * kBf16Panel / 2 + v, work.sums + j + v);
  }
}

// Rows i .. i + Rows - 1, columns j .. j + columns - 1 of C.
template <int64_t Rows>
HWY_INLINE void add_rows(const Bf16Product& g, int64_t i, int64_t j, int64_t columns, Work& work) {
  const Bf16Strip strip{i, Rows, j, columns, work.sums, kColumns};
  begin_strip(g, strip);
  const Bf16* b = g.b + j / kBf16Panel * bf16_panel_elements(g.k);
  for (int64_t p = 0; p < g.k; p += kDepth) {
    const int64_t depth = HWY_MIN(kDepth, g.k - p), chunks = bf16_chunks(depth);
    for (int64_t r = 0; r < Rows; ++r) {
      float* row = work.a + r * kDepth;
      widen_row(g.a + (i + r) * g.a_row + p, row, depth);
      std::fill(row + depth, row + chunks * kBf16Chunk, 0.0f);
    }
    const int64_t begin = p / kBf16Chunk;
    add_depth<Rows>(g, b, begin, begin + chunks, columns, work);
  }
  end_strip(g, strip);
}

// From row i on: as many rows at once as fit, then half as many, ..
template <int64_t Rows>
HWY_INLINE void all_rows(const Bf16Product& g, int64_t i, int64_t j, int64_t columns, Work& work) {
  for (; i + Rows <= g.m; i += Rows) add_rows<Rows>(g, i, j, columns, work);
  if constexpr (Rows > 1) all_rows<Rows / 2>(g, i, j, columns, work);
}

void bf16_block_fma(const Bf16Product& g) {
  Work work;
  for (int64_t j = 0; j < g.n; j += kColumns)
    all_rows<kRows>(g, 0, j, HWY_MIN(kColumns, g.n - j), work);
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
