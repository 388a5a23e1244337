// Single-precision matrix product, row-major with leading dimensions.
//
// The numeric contract. For each element of C:
//   if beta is neither 0 nor 1, C is first multiplied by beta; if beta is 0, it begins as its
//   bias, or as +0 if there is none;
//   k is cut into blocks of kGemmDepth, the last may be short; for each block, in ascending order:
//     sum = +0; for each k of the block, ascending: sum = fma(a, b, sum);
//     c = fma(alpha, sum, c).
// So the bits of an element depend on its row of A, its column of B, alpha and beta only: not on
// the processor, the number of rows and columns, the storage of the factors, tiles or threads.
//
// A processor whose vectors have no fused multiply-add does not fulfil this: there, BLIS computes
// the products, and their bits depend on the shape. With alpha 1 and beta 0, its kernels for these
// processors have the same bits for a packed factor.
//
// Threads: gemm() may be called from any number of threads at once. Each product is cut into tiles,
// and each tile is computed by one thread. Callers hold a ComputeScope (fpenv.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/tiles.h"

namespace weft {

// A matrix as stored: rows `stride` elements apart. A transposed one is multiplied as its
// transpose.
struct Factor {
  const float* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};
constexpr bool kTransposed = true;

constexpr int64_t kGemmDepth = 768;
constexpr int64_t kGemmChunk = 98304;  // floats of a factor that a product packs at a time

// C[m,n] = alpha * A[m,k] * B[k,n] + beta * C. With beta 0, C is not read. C overlaps neither A nor
// B.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  Factor a = {}, b = {};
  float* c = nullptr;
  int64_t stride = 0;  // of C
  float alpha = 1, beta = 0;
  const float* packed_b = nullptr;  // B as pack() wrote it (packed.h); `b` is not read
  const float* bias = nullptr;      // n floats, for each row of C; only with beta 0
  bool past_caches = false;         // C is read much later, and is large; only with beta 0
  int64_t columns_after = 0;        // of B, which the next product reads; n is whole strips then
};

void gemm(const Gemm& product, Tiles& tiles);

// A, B and k of a product.
struct GemmPart {
  int64_t k = 0;
  Factor a, b;
};
// Several products, each of which is added to C, with the bits of one after another. C is read and
// written about once. `product` has what they share, and beta of the first.
void gemm_sum(const Gemm& product, std::span<const GemmPart> parts, Tiles& tiles);

// The whole product, on the caller's thread, for kernels that already run in a tile.
void gemm_tile(const Gemm& product);

// The whole product by BLIS, without packed_b.
void blis_product(const Gemm& product);

// Whether weft's kernels compute the products, by the contract above.
bool gemm_is_fused();

// How gemm() cuts C for so many threads: `count` tiles of `block` rows (or columns, a multiple of
// 16 then); the last may be short. If BLIS computes, the tiles do not depend on the threads,
// because the bits depend on the tiles.
struct GemmSplit {
  bool rows = false;
  int64_t block = 0;
  int count = 1;
};
GemmSplit gemm_split(const Gemm& product, int threads);

// Which kernels run.
struct GemmInfo {
  std::string target;   // "AVX-512": that of weft's kernels; empty if BLIS computes the products
  std::string library;  // "BLIS 0.9.0"
  std::string kernels;  // of BLIS: "skx"
  std::string best;     // the fastest of BLIS for this processor; empty if weft does not know
  bool slow = false;    // BLIS computes, and uses only a small part of the processor
  bool set_by_host = false;  // the host has set BLIS_ARCH_TYPE, which is not changed

  std::string text() const;  // "fp32: weft kernels, AVX-512; BLIS 0.9.0 is the fallback"
};

// Initializes BLIS once per process and selects its kernels, if BLIS computes the products; later
// calls return at once. Called in the thread of the host, when a mesh or a run in one process is
// made. BLIS 0.9.0 detects processors by family number. On a newer processor it silently uses
// kernels that are several times slower. Only the environment variable BLIS_ARCH_TYPE can select
// others, and BLIS reads it at its first use. Therefore weft sets it for that first use and removes
// it again, unless the host has set it or has already used BLIS.
//
// setenv() is not safe while another thread of the host calls getenv() or setenv(): such a host
// must call this function before it starts these threads, or set BLIS_ARCH_TYPE itself.
void init_gemm();
GemmInfo gemm_info();  // also calls init_gemm()

// The fallback; tests compare with it on any processor.
void init_blis();
std::string blis_version();  // "BLIS 0.9.0"; does not initialize it
GemmInfo blis_info();

}  // namespace weft
