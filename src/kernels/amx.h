// The instructions of AMX, as assembler: the intrinsics of gcc 12 lose the stores that a tile load
// reads. Only where WEFT_AMX is 1.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define WEFT_AMX 1
#else
#define WEFT_AMX 0
#endif

#if WEFT_AMX

#include <cstdint>

namespace weft::kernels::amx {

constexpr int kTiles = 8;
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 64;  // of a row

// What ldtilecfg reads.
struct alignas(64) Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles of a thread, while it computes.
class Scope {
 public:
  explicit Scope(const Config& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  ~Scope() { asm volatile("tilerelease"); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

template <int Tile>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}

// Rows are `stride` bytes apart.
template <int Tile>
inline void load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}

// For what is not read again soon: the L1 cache keeps what it holds.
template <int Tile>
inline void load_once(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
inline void store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

// Sum += A B, of pairs of bf16.
template <int Sum, int A, int B>
inline void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
}

}  // namespace weft::kernels::amx

#endif
