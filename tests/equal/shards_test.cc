// A model in shards computes what the whole model computes. With small whole numbers every order of
// additions is exact, so that the bits must be equal; with others the losses are near.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/text.h"
#include "graph/presets.h"
#include "graph/shard.h"
#include "support/cases.h"
#include "support/run_steps.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

using test::must;

// Linear, relu and add between values of different widths; parameters may have several uses, in
// either layout, and names of adapters; the loss is mse.
class ExactModel {
 public:
  ExactModel(std::mt19937& rng, int nodes) : rng_(rng), model_(std::make_shared<Model>()) {
    const int64_t width = 1 + below(9), last = int64_t{1} << below(4);
    const int64_t rows = below(2) ? 0 : int64_t{1} << below(4);
    const auto desc = [rows](int64_t columns) {
      return rows ? Desc{DType::f32, {1, rows, columns}} : Desc{DType::f32, {1, columns}};
    };
    values_ = {must(model_->add_input("x", desc(width), true))};
    const NodeId target = must(model_->add_input("target", desc(last), false));
    for (int n = 0; n < nodes; ++n) add_node();
    const NodeId out = linear(values_.back(), last);
    const NodeId in[] = {out, target};
    must(model_->add_node("loss", find_op("mse"), {}, in, {}));
    EXPECT_TRUE(model_->add_output(out).ok());
    EXPECT_TRUE(model_->finish().ok());
  }
  std::shared_ptr<const Model> take() { return std::move(model_); }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  int64_t width(NodeId id) const { return model_->node(id).one.out.shape.last(); }
  NodeId pick() {
    return values_[static_cast<size_t>(below(static_cast<int64_t>(values_.size())))];
  }

  void add_node() {
    const NodeId x = below(3) ? values_.back() : pick();
    std::vector<NodeId> in = {x};
    const int64_t kind = below(4);
    if (kind < 2) {
      values_.push_back(linear(x, 1 + below(9)));
      return;
    }
    if (kind == 3)
      for (NodeId other : values_)
        if (width(other) == width(x) && in.size() < 4 && below(2)) in.push_back(other);
    const char* op = in.size() == 1 ? "relu" : "add";
    values_.push_back(must(model_->add_node("", find_op(op), {}, in, {})));
  }

  NodeId linear(NodeId x, int64_t out) {
    Attrs attrs;
    attrs.flags = below(2) ? uint32_t{kOutIn} : 0;
    const Shape shape = attrs.flags ? Shape{out, width(x)} : Shape{width(x), out};
    ParamId weight = -1;
    for (ParamId p = 0; p < static_cast<ParamId>(model_->params().size()) && below(2); ++p)
      if (model_->param(p).shape == shape) weight = p;
    if (weight < 0) weight = param(shape);
    std::vector<ParamId> weights = {weight};
    if (below(2)) weights.push_back(param({out}));
    return must(model_->add_node("", find_op("linear"), attrs, {&x, 1}, weights));
  }

  ParamId param(Shape shape) {
    const char* end = below(4) ? "" : ".lora_B.weight";
    return must(model_->add_param(cat("p", model_->params().size(), end), shape, {}));
  }

  std::mt19937& rng_;
  std::shared_ptr<Model> model_;
  std::vector<NodeId> values_;
};

struct Outcome {
  double loss = 0, norm = 0;
  std::vector<std::vector<float>> values;  // parameters and gradients by the whole; input gradients
  Digest digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// One step from whole numbers.
Outcome step(const std::shared_ptr<const Model>& model, PlanConfig config, uint32_t seed) {
  Outcome out;
  std::mt19937 rng(seed);
  const auto number = [&] { return static_cast<float>(static_cast<int>(rng() % 3) - 1); };
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan.ok()) return out;
  auto run = must(start_inline(plan.take(), [](void*) {}));
  const auto params = static_cast<ParamId>(model->params().size());
  for (ParamId p = 0; p < params; ++p) {
    std::vector<float> values(static_cast<size_t>(model->param(p).shape.elements()));
    for (float& v : values) v = number();
    EXPECT_TRUE(run->write(p, Part::value, values).ok());
  }
  const int64_t samples = config.micro_batch_size * config.micro_batches;
  std::vector<std::vector<float>> batch;
  std::vector<const void*> inputs;
  for (NodeId id : model->inputs()) {
    auto& values = batch.emplace_back(static_cast<size_t>(model->desc(id, samples).elements()));
    for (float& v : values) v = number();
    inputs.push_back(values.data());
  }
  const RunEvent first = test::run_step(*run, Mode::train, samples, inputs);
  out.loss = first.loss;
  out.norm = first.grad_norm;
  std::vector<float>& slope = out.values.emplace_back(batch.front().size());
  EXPECT_TRUE(run->read_input_grad(run->plan().model->find_node("x"), slope).ok());
  for (ParamId p = 0; p < params; ++p)
    for (Part part : {Part::value, Part::grad}) {
      const Shape& shape = model->param(p).shape;
      auto& values = out.values.emplace_back(static_cast<size_t>(shape.elements()));
      EXPECT_TRUE(run->read(p, part, values).ok());
      for (float v : values) EXPECT_LT(std::fabs(v), 0x1p20f) << "sums may not be exact";
    }
  out.digest = must(run->digest());
  return out;
}

