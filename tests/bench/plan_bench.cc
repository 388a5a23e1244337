// A thousand stages: what making the plan takes, and what simulating one step of it.
#include <benchmark/benchmark.h>

#include "base/text.h"
#include "graph/presets.h"
#include "sim/predict.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

std::shared_ptr<const Plan> chain(int32_t ranks, int32_t micro_batches) {
  PlanConfig config;
  config.ranks = ranks;
  config.micro_batches = micro_batches;
  return make_plan(make_preset(cat("mlp:layers=", ranks, ",width=8"), {}).take().model, config)
      .take();
}

void arguments(benchmark::internal::Benchmark* b) {
  b->Args({64, 256})->Args({256, 1024})->Args({1024, 4096})->Unit(benchmark::kMillisecond);
}

void make(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(
        chain(static_cast<int32_t>(state.range(0)), static_cast<int32_t>(state.range(1))));
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1) * 2);
}
BENCHMARK(make)->Apply(arguments);

void simulate(benchmark::State& state) {
  const auto plan =
      chain(static_cast<int32_t>(state.range(0)), static_cast<int32_t>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(predict(plan, nullptr, false));
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1) * 2);
}
BENCHMARK(simulate)->Apply(arguments);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
