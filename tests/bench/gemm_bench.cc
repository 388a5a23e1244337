// Products of float32 at the shapes of GPT-2, Llama and small models, on one thread: weft's kernels
// beside BLIS, each as a share of what the core can do at most.
//
//   build/tests/bench/bench_gemm [--avx2] [ROUNDS [ROWS OUT IN]]     (7)
//
// "cold" multiplies by twelve distinct weights in turn, "hot" by one. "plain" reads the weight as
// it is stored, "packed" as pack() wrote it. "cut" is the weight gradient in the tiles that threads
// would share. A product and the peak are timed in turn, in processor time of the thread, and the
// median of their ratios is shown: the machine may be shared, and its clock moves. With at most 16
// rows, the limit is the reading of the weight; "reads" is the share of the bandwidth with which
// the core reads the same weights otherwise.
#include <hwy/highway.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "bench/cpu_time.h"
#include "bench/peak.h"
#include "bench/wall_time.h"
#include "kernels/fpenv.h"
#include "kernels/gemm.h"
#include "kernels/packed.h"

namespace weft::bench {
namespace {

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float, Free>;

Floats numbers(int64_t n) {
  constexpr size_t kPage = 4096;
  const size_t bytes = (static_cast<size_t>(n) * sizeof(float) + kPage - 1) / kPage * kPage;
  Floats out(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
  for (int64_t i = 0; i < n; ++i) out.get()[i] = static_cast<float>(i % 1009) / 1024 - 0.5f;
  return out;
}

struct Shape {
  int64_t rows, out, in;
};
constexpr Shape kShapes[] = {
    {64, 2304, 768},   {64, 768, 768},   {64, 3072, 768},  {64, 768, 3072},   {256, 2304, 768},
    {256, 768, 768},   {256, 3072, 768}, {256, 768, 3072}, {1024, 2304, 768}, {64, 2048, 2048},
    {256, 5632, 2048}, {256, 128, 128},  {512, 384, 128},  {256, 512, 512},   {64, 64, 64},
    {1, 3072, 768},    {4, 3072, 768},   {16, 3072, 768}};

// A weight, plain and packed for both directions, and its gradient.
struct Weight {
  Floats plain, forward, backward, grad;

  explicit Weight(const Shape& s)
      : plain(numbers(s.in * s.out)),
        forward(numbers(packed_floats(s.in, s.out))),
        backward(numbers(packed_floats(s.out, s.in))),
        grad(numbers(s.in * s.out)) {
    SerialTiles tiles;
    pack({plain.get(), s.out}, s.in, s.out, forward.get(), tiles);
    pack({plain.get(), s.out, kTransposed}, s.out, s.in, backward.get(), tiles);
  }
};

class Bench {
 public:
  Bench(const Shape& shape, int weights) : s_(shape) {
    for (int i = 0; i < weights; ++i) weights_.emplace_back(shape);
  }

  Gemm forward(const Weight& w, bool packed) const {
    Gemm g{s_.rows, s_.out, s_.in, {x_.get(), s_.in}, {w.plain.get(), s_.out}, y_.get(), s_.out};
    if (packed) g.packed_b = w.forward.get();
    return g;
  }
  Gemm input_grad(const Weight& w, bool packed) const {
    const Factor transposed{w.plain.get(), s_.out, kTransposed};
    Gemm g{s_.rows, s_.in, s_.out, {y_.get(), s_.out}, transposed, dx_.get(), s_.in};
    if (packed) g.packed_b = w.backward.get();
    return g;
  }
  Gemm weight_grad(const Weight& w) const {
    const Factor x{x_.get(), s_.in, kTransposed}, dy{y_.get(), s_.out};
    return {s_.in, s_.out, s_.rows, x, dy, w.grad.get(), s_.out, 1, 1};
  }

  // f(weight) for each weight, as a share of the peak.
  double share(int rounds, const std::function<void(const Weight&)>& f) const {
    const double flops = 2.0 * static_cast<double>(s_.rows * s_.out * s_.in);
    const int repeats =
        std::max(1, static_cast<int>(1e7 / flops / static_cast<double>(weights_.size())));
    std::vector<double> shares;
    double before = peak();
    for (int round = 0; round < rounds; ++round) {
      const double time = seconds([&] {
        for (int i = 0; i < repeats; ++i)
          for (const Weight& w : weights_) f(w);
      });
      const double after = peak();
      const double rate = flops * repeats * static_cast<double>(weights_.size()) / time;
      shares.push_back(rate / ((before + after) / 2));
      before = after;
    }
    return median(shares);
  }

  // The bandwidth of reading the weights, as a multiple of which a product at `share` of the peak
  // reads them.
  double reads(int rounds, double share) const {
    const int64_t n = s_.in * s_.out;
    std::vector<double> shares;
    for (int round = 0; round < rounds; ++round) {
      float sum = 0;
      const double time = seconds([&] {
        for (const Weight& w : weights_) sum += read_burst(w.forward.get(), n);
      });
      sink_ += sum;
      const double bytes = static_cast<double>(n) * sizeof(float);
      const double product = 2.0 * static_cast<double>(s_.rows * n) / (share * peak());
      shares.push_back(bytes / product / (bytes * static_cast<double>(weights_.size()) / time));
    }
    return median(shares);
  }

 private:
  double peak() const {
    double work = 0;
    const double time = seconds([&] { work = fma_burst(20000, sink_); });
    return work / time;
  }

  Shape s_;
  std::vector<Weight> weights_;
  Floats x_ = numbers(s_.rows * s_.in), y_ = numbers(s_.rows * s_.out),
         dx_ = numbers(s_.rows * s_.in);
  mutable float sink_ = 0;
};

void print(const Shape& shape, int weights, int rounds) {
  const Bench bench(shape, weights);
  SerialTiles tiles;
  const auto percent = [&](const std::function<void(const Weight&)>& f) {
    return 100 * bench.share(rounds, f);
  };
  const double packed = percent([&](const Weight& w) { gemm_tile(bench.forward(w, true)); });
  std::printf("%5ld %5ld %5ld  %4s", static_cast<long>(shape.rows), static_cast<long>(shape.out),
              static_cast<long>(shape.in), weights > 1 ? "cold" : "hot");
  std::printf("  %4.0f%% %4.0f%% %4.0f%%", packed,
              percent([&](const Weight& w) { gemm_tile(bench.forward(w, false)); }),
              percent([&](const Weight& w) { blis_product(bench.forward(w, false)); }));
  std::printf("   %4.0f%% %4.0f%% %4.0f%%",
              percent([&](const Weight& w) { gemm_tile(bench.input_grad(w, true)); }),
              percent([&](const Weight& w) { gemm_tile(bench.input_grad(w, false)); }),
              percent([&](const Weight& w) { blis_product(bench.input_grad(w, false)); }));
  std::printf("   %4.0f%% %4.0f%% %4.0f%%",
              percent([&](const Weight& w) { gemm_tile(bench.weight_grad(w)); }),
              percent([&](const Weight& w) { gemm(bench.weight_grad(w), tiles); }),
              percent([&](const Weight& w) { blis_product(bench.weight_grad(w)); }));
  if (shape.rows <= 16) std::printf("   %4.0f%%", 100 * bench.reads(rounds, packed / 100));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft;
  using namespace weft::bench;
  if (argc > 1 && std::strcmp(argv[1], "--avx2") == 0) {
    hwy::SetSupportedTargetsForTest(HWY_AVX2);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    --argc;
    ++argv;
  }
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  ComputeScope scope;
  std::printf("%s\nreference: %s\nshares of the peak of fused multiply-adds\n",
              gemm_info().text().c_str(), blis_info().text().c_str());
  std::printf(
      " rows   out    in         forward            dX                dW\n"
      "                         packed plain BLIS  packed plain BLIS  whole   cut BLIS  reads\n");
  if (argc > 4) {
    const Shape shape{std::atol(argv[2]), std::atol(argv[3]), std::atol(argv[4])};
    print(shape, 12, rounds);
    print(shape, 1, rounds);
    return 0;
  }
  for (const Shape& shape : kShapes) print(shape, 12, rounds);
  for (const Shape& shape : {Shape{256, 128, 128}, Shape{512, 384, 128}, Shape{64, 64, 64}})
    print(shape, 1, rounds);
  return 0;
}
