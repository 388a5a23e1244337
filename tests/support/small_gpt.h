// A small GPT, a plan for it, and training it on made-up tokens: for tests of equal bits.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "runtime/run.h"
#include "tune/make_plan.h"

namespace weft::test {

inline NodeId must(Result<NodeId> id) {
  EXPECT_TRUE(id.ok()) << id.status().text();
  return id.ok() ? id.value() : -1;
}

// A small GPT: embedding, two blocks with residuals, a head tied to the embedding; dropout so that
// random numbers count too.
inline std::shared_ptr<Model> small_gpt() {
  constexpr int64_t kVocab = 37, kWidth = 16, kTime = 12;
  auto model = std::make_shared<Model>();
  auto node = [&](const char* name, const char* op, std::vector<NodeId> in,
                  std::vector<ParamId> params = {}, Attrs attrs = {}) {
    return must(model->add_node(name, find_op(op), attrs, in, params));
  };
  auto param = [&](const std::string& name, Shape shape, Init init) {
    return must(model->add_param(name, shape, init));
  };
  const Init normal{InitKind::normal, 0.1}, one{InitKind::constant, 1}, zero{};
  const NodeId tokens = must(model->add_input("tokens", {DType::i32, {1, kTime}}, false));
  const NodeId targets = must(model->add_input("targets", {DType::i32, {1, kTime}}, false));
  const ParamId wte = param("wte.weight", {kVocab, kWidth}, normal),
                wpe = param("wpe.weight", {kTime, kWidth}, normal);
  Attrs positions, norm, heads, head, drop, tanh;
  positions.flags = kPositions;
  norm.factor = 1e-5;
  heads.heads = 4;
  heads.flags = kCausal;
  head.flags = kOutIn;
  drop.factor = 0.1;
  tanh.flags = kTanh;
  NodeId x = node("embed", "add",
                  {node("wte", "embedding", {tokens}, {wte}),
                   node("wpe", "embedding", {tokens}, {wpe}, positions)});
  for (const char* b : {"h.0", "h.1"}) {
    const std::string n = b;
    auto ln = [&](const std::string& name, NodeId in) {
      return node(
          (n + name).c_str(), "layer_norm", {in},
          {param(n + name + ".weight", {kWidth}, one), param(n + name + ".bias", {kWidth}, zero)},
          norm);
    };
    auto linear = [&](const std::string& name, NodeId in, int64_t from, int64_t to) {
      return node(
          (n + name).c_str(), "linear", {in},
          {param(n + name + ".weight", {from, to}, normal), param(n + name + ".bias", {to}, zero)});
    };
    const NodeId attended =
        node((n + ".attn").c_str(), "attention",
             {linear(".c_attn", ln(".ln_1", x), kWidth, 3 * kWidth)}, {}, heads);
    const NodeId y = node((n + ".add_1").c_str(), "add",
                          {x, node((n + ".drop").c_str(), "dropout",
                                   {linear(".c_proj", attended, kWidth, kWidth)}, {}, drop)});
    const NodeId inner = node((n + ".gelu").c_str(), "gelu",
                              {linear(".c_fc", ln(".ln_2", y), kWidth, 4 * kWidth)}, {}, tanh);
    x = node((n + ".add_2").c_str(), "add", {y, linear(".c_out", inner, 4 * kWidth, kWidth)});
  }
  const NodeId last =
      node("ln_f", "layer_norm", {x},
           {param("ln_f.weight", {kWidth}, one), param("ln_f.bias", {kWidth}, zero)}, norm);
  const NodeId logits = node("lm_head", "linear", {last}, {wte}, head);
  node("loss", "softmax_cross_entropy", {logits, targets});
  EXPECT_TRUE(model->add_output(logits).ok());
  EXPECT_TRUE(model->finish().ok());
  return model;
}

struct Outcome {
  std::vector<double> losses, norms;
  Digest digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline Outcome train(Run& run, int64_t samples, int steps) {
  Outcome out;
  for (int s = 0; s < steps; ++s) {
    const Stream stream = Stream::data(9, static_cast<uint64_t>(s));
    std::vector<int32_t> tokens(static_cast<size_t>(samples * 12)), targets(tokens.size()),
        positions(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(stream.below(i, 37));
      targets[i] = i % 5 == 0 ? -1 : (tokens[i] * 3 + 1) % 37;
      positions[i] = static_cast<int32_t>(i % 12 % 5);  // two sequences of 5 tokens, one of 2
    }
    Step* step = run.acquire();
    step->batch.samples = samples;
    step->batch.inputs = {tokens.data(), targets.data()};
    if (run.plan().whole->inputs().size() == 3) step->batch.inputs.push_back(positions.data());
    EXPECT_TRUE(run.submit(step).ok());
    RunEvent event;
    while (run.poll(event, -1)) {
      EXPECT_TRUE(event.status.ok()) << event.status.text();
      if (event.kind != RunEvent::Kind::done) continue;
      out.losses.push_back(event.loss);
      out.norms.push_back(event.grad_norm);
    }
  }
  auto digest = run.digest();
  EXPECT_TRUE(digest.ok());
  if (digest.ok()) out.digest = digest.value();
  return out;
}

// `threads` 0: the inline driver.
inline Outcome train(const std::shared_ptr<Model>& model, const PlanConfig& config, int64_t samples,
                     int steps, int threads = 0) {
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan.ok()) return {};
  auto drop = [](void*) {};
  auto started =
      threads ? start_threads(plan.take(), threads, drop) : start_inline(plan.take(), drop);
  EXPECT_TRUE(started.ok()) << started.status().text();
  return train(*started.take(), samples, steps);
}

// The same without replicas or a pipeline, with the gradient groups of `config`.
inline Outcome train_on_one_rank(const std::shared_ptr<Model>& model, PlanConfig config,
                                 int64_t samples, int steps) {
  config.data = config.ranks = 1;
  config.schedule = "1f1b";
  return train(model, config, samples, steps);
}

inline PlanConfig small_gpt_config() {
  PlanConfig config;
  config.micro_batches = 4;
  config.micro_batch_size = 3;
  config.short_size = 2;
  config.seed = 5;
  config.optim.rate = 0.01;
  config.optim.weight_decay = 0.1;
  config.optim.clip = 1;
  return config;
}

// Schedules of the table that train in step and can be made for those sizes.
inline std::vector<const ScheduleKind*> schedules_for(const PlanConfig& config) {
  std::vector<const ScheduleKind*> out;
  for (const ScheduleKind& kind : all_schedules()) {
    const auto made = kind.make(
        {.ranks = config.ranks, .micro_batches = config.micro_batches, .chunks = config.chunks});
    if (made.ok() && !kind.asynchronous && !made.value().forward_only) out.push_back(&kind);
  }
  EXPECT_GE(out.size(), 2u);
  return out;
}

}  // namespace weft::test
