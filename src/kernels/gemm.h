// Single-precision matrix product, row-major with leading dimensions. The only interface to BLIS.
//
// Threads: gemm() may be called from any number of threads at once. Each product is cut into tiles
// that depend only on its shape, and each tile is computed by one thread, so the result does not
// depend on the threads. Callers hold a ComputeScope (fpenv.h).
#pragma once

#include <cstdint>
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

// C[m,n] = alpha * A[m,k] * B[k,n] + beta * C. With beta 0, C is not read. C overlaps neither A nor
// B.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  Factor a, b;
  float* c = nullptr;
  int64_t stride = 0;  // of C
  float alpha = 1, beta = 0;
};

void gemm(const Gemm& product, Tiles& tiles);

// The whole product, on the caller's thread, for kernels that already run in a tile. Its bits
// differ from those of gemm() if that cuts the product.
void gemm_tile(const Gemm& product);

// Only BLIS, uncut: gemm_tile() calls it for products that are not small.
void blis_product(const Gemm& product);

// How gemm() cuts C: `count` tiles of `block` rows (or columns); the last may be short.
struct GemmSplit {
  bool rows = false;
  int64_t block = 0;
  int count = 1;
};
GemmSplit gemm_split(int64_t m, int64_t n, int64_t k);

// Which kernels run. Part of the numeric profile.
struct GemmInfo {
  std::string library;       // "BLIS 0.9.0"
  std::string kernels;       // "skx"
  std::string best;          // the fastest kernels for this processor; empty if weft does not know
  bool slow = false;         // `kernels` use only a small part of the processor
  bool set_by_host = false;  // the host has set BLIS_ARCH_TYPE, which is not changed

  std::string text() const;  // "BLIS 0.9.0, skx kernels"
};

// Initializes BLIS once per process and selects its kernels; later calls return at once. Called in
// the thread of the host, when a mesh or a run in one process is made. BLIS 0.9.0 detects
// processors by family number. On a newer processor it silently uses kernels that are several times
// slower. Only the environment variable BLIS_ARCH_TYPE can select others, and BLIS reads it at its
// first use. Therefore weft sets it for that first use and removes it again, unless the host has
// set it or has already used BLIS.
//
// setenv() is not safe while another thread of the host calls getenv() or setenv(): such a host
// must call this function before it starts these threads, or set BLIS_ARCH_TYPE itself.
void init_gemm();
GemmInfo gemm_info();  // also initializes BLIS

}  // namespace weft
