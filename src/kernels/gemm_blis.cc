// The only file that includes blis.h. BLIS always uses one thread per call; weft's tiles use more.
#include "kernels/gemm.h"

#include <algorithm>
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

// The kernel set for the features of this processor, not for its family; kNone if BLIS
// selects it. Only sets that the header lists as built in: BLIS aborts if another one is
// requested.
int best_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(BLIS_CONFIG_SKX)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return BLIS_ARCH_SKX;
#endif
#if defined(BLIS_CONFIG_HASWELL)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return BLIS_ARCH_HASWELL;
#endif
#endif
  return kNone;
}

// Multiply-adds of one instruction of a kernel set; 0 for plain C.
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
  const bool set =
      !g_set_by_host && best != kNone && setenv(kVariable, std::to_string(best).c_str(), 0) == 0;
  bli_init();  // before any query: BLIS 0.9.0 aborts when it is asked for its kernels first and the
               // variable is set
  if (set) unsetenv(kVariable);
  return true;
}

const char* kernel_name(int kernels) { return bli_arch_string(static_cast<arch_t>(kernels)); }

}  // namespace

// The initialization of a local static is thread-safe; kernels have no locks.
void init_blis() { [[maybe_unused]] static const bool done = init_once(); }

std::string blis_version() { return cat("BLIS ", bli_info_get_version_str()); }

GemmInfo blis_info() {
  init_blis();
  const int kernels = bli_arch_query_id(), best = best_kernels();
  GemmInfo info;
  info.library = blis_version();
  info.kernels = kernel_name(kernels);
  if (best != kNone) info.best = kernel_name(best);
  info.slow = width(kernels) == 0 || (best != kNone && width(kernels) < width(best));
  info.set_by_host = g_set_by_host;
  return info;
}

void blis_product(const Gemm& g) {
  init_blis();
  rntm_t threads;
  bli_rntm_init_from_global(&threads);
  bli_rntm_set_num_threads(1, &threads);
  float alpha = g.alpha, beta = g.beta;
  if (g.bias) {
    for (int64_t row = 0; row < g.m; ++row) std::copy_n(g.bias, g.n, g.c + row * g.stride);
    beta = 1;
  }
  // BLIS 0.9.0 takes pointers to non-const and does not write through them.
  const auto trans = [](const Factor& factor) {
    return factor.transposed ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE;
  };
  bli_sgemm_ex(trans(g.a), trans(g.b), g.m, g.n, g.k, &alpha, const_cast<float*>(g.a.data),
               g.a.stride, 1, const_cast<float*>(g.b.data), g.b.stride, 1, &beta, g.c, g.stride, 1,
               nullptr, &threads);
}

}  // namespace weft