TEST(Shards, WholeNumbersAreEqualBitForBit) {
  int cut = 0, uneven = 0;
  for (uint32_t seed = 0; seed < 400 && !HasFailure(); seed += test::kEvery) {
    std::mt19937 rng(seed);
    const auto model = ExactModel(rng, 1 + static_cast<int>(rng() % 5)).take();
    PlanConfig config;
    config.micro_batches = 2;
    config.micro_batch_size = 2;
    config.optim.rule = Rule::sgd;
    config.optim.rate = 0.5;
    const Outcome whole = step(model, config, seed);
    for (int32_t shards : {2, 3, 4}) {
      config.tensor = shards;
      config.ranks = 1 + static_cast<int32_t>(seed % 2);
      Outcome got = step(model, config, seed);
      EXPECT_NEAR(got.norm, whole.norm, 1e-9 * whole.norm);  // a sum of squares of other blocks
      got.norm = whole.norm;
      EXPECT_EQ(got, whole) << "seed " << seed << ", " << shards << " shards";
      const auto sharded = must(shard(model, shards));
      for (const Param& p : sharded->params()) {
        cut += !p.piece.is_whole();
        uneven += !p.piece.is_whole() && p.piece.shape[p.piece.parts[0].axis] % shards != 0;
      }
    }
  }
  EXPECT_GT(cut, 1000 / test::kEvery);
  EXPECT_GT(uneven, 300 / test::kEvery);
}

// Two of three equal logits are in one part. The loss is a small difference of large numbers.
TEST(Shards, ALossInPartsIsAsNearInBf16) {
  constexpr int64_t kWidth = 64;
  const auto model = std::make_shared<Model>();
  const NodeId x = must(model->add_input("x", {DType::f32, {1, kWidth}}, false));
  const NodeId target = must(model->add_input("target", {DType::i32, {1}}, false));
  const ParamId weight = must(model->add_param("w", {kWidth, kWidth}, {}));
  const NodeId logits = must(model->add_node("", find_op("linear"), {}, {&x, 1}, {&weight, 1}));
  const NodeId in[] = {logits, target};
  must(model->add_node("loss", find_op("softmax_cross_entropy"), {}, in, {}));
  ASSERT_TRUE(model->finish().ok());
  for (const int32_t parts : {1, 2})
    for (const float logit : {5.f, 24.f, 100.f}) {
      PlanConfig config;
      config.precision = "bf16";
      config.tensor = parts;
      config.micro_batches = 1;
      config.micro_batch_size = 1;
      const auto run = must(start_inline(must(make_plan(model, config)), [](void*) {}));
      std::vector<float> values(kWidth * kWidth), sample(kWidth);
      std::fill_n(values.begin(), kWidth, logit - 40);
      for (const size_t equal : {0, 1, 32}) values[equal] = logit;
      ASSERT_TRUE(run->write(weight, Part::value, values).ok());
      sample[0] = 1;
      const int32_t first = 0;
      const RunEvent done = test::run_step(*run, Mode::train, 1, {sample.data(), &first});
      EXPECT_NEAR(done.loss, std::log(3), 1e-4) << parts << " parts, logits " << logit;
      ASSERT_TRUE(run->read(weight, Part::grad, values).ok());
      EXPECT_NEAR(values[0], -2. / 3, 3e-3) << parts << " parts, logits " << logit;
      for (const size_t other : {1, 32}) EXPECT_NEAR(values[other], 1. / 3, 2e-3);
    }
}

