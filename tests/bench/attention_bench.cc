// attention, one sample of 12 causal heads of 64 as in GPT-2, one thread, against what the core can
// do at most. Forward, backward and peak are timed in turn; the best rounds are compared: the
// machine may be shared, and its clock moves.
//
//   build/tests/bench/bench_attention [ROUNDS [ROWS [CAP]]]     (15, 64 128 256 1024, and 0)
//
// Two products forward and five backward count, each for the scores that the mask lets through.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "bench/cpu_time.h"
#include "bench/peak.h"
#include "kernels/fpenv.h"
#include "ops/op.h"

namespace weft::bench {
namespace {

constexpr int kHeads = 12;
constexpr int64_t kSize = 64, kWidth = kHeads * kSize;

// As in a run, every tensor begins with a cache line.
template <typename T>
struct Aligned {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* at, size_t) { ::operator delete(at, kLine); }
  bool operator==(const Aligned&) const = default;
  static constexpr std::align_val_t kLine{64};
};
using Floats = std::vector<float, Aligned<float>>;

Floats numbers(int64_t n) {
  Floats out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(i * 7919 % 1009) / 504.5f - 1.0f;
  return out;
}

// The op and its operands; queries, keys and values lie side by side.
class Bench {
 public:
  Bench(int64_t rows, double cap) : in_(numbers(rows * 3 * kWidth)), dout_(numbers(rows * kWidth)) {
    attrs_.heads = kHeads;
    attrs_.flags = kCausal;
    attrs_.cap = cap;
    const Operand operand{{DType::f32, {1, rows, 3 * kWidth}}, true};
    auto result = find_op("attention")->infer(attrs_, std::span(&operand, 1), {});
    if (!result.ok()) {
      std::fprintf(stderr, "bench_attention: %s\n", result.status().text().c_str());
      std::exit(1);
    }
    const Inferred inferred = result.take();
    out_.resize(dout_.size());
    din_.resize(in_.size());
    scratch_.resize(inferred.scratch / sizeof(float));
    for (const Desc& desc : inferred.stash) {
      kept_.emplace_back(static_cast<size_t>(desc.shape.elements()));
      stash_.push_back({kept_.back().data(), desc});
    }
    in_view_ = {in_.data(), operand.desc};
    din_view_ = {din_.data(), operand.desc};
    call_.attrs = &attrs_;
    call_.in = std::span(&in_view_, 1);
    call_.out = {out_.data(), inferred.out};
    call_.stash = stash_;
    call_.dout = {dout_.data(), inferred.out};
    call_.din = std::span(&din_view_, 1);
    call_.scratch = scratch_.data();
    call_.tiles = &tiles_;
  }

  void forward() const { (void)find_op("attention")->forward(call_); }
  void backward() const { (void)find_op("attention")->input_grad(call_); }

 private:
  Floats in_, dout_, out_, din_, scratch_;
  std::vector<Floats> kept_;
  std::vector<View> stash_;
  View in_view_, din_view_;
  Attrs attrs_;
  SerialTiles tiles_;
  Call call_;
};

void measure(int64_t rows, int rounds, double cap = 0) {
  const Bench bench(rows, cap);
  const double scores = kHeads * static_cast<double>(rows) * static_cast<double>(rows + 1) / 2;
  const double product = 2 * scores * kSize;
  const int repeats = static_cast<int>(std::max<int64_t>(1, 262144 / (rows * rows)));
  double peak = 0, forward = INFINITY, backward = INFINITY;
  float sink = 0;
  bench.forward();
  bench.backward();
  for (int i = 0; i < rounds; ++i) {
    double work = 0;
    const double time = seconds([&] { work = fma_burst(100000, sink); });
    peak = std::max(peak, work / time);
    forward = std::min(forward, seconds([&] {
                         for (int r = 0; r < repeats; ++r) bench.forward();
                       }));
    backward = std::min(backward, seconds([&] {
                          for (int r = 0; r < repeats; ++r) bench.backward();
                        }));
  }
  const double f = 2 * product * repeats / forward, b = 5 * product * repeats / backward;
  std::printf("%5lld rows  peak %6.1f GFLOP/s  forward %6.1f, %.2f  backward %6.1f, %.2f\n",
              static_cast<long long>(rows), peak / 1e9, f / 1e9, f / peak, b / 1e9, b / peak);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  const weft::ComputeScope scope;
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 15;
  if (argc > 2) {
    weft::bench::measure(std::max<int64_t>(std::atoll(argv[2]), 1), rounds,
                         argc > 3 ? std::atof(argv[3]) : 0);
    return 0;
  }
  for (const int64_t rows : {64, 128, 256, 1024}) weft::bench::measure(rows, rounds);
  return 0;
}
