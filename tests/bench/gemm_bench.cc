// Matrix products at GPT-2's shapes, one thread, against what the core can do at most. Product,
// uncut product and peak are timed in turn and reported as ratios of medians: the machine may be
// shared, and its clock moves.
//
//   share_of_peak   gemm()'s rate over that of multiply-adds in registers
//   share_of_uncut  gemm()'s rate over that of the whole product uncut: what cutting it for threads
//   costs
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "bench/peak.h"
#include "kernels/fpenv.h"
#include "kernels/gemm.h"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;

template <typename F>
double seconds(const F& f) {
  const Clock::time_point start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Shape {
  int64_t rows, out, in;
};

enum class Kind { forward, forward_out_in, input_grad, weight_grad };

struct Product {
  const char* name;
  Kind kind;
};

constexpr Shape kShapes[] = {{256, 2304, 768},  {256, 768, 768},   {256, 3072, 768},
                             {256, 768, 3072},  {256, 50257, 768}, {64, 2304, 768},
                             {1024, 2304, 768}, {64, 64, 64}};
constexpr Product kProducts[] = {{"forward", Kind::forward},
                                 {"forward_out_in", Kind::forward_out_in},
                                 {"input_grad", Kind::input_grad},
                                 {"weight_grad", Kind::weight_grad}};

// The product as linear makes it; a, b and c hold as many floats as the largest needs.
Gemm product_of(const Shape& s, Kind kind, const float* a, const float* b, float* c) {
  switch (kind) {
    case Kind::forward: return {s.rows, s.out, s.in, {a, s.in}, {b, s.out}, c, s.out};
    case Kind::forward_out_in:
      return {s.rows, s.out, s.in, {a, s.in}, {b, s.in, kTransposed}, c, s.out};
    case Kind::input_grad:
      return {s.rows, s.in, s.out, {a, s.out}, {b, s.out, kTransposed}, c, s.in};
    case Kind::weight_grad:
      return {s.in, s.out, s.rows, {a, s.in, kTransposed}, {b, s.out}, c, s.out, 1, 1};
  }
  return {};
}

std::vector<float> small_numbers(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 17) / 64 - 0.125f;
  return out;
}

void run_product(benchmark::State& state, const Shape& shape, Kind kind) {
  ComputeScope scope;
  const int64_t largest =
      std::max({shape.rows * shape.out, shape.rows * shape.in, shape.in * shape.out});
  const std::vector<float> a = small_numbers(largest), b = small_numbers(largest);
  std::vector<float> c(static_cast<size_t>(largest));
  const Gemm product = product_of(shape, kind, a.data(), b.data(), c.data());
  const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                       static_cast<double>(product.k);
  const int repeats =
      std::max(1, static_cast<int>(1e7 / flops));  // so that a clock reading is nothing beside them
  // As much work as the product has, within 10 microseconds to some milliseconds: the clock is the
  // same for both.
  const auto peak_rounds = static_cast<int64_t>(std::clamp(flops * repeats / 384, 4e3, 1e6));

  SerialTiles tiles;
  float sink = 0;
  const auto cut = [&] {
    for (int i = 0; i < repeats; ++i) gemm(product, tiles);
  };
  const auto uncut = [&] {
    for (int i = 0; i < repeats; ++i) gemm_tile(product);
  };
  cut();
  std::vector<double> cut_times, uncut_times, peak_rates;
  for (auto _ : state) {
    cut_times.push_back(seconds(cut) / repeats);
    state.SetIterationTime(cut_times.back());
    uncut_times.push_back(seconds(uncut) / repeats);
    double work = 0;
    const double time = seconds([&] { work = fma_burst(peak_rounds, sink); });
    peak_rates.push_back(work / time);
    benchmark::DoNotOptimize(sink);
  }
  const double time = median(cut_times), peak = median(peak_rates);
  state.counters["gflops"] = flops / time / 1e9;
  state.counters["peak_gflops"] = peak / 1e9;
  state.counters["share_of_peak"] = flops / time / peak;
  state.counters["share_of_uncut"] = median(uncut_times) / time;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft;
  benchmark::AddCustomContext("gemm", gemm_info().text());
  for (const bench::Shape& shape : bench::kShapes)
    for (const bench::Product& product : bench::kProducts) {
      const std::string name = "gemm/" + std::to_string(shape.rows) + "x" +
                               std::to_string(shape.out) + "x" + std::to_string(shape.in) + "/" +
                               product.name;
      benchmark::RegisterBenchmark(name.c_str(), bench::run_product, shape, product.kind)
          ->UseManualTime()
          ->MinTime(0.2);
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
