// Single-precision matrix product, row-major with leading dimensions. The only door to BLIS.
//
// Threads: gemm() may be called from any number of threads at once. Each product is cut into tiles
// by its shape alone and every tile is multiplied on one thread, so the bits do not depend on who
// runs the tiles. Callers hold a ComputeScope (fpenv.h).
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

// The product uncut, on the caller's thread, for kernels that already run inside a tile. Other bits
// than gemm() where that cuts.
void gemm_tile(const Gemm& product);

// BLIS alone, uncut: what gemm_tile() does with products that are not small.
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
  std::string best;          // the kernels this processor deserves; empty when weft has no opinion
  bool slow = false;         // `kernels` leave much of the processor unused
  bool set_by_host = false;  // BLIS_ARCH_TYPE was in the environment, and was left to rule

  std::string text() const;  // "BLIS 0.9.0, skx kernels"
};

// Initialises BLIS once per process and chooses its kernels; later calls cost nothing. Called when
// a run starts, before its threads compute. BLIS 0.9.0 knows processors by family number, and on
// one newer than itself falls back to kernels several times slower without a word. The only way to
// tell it otherwise is the environment variable BLIS_ARCH_TYPE, read at its first use. So, unless
// the host has set it or has used BLIS before, it is set for the time of that first use and removed
// again.
//
// setenv() is not safe while another thread of the host calls getenv() or setenv(): a host with
// such threads makes its first call here before it starts them, or sets BLIS_ARCH_TYPE itself.
void init_gemm();
GemmInfo gemm_info();  // initialises as well

}  // namespace weft
