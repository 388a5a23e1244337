// Asynchronous schedules on real kernels: loss by loss and bit by bit what a sequential program
// makes that keeps every version of the weights, takes each gradient at versions as old as the
// stages' delays, and updates with a loop of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "base/text.h"
#include "graph/presets.h"
#include "kernels/fpenv.h"
#include "optim/optim.h"
#include "runtime/run.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr int64_t kTime = 12;

void ignore(void*) {}

struct Data {
  std::vector<int32_t> tokens, targets;
};

// Samples of one update; targets that do not count, so that every update has another denominator.
Data sample(uint64_t update, int64_t samples) {
  const Stream stream = Stream::data(9, update);
  Data out;
  for (uint64_t i = 0; i < static_cast<uint64_t>(samples * kTime); ++i) {
    out.tokens.push_back(static_cast<int32_t>(stream.below(i, 256)));
    out.targets.push_back(i % (3 + update % 4) == 0 ? -1 : (out.tokens.back() * 3 + 1) % 256);
  }
  return out;
}

void append(Data& to, const Data& from) {
  to.tokens.insert(to.tokens.end(), from.tokens.begin(), from.tokens.end());
  to.targets.insert(to.targets.end(), from.targets.begin(), from.targets.end());
}

struct Series {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> weights;
};

std::shared_ptr<Model> small_gpt() {
  return make_preset("gpt-nano:width=32,heads=4,blocks=3,tied=0,dropout=0.1", {.seq_len = kTime})
      .take()
      .model;
}

// Submits the samples and polls until the end.
void submit(Run& run, const Data& data, int64_t samples, bool update,
            const std::function<void(const RunEvent&)>& hear) {
  Step* step = run.acquire();
  ASSERT_NE(step, nullptr);
  step->update = update;
  step->batch.samples = samples;
  step->batch.inputs = {data.tokens.data(), data.targets.data()};
  const Status submitted = run.submit(step);
  ASSERT_TRUE(submitted.ok()) << submitted.text();
  for (RunEvent event; run.poll(event, -1);) {
    ASSERT_TRUE(event.status.ok()) << event.status.text();
    hear(event);
  }
}

Series asynchronous(Run& run, int updates) {
  const PlanConfig& c = run.plan().config;
  const int64_t samples = c.micro_batches * c.micro_batch_size;
  Series out;
  for (int first = 0; first < updates; first += c.segment) {
    const int n = std::min(c.segment, updates - first);
    Data data;
    for (int u = 0; u < n; ++u) append(data, sample(static_cast<uint64_t>(first + u), samples));
    submit(run, data, n * samples, true, [&](const RunEvent& event) {
      if (event.kind != RunEvent::Kind::update) return;
      EXPECT_EQ(event.number, out.losses.size());
      out.losses.push_back(event.loss);
      out.norms.push_back(event.grad_norm);
    });
  }
  for (ParamId p = 0; p < static_cast<ParamId>(run.plan().model->params().size()); ++p) {
    out.weights.emplace_back(static_cast<size_t>(run.plan().model->param(p).shape.elements()));
    EXPECT_TRUE(run.read(p, Part::value, out.weights.back()).ok());
  }
  return out;
}

// One rank, no pipeline: gradients of single updates at weights that are written for the purpose.
class Sequential {
 public:
  Sequential(const std::shared_ptr<Model>& model, const Plan& plan)
      : plan_(plan), params_(model->params().size()) {
    PlanConfig config = plan.config;
    config.ranks = 1;
    config.schedule = "gpipe";
    config.segment = 0;
    config.vertical_sync = false;
    config.cuts.clear();
    config.stage_replicas.clear();
    run_ = start_inline(make_plan(model, config).take(), ignore).take();
    for (size_t p = 0; p < params_; ++p) {
      now_.emplace_back(
          static_cast<size_t>(model->param(static_cast<ParamId>(p)).shape.elements()));
      EXPECT_TRUE(run_->read(static_cast<ParamId>(p), Part::value, now_.back()).ok());
      momentum_.emplace_back(now_.back().size(), 0.0f);
    }
  }

