// What a training step makes of one core: a preset's step on the caller's thread, in turn with
// multiply-adds that stay in registers, since the machine may be shared, and its clock moves.
//
//   build/tests/bench/bench_step [MODEL [SEQ_LEN [SAMPLES [STEPS]]]]     (gpt2 64 4 9)
//
// Medians of the peak, of a step without its update, and of a whole step with AdamW. A step counts
// as 6 operations per parameter and token, the field's usual figure (forward 2, backward 4),
// whatever else it does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/peak.h"
#include "bench/wall_time.h"
#include "support/config.h"
#include "weft.h"

namespace {

using weft::bench::median;
using weft::bench::wall_seconds;

void must(weft_status status, const weft_error& err) {
  if (status >= 0) return;
  std::fprintf(stderr, "bench_step: %s\n", err.text);
  std::exit(1);
}

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* at) const { Free(at); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

// A run in this process, on this thread, and its one batch.
class Bench {
 public:
  Bench(const char* name, int64_t seq_len, uint32_t samples) {
    weft_model* model = nullptr;
    weft_preset_info info = sized<weft_preset_info>();
    must(weft_model_preset(name, seq_len, 1, &model, &info, &err_), err_);
    model_.reset(model);
    weft_optimizer adamw = unclipped();
    adamw.rate = 1e-4;
    weft_plan_config config = defaults(weft_plan_config_init);
    config.ranks = 1;
    config.micro_batches = 1;
    config.micro_batch_size = samples;
    config.optimizer = &adamw;
    weft_plan* plan = nullptr;
    must(weft_plan_new(model, &config, &plan, &err_), err_);
    plan_.reset(plan);
    weft_run* run = nullptr;
    must(weft_run_start(plan, nullptr, nullptr, &run, &err_), err_);
    run_.reset(run);
    make_batch(info, samples);
    tokens_ = samples * (info.tokens ? info.seq_len : 1);
  }

  double operations() const {
    return 6.0 * static_cast<double>(weft_model_parameters(model_.get())) *
           static_cast<double>(tokens_);
  }

  void step(weft_step_mode mode) {
    weft_tensor* const batch[] = {inputs_[0].get(), inputs_[1].get()};
    must(weft_run_submit(run_.get(), batch, 2, mode, 0, &err_), err_);
    weft_event event = sized<weft_event>();
    while (weft_run_poll(run_.get(), &event, -1, nullptr) > 0) {
      if (event.kind == WEFT_EVENT_DONE) return;
      if (event.kind == WEFT_EVENT_ERROR)
        std::fprintf(stderr, "bench_step: %s\n", event.text), std::exit(1);
    }
  }

 private:
  void make_batch(const weft_preset_info& info, uint32_t samples) {
    weft_data_config config = defaults(weft_data_config_init);
    config.width = info.width;
    weft_data* data = nullptr;
    if (!info.tokens) must(weft_data_open(&config, &data, &err_), err_);
    const weft_desc desc = {
        info.tokens ? WEFT_I32 : WEFT_F32, 2, {samples, info.tokens ? info.seq_len : info.width}};
    for (auto& input : inputs_) {
      weft_tensor* tensor = nullptr;
      must(weft_tensor_new(&desc, &tensor, &err_), err_);
      input.reset(tensor);
      if (!info.tokens) continue;
      auto* ids = static_cast<int32_t*>(weft_tensor_data(tensor));
      for (int64_t i = 0; i < samples * info.seq_len; ++i)
        ids[i] = static_cast<int32_t>((i * 7919 + (&input - inputs_)) % info.vocabulary);
    }
    if (data) must(weft_data_sample(data, 1, 0, inputs_[0].get(), inputs_[1].get(), &err_), err_);
    weft_data_free(data);
  }

  weft_error err_ = sized<weft_error>();
  Owned<weft_model, weft_model_free> model_;
  Owned<weft_plan, weft_plan_free> plan_;
  Owned<weft_run, weft_run_free> run_;
  Owned<weft_tensor, weft_tensor_unref> inputs_[2];
  int64_t tokens_ = 0;
};

void print(const char* what, double time, double rate, double peak) {
  std::printf("%-10s %8.1f ms %8.1f GFLOP/s %6.2f of the peak\n", what, time * 1e3, rate / 1e9,
              rate / peak);
}

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "gpt2";
  const int64_t seq_len = argc > 2 ? std::atoll(argv[2]) : 64;
  const auto samples = static_cast<uint32_t>(argc > 3 ? std::atoi(argv[3]) : 4);
  const int steps = argc > 4 ? std::max(std::atoi(argv[4]), 1) : 9;
  Bench bench(name, seq_len, samples);
  bench.step(WEFT_TRAIN);  // takes the memory, and finds BLIS's kernels
  std::vector<double> peaks, gradients, whole;
  float sink = 0;
  for (int i = 0; i < steps; ++i) {
    double work = 0;
    const double time = wall_seconds([&] { work = weft::bench::fma_burst(1000000, sink); });
    peaks.push_back(work / time);
    gradients.push_back(wall_seconds([&] { bench.step(WEFT_NO_UPDATE); }));
    whole.push_back(wall_seconds([&] { bench.step(WEFT_TRAIN); }));
  }
  const double peak = median(peaks);
  std::printf("%s, %u x %lld tokens, one thread, medians of %d\n", name, samples,
              static_cast<long long>(seq_len), steps);
  std::printf("%-10s %11s %8.1f GFLOP/s\n", "peak", "", peak / 1e9);
  print("gradients", median(gradients), bench.operations() / median(gradients), peak);
  print("step", median(whole), bench.operations() / median(whole), peak);
  return 0;
}
