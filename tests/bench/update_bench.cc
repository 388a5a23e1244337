// The update of 32 million parameters, one thread, against a triad a = b + s c over as many floats:
// bytes per second that each reads and writes. "bf16" and "f32" also write both forms of the
// weight that products of that type read. The passes are timed in turn; the best rounds are
// compared, since the machine may be shared.
//
//   build/tests/bench/bench_update [ROUNDS]     (9)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "bench/cpu_time.h"
#include "kernels/fpenv.h"
#include "kernels/packed.h"
#include "kernels/tiles.h"
#include "optim/optim.h"

namespace weft::bench {
namespace {

constexpr int64_t kParameters = int64_t{1} << 25;
constexpr int64_t kRow = 1024;  // of the matrix of them

// Untouched pages of zeros would all be one page in the cache.
std::unique_ptr<float[]> floats(float value) {
  auto out = std::make_unique<float[]>(kParameters);
  std::fill_n(out.get(), kParameters, value);
  return out;
}

struct alignas(kPackedAlign) Line {
  float at[kPackedAlign / sizeof(float)];
};

// Both packed forms of the matrix.
struct Packed {
  explicit Packed(DType dtype) : memory(2 * kLines, Line{{1}}) {
    constexpr int64_t kRows = kParameters / kRow;
    forms[0] = {dtype, kRows, kRow, false, memory.data()};
    forms[1] = {dtype, kRow, kRows, true, memory.data() + kLines};
  }
  static constexpr size_t kLines = kParameters * sizeof(float) / sizeof(Line);
  std::vector<Line> memory;
  kernels::PackedMatrix forms[2];
};

struct Pass {
  const char* name;
  double bytes;  // per parameter
  std::function<void()> run;
  double best = INFINITY;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft;
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 9;
  const ComputeScope scope;
  const int64_t n = bench::kParameters;
  const auto w = bench::floats(0.5f), g = bench::floats(0.01f), m = bench::floats(0.0f),
             v = bench::floats(0.0f);
  const auto partials = std::make_unique<double[]>(static_cast<size_t>(n / kNormBlock + 1));
  SerialTiles tiles;
  OptimSettings adamw;
  adamw.rule = Rule::adamw;
  double norm = 0;
  const bench::Packed bf16(DType::bf16), f32(DType::f32);
  const auto step = [&](const kernels::WeightCopies& copies) {
    update(adamw, adamw.rate, 3, 1, {}, n, w.get(), g.get(), m.get(), v.get(), copies, tiles);
  };
  bench::Pass passes[] = {
      {"triad", 12,
       [&] {
         for (int64_t i = 0; i < n; ++i) w[i] = g[i] + 0.5f * m[i];
       }},
      {"adamw", 28, [&] { step({}); }},
      {"bf16", 32, [&] { step({.packed = bf16.forms}); }},
      {"f32", 36, [&] { step({.packed = f32.forms}); }},
      {"norm", 4,
       [&] {
         square_blocks(g.get(), 0, n, partials.get());
         norm += sum_of_blocks(partials.get(), n);
       }},
  };
  for (int i = 0; i < rounds; ++i)
    for (bench::Pass& pass : passes) pass.best = std::min(pass.best, bench::seconds(pass.run));
  const double triad = passes[0].bytes / passes[0].best;
  for (const bench::Pass& pass : passes)
    std::printf("%-6s %8.1f ms %8.1f GB/s %6.2f of the triad\n", pass.name, pass.best * 1e3,
                pass.bytes * static_cast<double>(n) / pass.best / 1e9,
                pass.bytes / pass.best / triad);
  return std::isnan(norm) ? 1 : 0;
}
