// Products of bf16 with the weights of GPT-2's twelve layers, each read once per round ("cold"), on
// one thread, beside the same products in float32 and what the core can do at most.
//
//   build/tests/bench/bench_bf16 [ROUNDS [ROWS...]]     (5 1 16 64 256)
//
// All are timed in turn, in processor time of the thread, and the best round counts: the machine
// may be shared. "of" is the share of the peak of the unit; "reads" the share of the bandwidth with
// which the core reads the same weights.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "bench/cpu_time.h"
#include "bench/peak.h"
#include "kernels/bf16_product.h"
#include "kernels/fpenv.h"
#include "kernels/gemm.h"

namespace weft::bench {
namespace {

using kernels::Bf16;
using kernels::Bf16Unit;

// Huge pages, filled with numbers between 1/2 and 2, and their negatives.
template <typename T>
class Memory {
 public:
  explicit Memory(int64_t n) : n_(n) {
    constexpr size_t kPage = size_t{1} << 21;
    const size_t bytes = (static_cast<size_t>(n) * sizeof(T) + kPage - 1) / kPage * kPage;
    data_.reset(static_cast<T*>(std::aligned_alloc(kPage, bytes)));
#if defined(__linux__)
    madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
    uint32_t random = 7;
    for (int64_t i = 0; i < n; ++i) {
      random = random * 1664525 + 1013904223;
      const auto half = static_cast<Bf16>((random >> 16 & 0x80ff) | 0x3f00);
      if constexpr (sizeof(T) == sizeof(Bf16))
        data_.get()[i] = half;
      else
        kernels::from_bf16(&half, data_.get() + i, 1);
    }
  }
  T* at(int64_t i) { return data_.get() + i; }
  int64_t size() const { return n_; }

 private:
  struct Free {
    void operator()(T* x) const { std::free(x); }
  };
  int64_t n_;
  std::unique_ptr<T, Free> data_;
};

struct Shape {
  int64_t in, out;
};
constexpr Shape kLayer[] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
constexpr int kLayers = 12;
constexpr int64_t kWidest = 3072;

int64_t parameters() {
  int64_t n = 0;
  for (const Shape& s : kLayer) n += s.in * s.out;
  return n * kLayers;
}

// The best time of each product of the layers.
class Times {
 public:
  // f(shape, the weight's first element), once for each weight.
  template <typename F>
  void round(const F& f) {
    int64_t at = 0;
    size_t product = 0;
    for (int layer = 0; layer < kLayers; ++layer)
      for (const Shape& s : kLayer) {
        const double time = seconds([&] { f(s, at); });
        best_[product] = std::min(best_[product], time);
        ++product;
        at += s.in * s.out;
      }
  }
  double total() const { return std::accumulate(best_.begin(), best_.end(), 0.0); }

 private:
  std::vector<double> best_ = std::vector<double>(kLayers * std::size(kLayer), 1e30);
};

enum class Kind { forward, input_grad, weight_grad, first_grad };
constexpr const char* kNames[] = {"forward", "dX", "dW added", "dW stored"};

struct Bench {
  int64_t rows;
  Memory<Bf16> weights{parameters()}, x{rows * kWidest}, dy{rows * kWidest}, y{rows * kWidest};
  Memory<float> floats{parameters()}, x32{rows * kWidest}, y32{rows * kWidest};
  Memory<Bf16> scratch{
      kernels::bf16_weight_grad_bytes(kernels::bf16_chunks(rows), kWidest, kWidest)};
  SerialTiles tiles{};

  // GPT-2's widths are multiples of 32, so nothing is padded.
  void bf16(Kind kind, const Shape& s, int64_t at, Bf16Unit unit) {
    if (kind == Kind::forward || kind == Kind::input_grad)
      product(kind == Kind::forward ? s : Shape{s.out, s.in}, weights.at(at), unit);
    else
      grad(s, floats.at(at), kind == Kind::weight_grad, unit);
  }

