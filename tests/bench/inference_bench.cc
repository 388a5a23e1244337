// What overlapping forward steps gain: steps of one micro-batch of a multilayer perceptron, one at
// a time, and queued, so that each rank begins the next step when it has finished its part of one.
//
//   build/tests/bench/bench_inference [ROUNDS [RANKS [WIDTH [SAMPLES]]]]     (5 2 1024 32)
//
// Per driver: milliseconds per step of both, and their ratio, measured in the same round; medians
// of the rounds. With a core per rank the ratio can reach the number of ranks.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/copies.h"
#include "bench/wall_time.h"

namespace {

using weft::bench::median;
using weft::bench::must;
using weft::bench::wall_seconds;

constexpr int kSteps = 200, kQueued = 16;

struct Sizes {
  int ranks = 2, width = 1024, samples = 32;
};

// A run of forward steps.
class Inference {
 public:
  Inference(const Sizes& sizes, const char* endpoint) {
    const std::string preset =
        "mlp:layers=" + std::to_string(2 * sizes.ranks) + ",width=" + std::to_string(sizes.width);
    must(weft_model_preset(preset.c_str(), 0, static_cast<uint32_t>(sizes.ranks), &model_, nullptr,
                           &err_),
         err_);
    weft_plan_config config = defaults(weft_plan_config_init);
    config.ranks = static_cast<uint32_t>(sizes.ranks);
    config.micro_batches = 1;
    config.micro_batch_size = static_cast<uint32_t>(sizes.samples);
    config.step_kinds = WEFT_STEPS_FORWARD;
    config.schedule = "forward";
    must(weft_plan_new(model_, &config, &plan_, &err_), err_);
    if (endpoint) {
      weft_mesh_config listen = defaults(weft_mesh_config_init);
      listen.endpoint = endpoint;
      must(weft_mesh_listen(&listen, &mesh_, &err_), err_);
      for (int rank = 1; rank < sizes.ranks; ++rank)
        children_.push_back(weft::bench::start_copy("--join", weft_mesh_join_endpoint(mesh_)));
    }
    weft_run_config options = defaults(weft_run_config_init);
    options.threads = 1;
    must(weft_run_start(plan_, mesh_, &options, &run_, &err_), err_);
    const weft_desc rows = {WEFT_F32, 2, {sizes.samples, sizes.width}};
    must(weft_tensor_new(&rows, &batch_[0], &err_), err_);
    std::fill_n(static_cast<float*>(weft_tensor_data(batch_[0])), sizes.samples * sizes.width,
                0.1f);
  }
  ~Inference() {
    weft_tensor_unref(batch_[0]);
    weft_run_free(run_);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
    weft_mesh_free(mesh_);
    weft_plan_free(plan_);
    weft_model_free(model_);
  }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // Seconds per step, with so many in the queue.
  double seconds(int queued) {
    return wall_seconds([&] {
             int submitted = 0;
             for (int done = 0; done < kSteps; ++done) {
               for (; submitted < std::min(kSteps, done + queued); ++submitted)
                 must(weft_run_submit(run_, batch_, 2, WEFT_FORWARD, 0, &err_), err_);
               wait_for_end();
             }
           }) /
           kSteps;
  }

 private:
  void wait_for_end() {
    weft_event event = sized<weft_event>();
    do
      must(weft_run_poll(run_, &event, -1, &err_) > 0 && event.kind != WEFT_EVENT_ERROR,
           event.text ? event.text : "the run has ended");
    while (event.kind != WEFT_EVENT_DONE);
  }

  weft_error err_ = sized<weft_error>();
  weft_model* model_ = nullptr;
  weft_plan* plan_ = nullptr;
  weft_mesh* mesh_ = nullptr;
  weft_run* run_ = nullptr;
  weft_tensor* batch_[2] = {};
  std::vector<pid_t> children_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--join") == 0) return weft::bench::join(argv[2]);
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::max(std::atoi(argv[i]), 1) : otherwise;
  };
  const int rounds = argument(1, 5);
  const Sizes sizes{argument(2, 2), argument(3, 1024), argument(4, 32)};
  std::printf("mlp of width %d, %d samples, %d ranks, medians of %d rounds of %d steps\n",
              sizes.width, sizes.samples, sizes.ranks, rounds, kSteps);
  struct Driver {
    const char *name, *endpoint;
  };
  for (const Driver& driver : {Driver{"threads", nullptr}, {"processes", "ipc://"}}) {
    Inference run(sizes, driver.endpoint);
    run.seconds(kQueued);
    std::vector<double> single, queued, ratios;
    for (int i = 0; i < rounds; ++i) {
      single.push_back(run.seconds(1));
      queued.push_back(run.seconds(kQueued));
      ratios.push_back(single.back() / queued.back());
    }
    std::sort(ratios.begin(), ratios.end());
    std::printf("%-9s  one at a time %7.3f ms   queued %7.3f ms   ratio %5.2f  (%.2f to %.2f)\n",
                driver.name, 1e3 * median(single), 1e3 * median(queued), median(ratios),
                ratios.front(), ratios.back());
  }
  return 0;
}