// Not by a gradient of each slice that is filled up with zeros, which would be as large as the
// value.
TEST(Shards, AValueThatSlicesDivideGetsItsGradientByOneJoin) {
  Model model;
  const auto node = [&](const char* op, std::vector<NodeId> in, Attrs attrs = {}) {
    return must(model.add_node("", find_op(op), attrs, in, {}));
  };
  const auto part = [&](NodeId of, int64_t begin, int64_t end) {
    Attrs attrs;
    attrs.axis = 1;
    attrs.begin = begin;
    attrs.end = end;
    return node("slice", {of}, attrs);
  };
  const NodeId x = must(model.add_input("x", {DType::f32, {1, 5}}, true));
  const NodeId y = must(model.add_input("y", {DType::f32, {1, 5}}, true));
  const NodeId target = must(model.add_input("target", {DType::f32, {1, 5}}, false));
  Attrs last;
  last.axis = 1;
  const NodeId both = node("concat", {part(x, 0, 2), part(x, 2, 5)}, last);
  const NodeId some = node("concat", {part(y, 0, 2), part(y, 1, 4)}, last);
  node("mse", {node("add", {both, some}), target});
  ASSERT_TRUE(model.finish().ok());
  const StepGraph graph =
      build_step_graph(model, Mode::train, std::vector<int32_t>(model.nodes().size(), 0), {});
  std::vector<NodeId> joined, filled;
  for (const StepCall& call : graph.calls) {
    if (call.kind == CallKind::join) joined.push_back(model.node(call.node).in.front());
    if (call.kind == CallKind::input_grad && model.node(call.node).op->name() == "slice")
      filled.push_back(model.node(call.node).in.front());
  }
  EXPECT_EQ(joined, std::vector<NodeId>({x}));
  EXPECT_EQ(filled, std::vector<NodeId>({y, y}));
}

// Neither the tokens nor the vocabulary can be divided evenly.
constexpr const char* kGpt =
    "gpt-nano:blocks=2,width=24,heads=4,context=13,vocabulary=37,dropout=0.1";
constexpr int64_t kTokens = 13, kVocabulary = 37;

PlanConfig gpt_config() {
  PlanConfig config;
  config.micro_batches = 3;
  config.micro_batch_size = 2;
  config.seed = 5;
  config.optim.rate = 0.01;
  config.optim.weight_decay = 0.1;
  config.optim.clip = 1;
  return config;
}

struct Trained {
  Digest first, last;
  std::vector<double> losses;
  std::vector<std::vector<float>> grads;  // of the first step, by the whole
};

// `threads` 0: on the thread of the caller.
Trained train(const std::shared_ptr<const Model>& model, const PlanConfig& config, int threads) {
  Trained out;
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan.ok()) return out;
  const auto drop = [](void*) {};
  auto run =
      must(threads ? start_threads(plan.take(), threads, drop) : start_inline(plan.take(), drop));
  out.first = must(run->digest());
  const int64_t samples = config.micro_batches * config.micro_batch_size;
  std::vector<int32_t> tokens(static_cast<size_t>(samples * kTokens)), targets(tokens.size());
  std::mt19937 rng(3);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(rng() % kVocabulary);
    targets[i] = i % 5 == 0 ? -1 : (tokens[i] * 3 + 1) % static_cast<int32_t>(kVocabulary);
  }
  for (int s = 0; s < 4; ++s) {
    const std::vector<const void*> inputs = {tokens.data(), targets.data()};
    out.losses.push_back(test::run_step(*run, Mode::train, samples, inputs).loss);
    for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()) && s == 0; ++p) {
      auto& grad = out.grads.emplace_back(static_cast<size_t>(model->param(p).shape.elements()));
      EXPECT_TRUE(run->read(p, Part::grad, grad).ok());
    }
  }
  out.last = must(run->digest());
  return out;
}