  void product(const Shape& s, const Bf16* packed, Bf16Unit unit) {
    bf16_product({.m = rows,
                  .n = s.out,
                  .k = s.in,
                  .a = x.at(0),
                  .a_row = s.in,
                  .b = packed,
                  .rounded = y.at(0),
                  .c_row = s.out},
                 tiles, unit);
  }

  void grad(const Shape& s, float* acc, bool add, Bf16Unit unit) {
    const kernels::Bf16Rows part{rows, x.at(0), dy.at(0)};
    bf16_weight_grad({.parts = {&part, 1},
                      .k = s.in,
                      .n = s.out,
                      .x_row = s.in,
                      .dy_row = s.out,
                      .acc = acc,
                      .acc_row = s.out,
                      .add = add,
                      .scratch = reinterpret_cast<std::byte*>(scratch.at(0))},
                     tiles, unit);
  }

  void float32(Kind kind, const Shape& s, int64_t at) {
    const auto [in, out] = s;
    float* w = floats.at(at);
    if (kind == Kind::forward)
      gemm({rows, out, in, {x32.at(0), in}, {w, out}, y32.at(0), out}, tiles);
    else if (kind == Kind::input_grad)
      gemm({rows, in, out, {y32.at(0), out}, {w, out, kTransposed}, x32.at(0), in}, tiles);
    else
      gemm({in,
            out,
            rows,
            {x32.at(0), in, kTransposed},
            {y32.at(0), out},
            w,
            out,
            1,
            kind == Kind::weight_grad ? 1.0f : 0.0f},
           tiles);
  }

  void run(Kind kind, int rounds) {
    Times amx, fma, single, read;
    double fma_peak = 0, amx_peak = 0;
    float sink = 0;
    for (int i = 0; i < rounds; ++i) {
      double done = 0;
      double time = seconds([&] { done = fma_burst(1000000, sink); });
      fma_peak = std::max(fma_peak, done / time);
      time = seconds([&] { done = amx_burst(100000); });
      amx_peak = std::max(amx_peak, done / time);
      if (kernels::bf16_has_amx())
        amx.round([&](const Shape& s, int64_t at) { bf16(kind, s, at, Bf16Unit::amx); });
      fma.round([&](const Shape& s, int64_t at) { bf16(kind, s, at, Bf16Unit::fma); });
      single.round([&](const Shape& s, int64_t at) { float32(kind, s, at); });
      read.round([&](const Shape& s, int64_t at) {
        const auto* memory = reinterpret_cast<const float*>(weights.at(at));
        sink += read_burst(memory, s.in * s.out / 2);
      });
    }
    const double work = 2.0 * static_cast<double>(rows) * static_cast<double>(parameters()) / 1e9;
    std::printf("%4lld %-10s", static_cast<long long>(rows), kNames[static_cast<int>(kind)]);
    print(work / amx.total(), amx_peak / 1e9);
    print(work / fma.total(), fma_peak / 1e9);
    print(work / single.total(), fma_peak / 1e9);
    if (kind == Kind::forward || kind == Kind::input_grad)
      std::printf("  %4.2f AMX %4.2f FMA", read.total() / amx.total(), read.total() / fma.total());
    std::printf("%s\n", sink == 42 ? " " : "");
    std::fflush(stdout);
  }

  static void print(double rate, double peak) {
    std::printf("  %7.1f %4.2f", rate, peak > 0 ? rate / peak : 0);
  }
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft;
  const ComputeScope scope;
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::vector<int64_t> rows;
  for (int i = 2; i < argc; ++i) rows.push_back(std::max(1, std::atoi(argv[i])));
  if (rows.empty()) rows = {1, 16, 64, 256};
  std::printf("GFLOP/s with distinct weights; float32 by %s\n", gemm_info().text().c_str());
  std::printf("rows            %12s  %12s  %12s  reads\n", "AMX   of", "FMA   of", "float32   of");
  for (const int64_t n : rows) {
    bench::Bench bench{n};
    for (const auto kind : {bench::Kind::forward, bench::Kind::input_grad, bench::Kind::weight_grad,
                            bench::Kind::first_grad})
      bench.run(kind, rounds);
  }
  return 0;
}
