// What one core of this machine can do at most, as one JSON object: multiply-adds in registers,
// bf16 tiles of AMX (0 without it), a triad a = b + s c over memory, and reads of memory.
// tools/bench compares steps and tokens with it.
//
//   build/tests/bench/bench_limits
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "bench/cpu_time.h"
#include "bench/peak.h"

namespace weft::bench {
namespace {

constexpr int kRounds = 5;

// Per second, of the fastest round: the work is what `work` returns.
template <typename F>
double fastest(const F& work) {
  double best = 0;
  for (int i = 0; i < kRounds; ++i) {
    double done = 0;
    const double time = seconds([&] { done = work(); });
    best = std::max(best, done / time);
  }
  return best;
}

std::unique_ptr<float[]> floats(int64_t n, float value) {
  auto out = std::make_unique<float[]>(static_cast<size_t>(n));
  std::fill_n(out.get(), n, value);
  return out;
}

double triad(float& sink) {
  constexpr int64_t kFloats = int64_t{1} << 25;  // 128 MiB each
  const auto a = floats(kFloats, 0), b = floats(kFloats, 1), c = floats(kFloats, 2);
  return fastest([&] {
    for (int64_t i = 0; i < kFloats; ++i) a[i] = b[i] + 0.5f * c[i];
    sink += a[kFloats / 2];
    return 3.0 * sizeof(float) * kFloats;
  });
}

double reading(float& sink) {
  constexpr int64_t kFloats = int64_t{1} << 27;  // 512 MiB
  const auto a = floats(kFloats, 1);
  return fastest([&] {
    sink += read_burst(a.get(), kFloats);
    return 1.0 * sizeof(float) * kFloats;
  });
}

}  // namespace
}  // namespace weft::bench

int main() {
  using namespace weft::bench;
  float sink = 0;
  const double fma = fastest([&] { return fma_burst(20'000'000, sink); });
  const double amx = fastest([] { return amx_burst(2'000'000); });
  std::printf(
      "{\"fma_gflops\": %.1f, \"amx_gflops\": %.1f, \"triad_gb_per_s\": %.2f, "
      "\"read_gb_per_s\": %.2f}\n",
      fma / 1e9, amx / 1e9, triad(sink) / 1e9, reading(sink) / 1e9);
  return sink == 1.25f ? 1 : 0;
}