  // `delay` and `replicas` per stage: the micro-batches of an update, and how many updates old the
  // weights of one are.
  Series train(int updates, const std::vector<int32_t>& delay,
               const std::vector<int32_t>& replicas) {
    const PlanConfig& c = plan_.config;
    const int64_t samples = c.micro_batches * c.micro_batch_size;
    Series out;
    std::vector<std::vector<std::vector<float>>> versions;  // before each micro-batch of a segment
    std::vector<std::vector<std::vector<float>>> grads(params_);  // of those of an update
    std::vector<std::vector<double>> squares(static_cast<size_t>(updates),
                                             std::vector<double>(params_));
    const auto stage_of = [this](size_t p) {
      return static_cast<size_t>(
          plan_.stage_of_node[static_cast<size_t>(plan_.model->params()[p].uses.front().node)]);
    };
    for (int u = 0; u < updates; ++u) {
      if (u % c.segment == 0) versions.clear();
      versions.push_back(now_);
      for (size_t p = 0; p < params_; ++p) {
        const int r = replicas[stage_of(p)],
                  round = std::max(0, u % c.segment / r - delay[stage_of(p)]);
        EXPECT_TRUE(run_->write(static_cast<ParamId>(p), Part::value,
                                versions[static_cast<size_t>(round * r)][p])
                        .ok());
      }
      run_->set_trained(static_cast<uint64_t>(u));
      submit(*run_, sample(static_cast<uint64_t>(u), samples), samples, false,
             [&](const RunEvent& event) {
               if (event.kind != RunEvent::Kind::done) return;
               out.losses.push_back(event.loss);
             });
      for (size_t p = 0; p < params_; ++p) {
        if (plan_.whole->params()[p].training.frozen) continue;
        const auto r = static_cast<size_t>(replicas[stage_of(p)]);
        std::vector<float>& grad = grads[p].emplace_back(now_[p].size());
        EXPECT_TRUE(run_->read(static_cast<ParamId>(p), Part::grad, grad).ok());
        if (grads[p].size() < r) continue;
        const std::vector<float> mean = mean_of(grads[p]);
        for (size_t k = 0; k < r; ++k) squares[static_cast<size_t>(u) - k][p] = square(mean);
        update(p, mean);
        grads[p].clear();
      }
    }
    for (const std::vector<double>& of : squares) {
      double sum = 0;
      for (const double one : of) sum += one;
      out.norms.push_back(std::sqrt(sum));
    }
    out.weights = now_;
    return out;
  }

 private:
  // Added as a tree of halves, of which the left one is larger.
  static std::vector<float> sum_of(std::span<const std::vector<float>> parts) {
    if (parts.size() == 1) return parts[0];
    const size_t middle = parts.size() - parts.size() / 2;
    std::vector<float> left = sum_of(parts.first(middle));
    const std::vector<float> right = sum_of(parts.subspan(middle));
    for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }
  static std::vector<float> mean_of(const std::vector<std::vector<float>>& parts) {
    std::vector<float> out = sum_of(parts);
    if (parts.size() > 1)
      for (float& x : out) x *= 1 / static_cast<float>(parts.size());
    return out;
  }
  static double square(const std::vector<float>& x) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<double> partials(static_cast<size_t>(norm_blocks(n)));
    const ComputeScope scope;
    square_blocks(x.data(), 0, n, partials.data());
    return sum_of_blocks(partials.data(), n);
  }

  // SGD with momentum, as written in kernels/update.h: each product and sum rounded as the kernel
  // rounds it.
  void update(size_t p, const std::vector<float>& grad) {
    const OptimSettings& o = plan_.config.optim;
    const float rate = static_cast<float>(o.rate), momentum = static_cast<float>(o.momentum);
    for (size_t i = 0; i < grad.size(); ++i) {
      momentum_[p][i] = std::fma(momentum, momentum_[p][i], grad[i]);
      now_[p][i] = std::fma(-rate, momentum_[p][i], now_[p][i]);
    }
  }

  const Plan& plan_;
  const size_t params_;
  std::unique_ptr<Run> run_;
  std::vector<std::vector<float>> now_, momentum_;
};

