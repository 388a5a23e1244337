// The only file that includes blis.h. One thread per BLIS call always: weft's tiles use the others.
#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include <blis.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include "base/text.h"

namespace weft {

namespace {

constexpr const char* kVariable = "BLIS_ARCH_TYPE";
constexpr int kNone = -1;

bool g_set_by_host = false;

// The kernel set for this processor, by what it can do and not by its family; kNone where BLIS is left to choose. Only sets that
// the header says are built in: BLIS aborts on the number of another.
int best_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(BLIS_CONFIG_SKX)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return BLIS_ARCH_SKX;
#endif
#if defined(BLIS_CONFIG_HASWELL)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return BLIS_ARCH_HASWELL;
#endif
#endif
  return kNone;
}

// Floats that one instruction of a kernel set multiplies and adds; 0 for plain C.
int width(int kernels) {
  switch (kernels) {
    case BLIS_ARCH_SKX:
    case BLIS_ARCH_KNL: return 16;
    case BLIS_ARCH_HASWELL:
    case BLIS_ARCH_ZEN:
    case BLIS_ARCH_ZEN2:
    case BLIS_ARCH_ZEN3: return 8;
    case BLIS_ARCH_GENERIC: return 0;
    default: return 4;
  }
}

bool init_once() {
  g_set_by_host = std::getenv(kVariable) != nullptr;
  const int best = best_kernels();
  const bool set = !g_set_by_host && best != kNone && setenv(kVariable, std::to_string(best).c_str(), 0) == 0;
  bli_init();  // before any query: BLIS 0.9.0 aborts when it is asked for its kernels first and the variable is set
  if (set) unsetenv(kVariable);
  return true;
}

const char* kernel_name(int kernels) { return bli_arch_string(static_cast<arch_t>(kernels)); }

// `block` rows or columns at least; a multiple of what the micro-kernels of skx and haswell take, so that no tile ends ragged.
constexpr int64_t kUnit = 96, kSmallest = 384, kUsual = 768;
// Below this many multiply-adds a second thread costs more than it brings.
constexpr double kWorthSplitting = 4e6;

}  // namespace

// A local static is set up once, whoever comes first; kernels know no locks of their own.
void init_gemm() { [[maybe_unused]] static const bool done = init_once(); }

GemmInfo gemm_info() {
  init_gemm();
  const int kernels = bli_arch_query_id(), best = best_kernels();
  GemmInfo info;
  info.library = cat("BLIS ", bli_info_get_version_str());
  info.kernels = kernel_name(kernels);
  if (best != kNone) info.best = kernel_name(best);
  info.slow = width(kernels) == 0 || (best != kNone && width(kernels) < width(best));
  info.set_by_host = g_set_by_host;
  return info;
}

std::string GemmInfo::text() const {
  std::string out = cat(library, ", ", kernels, " kernels");
  if (set_by_host) out += cat(" (", kVariable, " is set)");
  if (!slow) return out;
  out += ": slow";
  if (!best.empty()) out += cat(", this processor runs ", best);
  return out;
}

// Measured with the skx kernels on GPT-2's shapes: each tile packs the operand that is not cut once more, which costs 3 % at 768
// columns, 6 % at 384, 15 % at 192. So four tiles where they stay at 384 or more, and more only when they are 768 wide.
GemmSplit gemm_split(int64_t m, int64_t n, int64_t k) {
  GemmSplit split;
  split.rows = m > n;
  const int64_t length = std::max(m, n);
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  int64_t count = length >= 4 * kUsual ? (length + kUsual - 1) / kUsual : std::min<int64_t>(4, length / kSmallest);
  if (work < kWorthSplitting || count < 1) count = 1;
  const int64_t even = (length + count - 1) / count;
  split.block = count == 1 ? length : (even + kUnit - 1) / kUnit * kUnit;
  split.count = count == 1 ? 1 : static_cast<int>((length + split.block - 1) / split.block);
  return split;
}

void gemm_tile(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  assert(g.a.stride >= (g.a.transposed ? g.m : g.k) && g.b.stride >= (g.b.transposed ? g.k : g.n) && g.stride >= g.n);
  init_gemm();
  rntm_t threads;
  bli_rntm_init(&threads);
  bli_rntm_set_num_threads(1, &threads);
  float alpha = g.alpha, beta = g.beta;
  // BLIS 0.9.0 takes pointers to non-const and does not write through them.
  const auto trans = [](const Factor& factor) { return factor.transposed ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE; };
  bli_sgemm_ex(trans(g.a), trans(g.b), g.m, g.n, g.k, &alpha, const_cast<float*>(g.a.data), g.a.stride, 1,
               const_cast<float*>(g.b.data), g.b.stride, 1, &beta, g.c, g.stride, 1, nullptr, &threads);
}

void gemm(const Gemm& g, Tiles& tiles) {
  const GemmSplit split = gemm_split(g.m, g.n, g.k);
  if (split.count == 1) return gemm_tile(g);
  for_tiles(tiles, split.count, [&](int tile) {
    const int64_t begin = tile * split.block;
    Gemm part = g;
    if (split.rows) {
      part.m = std::min(split.block, g.m - begin);
      part.a.data += begin * (g.a.transposed ? 1 : g.a.stride);
      part.c += begin * g.stride;
    } else {
      part.n = std::min(split.block, g.n - begin);
      part.b.data += begin * (g.b.transposed ? g.b.stride : 1);
      part.c += begin;
    }
    gemm_tile(part);
  });
}

}  // namespace weft