TEST(Shards, GptInPiecesTrainsAsTheWholeModel) {
  const std::shared_ptr<const Model> model = must(make_preset(kGpt, {})).model;
  const Trained whole = train(model, gpt_config(), 0);
  for (int32_t shards : {2, 4}) {
    PlanConfig config = gpt_config();
    config.tensor = shards;
    const Trained pieces = train(model, config, 0);
    EXPECT_EQ(pieces.first, whole.first) << "initial values";
    for (size_t s = 0; s < whole.losses.size(); ++s)
      EXPECT_NEAR(pieces.losses[s], whole.losses[s], 1e-4) << shards << " shards, step " << s;
    // Dropout has the same masks, or the gradients would differ by far.
    for (size_t p = 0; p < whole.grads.size(); ++p)
      for (size_t i = 0; i < whole.grads[p].size(); ++i)
        ASSERT_NEAR(pieces.grads[p][i], whole.grads[p][i], 1e-5)
            << shards << " shards, " << model->params()[p].name << ", element " << i;
  }
}

TEST(Shards, OneDigestForOneNumberOfShards) {
  const std::shared_ptr<const Model> model = must(make_preset(kGpt, {})).model;
  PlanConfig config = gpt_config();
  config.tensor = 2;
  const Trained expected = train(model, config, 0);
  int turn = 0;
  for (int32_t shard_ranks : {1, 2})
    for (int32_t ranks : {1, 2, 3})
      for (const char* schedule : {"1f1b", "gpipe", "zb-h1"})
        for (int threads : {0, 2}) {
          const char* recomputes[] = {"none", "stage", "every:3"};
          config.ranks = ranks * shard_ranks;
          config.shard_ranks = shard_ranks;
          config.schedule = schedule;
          config.recompute = recomputes[turn++ % 3];
          const Trained got = train(model, config, threads);
          EXPECT_EQ(got.losses, expected.losses)
              << ranks << " x " << shard_ranks << " ranks, " << schedule;
          EXPECT_EQ(got.last, expected.last)
              << ranks << " x " << shard_ranks << " ranks, " << schedule;
        }
}

// One float would lose the logs beside logits of 1e8; columns of -inf are ruled out; a row that is
// not counted may hold anything.
TEST(Shards, CrossEntropyInPiecesHasTheLossOfExtremeLogits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr size_t kColumns = 10;
  const auto model = std::make_shared<Model>();
  const NodeId in[] = {must(model->add_input("x", {DType::f32, {1, kColumns}}, true)),
                       must(model->add_input("target", {DType::i32, {1}}, false))};
  must(model->add_node("loss", find_op("softmax_cross_entropy"), {}, in, {}));
  ASSERT_TRUE(model->finish().ok());
  std::vector<float> logits;
  for (size_t i = 0; i < kColumns; ++i) logits.push_back(1e8f);
  for (size_t i = 0; i < kColumns; ++i) logits.push_back(i < kColumns / 2 ? float(i) : -kInf);
  for (size_t i = 0; i < kColumns; ++i) logits.push_back(i % 3 ? kInf : float(i));
  const std::vector<int32_t> targets = {9, 3, -1};
  const auto trained = [&](int32_t tensor) {
    PlanConfig config;
    config.micro_batch_size = 3;
    config.tensor = tensor;
    auto run = must(start_inline(must(make_plan(model, config)), [](void*) {}));
    const double loss = test::run_step(*run, Mode::train, 3, {logits.data(), targets.data()}).loss;
    std::vector<float> slope(logits.size());
    EXPECT_TRUE(run->read_input_grad(run->plan().model->find_node("x"), slope).ok());
    return std::pair(loss, slope);
  };
  const auto [whole, slope] = trained(1);
  EXPECT_NEAR(whole, (std::log(10.0) + 1.4519144) / 2, 1e-6);
  for (int32_t tensor : {2, 3, 5}) {
    const auto [loss, slopes] = trained(tensor);
    EXPECT_NEAR(loss, whole, 1e-6) << tensor << " pieces";
    for (size_t i = 0; i < slope.size(); ++i)
      EXPECT_NEAR(slopes[i], slope[i], 1e-6) << tensor << " pieces, element " << i;
  }
}

TEST(Shards, HeadsThatCannotBeDividedAreRefused) {
  const std::shared_ptr<const Model> model = must(make_preset(kGpt, {})).model;
  PlanConfig config = gpt_config();
  config.tensor = 3;
  const auto plan = make_plan(model, config);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().text(),
            "plan: node 'h.0.attn' has 4 heads, expected a multiple of tensor, 3");
}

}  // namespace
}  // namespace weft