PlanConfig config_of(int32_t ranks, const char* schedule, int32_t micro_batches,
                     bool vertical_sync) {
  PlanConfig config;
  config.ranks = ranks;
  config.schedule = schedule;
  config.micro_batches = micro_batches;
  config.micro_batch_size = 2;
  config.segment = 7;
  config.vertical_sync = vertical_sync;
  config.seed = 5;
  config.optim.rule = Rule::sgd;
  config.optim.momentum = 0.9;
  config.optim.rate = 0.05;
  return config;
}

void expect_sequential(const PlanConfig& config, const std::vector<int32_t>& delay,
                       std::vector<int32_t> replicas = {},
                       int updates = 17) {  // two segments, and a part of one
  SCOPED_TRACE(cat(config.schedule, ", ", config.ranks, " ranks",
                   config.vertical_sync ? ", vertical sync" : "", " ", config.stage_replicas));
  replicas.resize(delay.size(), 1);
  const auto model = small_gpt();
  const auto made = make_plan(model, config);
  ASSERT_TRUE(made.ok()) << made.status().text();
  const auto plan = made.value();
  const Series expected = Sequential(model, *plan).train(updates, delay, replicas);
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(updates));
  for (int threads : {0, 1, 2}) {
    auto run = (threads ? start_threads(plan, threads, ignore) : start_inline(plan, ignore)).take();
    const Series found = asynchronous(*run, updates);
    EXPECT_EQ(found.losses, expected.losses) << threads << " threads";
    EXPECT_EQ(found.norms, expected.norms);
    EXPECT_EQ(found.weights, expected.weights);
    EXPECT_EQ(run->trained(), static_cast<uint64_t>(updates));
  }
}

TEST(AsynchronousBits, PipedreamEqualsTheSequentialProgram) {
  expect_sequential(config_of(1, "pipedream", 1, false), {0});
  expect_sequential(config_of(2, "pipedream", 1, false), {1, 0});
  expect_sequential(config_of(4, "pipedream", 1, false), {3, 2, 1, 0});
  expect_sequential(config_of(4, "pipedream", 1, true), {3, 3, 3, 3});
}

PlanConfig replicated(const char* stage_replicas, int32_t ranks, int32_t segment) {
  PlanConfig config = config_of(ranks, "pipedream", 1, false);
  config.stage_replicas = stage_replicas;
  config.segment = segment;
  return config;
}

TEST(AsynchronousBits, StagesWithReplicasEqualTheSequentialProgram) {
  expect_sequential(replicated("2", 2, 6), {0}, {2}, 16);
  expect_sequential(replicated("2,1", 3, 6), {1, 0}, {2, 1}, 16);
  expect_sequential(replicated("1,2", 3, 6), {2, 0}, {1, 2}, 16);
  expect_sequential(replicated("3,2", 5, 12), {1, 0}, {3, 2}, 30);
  expect_sequential(replicated("1,3,2", 6, 6), {5, 1, 0}, {1, 3, 2}, 18);
}

// In all stages, and all of a stage.
TEST(AsynchronousBits, FrozenParametersEqualTheSequentialProgram) {
  const auto frozen = [](PlanConfig config, const char* pattern) {
    config.groups = {{.pattern = pattern, .frozen = true}};
    return config;
  };
  for (const char* pattern : {"*.weight", "h.0.*", "ln_f.*"}) {
    expect_sequential(frozen(config_of(4, "pipedream", 1, false), pattern), {3, 2, 1, 0});
    expect_sequential(frozen(config_of(4, "pipedream", 1, true), pattern), {3, 3, 3, 3});
    expect_sequential(frozen(replicated("1,3,2", 6, 6), pattern), {5, 1, 0}, {1, 3, 2}, 18);
    expect_sequential(frozen(config_of(2, "pipedream-2bw", 2, false), pattern), {1, 1});
  }
}

TEST(AsynchronousBits, AnUnfinishedRoundIsRefused) {
  auto run = start_inline(make_plan(small_gpt(), replicated("2,1", 3, 6)).take(), ignore).take();
  const Data data = sample(1, 6);
  Step* step = run->acquire();
  step->batch.samples = 6;
  step->batch.inputs = {data.tokens.data(), data.targets.data()};
  EXPECT_EQ(run->submit(step).text(),
            "batch has 3 micro-batches, expected a multiple of the 2 replicas of stage 0");
}

TEST(AsynchronousBits, Pipedream2bwEqualsTheSequentialProgram) {
  expect_sequential(config_of(2, "pipedream-2bw", 2, false), {1, 1});
  expect_sequential(config_of(4, "pipedream-2bw", 5, false), {1, 1, 1, 1});
}

// Every stage has the same delay, so that the number of stages does not change bits.
TEST(AsynchronousBits, ReplicasOfPipedream2bwHaveTheBitsOfAnyNumberOfStages) {
  std::vector<Series> found;
  for (const char* replicas : {"2", "2,2", "2,2,2"}) {
    PlanConfig config =
        config_of(static_cast<int32_t>(std::strlen(replicas)) + 1, "pipedream-2bw", 3, false);
    config.stage_replicas = replicas;
    config.segment = 6;
    const auto plan = make_plan(small_gpt(), config).take();
    for (int threads : {0, 1, 2}) {
      auto run =
          (threads ? start_threads(plan, threads, ignore) : start_inline(plan, ignore)).take();
      found.push_back(asynchronous(*run, 16));
    }
  }
  for (const Series& series : found) {
    EXPECT_EQ(series.losses, found[0].losses);
    EXPECT_EQ(series.norms, found[0].norms);
    EXPECT_EQ(series.weights, found[0].weights);
  }
  EXPECT_LT(found[0].losses.back(), found[0].losses.front());
}

TEST(AsynchronousBits, AStepWithoutUpdateIsThatOfASynchronousPlan) {
  const auto model = small_gpt();
  const PlanConfig config = config_of(3, "pipedream-2bw", 3, false);
  PlanConfig synchronous = config;
  synchronous.schedule = "gpipe";
  synchronous.segment = 0;
  synchronous.micro_batches = 9;
  Data data = sample(3, 18);
  std::vector<double> losses;
  std::vector<std::vector<float>> grads;
  for (const PlanConfig& c : {config, synchronous}) {
    auto run = start_inline(make_plan(model, c).take(), ignore).take();
    submit(*run, data, 18, false, [&](const RunEvent& event) {
      EXPECT_NE(event.kind, RunEvent::Kind::update);
      if (event.kind == RunEvent::Kind::done) losses.push_back(event.loss);
    });
    grads.emplace_back(static_cast<size_t>(model->param(0).shape.elements()));
    EXPECT_TRUE(run->read(0, Part::grad, grads.back()).ok());
    EXPECT_EQ(run->trained(), 0u);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(grads[0], grads[1]);
}

TEST(AsynchronousBits, AnUpdateWithoutATargetIsRefused) {
  auto run =
      start_inline(make_plan(small_gpt(), config_of(2, "pipedream", 1, false)).take(), ignore)
          .take();
  Data data = sample(1, 6);
  std::fill(data.targets.begin() + 2 * kTime, data.targets.begin() + 4 * kTime,
            -1);  // of the second update
  Step* step = run->acquire();
  step->batch.samples = 6;
  step->batch.inputs = {data.tokens.data(), data.targets.data()};
  EXPECT_EQ(run->submit(step).text(), "update 1 of the segment has no target that counts");
  EXPECT_EQ(run->trained(), 0u);
}

}  // namespace
}  // namespace weft
