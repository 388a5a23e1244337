// Random SPMD programs equal a plain interpreter that runs each coordinate by itself, and have the
// same bits wherever the coordinates are. With small whole numbers, every order of additions is
// exact.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/text.h"
#include "graph/model.h"
#include "support/cases.h"
#include "support/run_steps.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

using test::must;

constexpr int64_t kSide = 4, kSamples = 4;

// Values are matrices of 4 x 4 per sample and coordinate.
class RandomProgram {
 public:
  RandomProgram(std::mt19937& rng, int nodes, bool kinks)
      : rng_(rng), kinks_(kinks), model_(std::make_shared<Model>()) {
    EXPECT_TRUE(model_->add_axis("a", 2).ok());
    EXPECT_TRUE(model_->add_axis("b", below(2) ? 4 : 2).ok());
    add_x();
    const NodeId target = must(model_->add_input("target", {DType::f32, {1, kSide, kSide}}, false));
    for (int n = 0; n < nodes; ++n) add_step();
    values_.push_back(linear(values_.back()));
    const NodeId in[] = {values_.back(), target};
    must(model_->add_node("loss", find_op("mse"), {}, in, {}));
    EXPECT_TRUE(model_->finish().ok());
  }
  std::shared_ptr<const Model> take() { return std::move(model_); }

 private:
  int32_t below(int64_t n) { return static_cast<int32_t>(rng_() % static_cast<uint64_t>(n)); }
  int32_t size(int32_t axis) const { return model_->axes()[static_cast<size_t>(axis)].size; }

  // Cuts over some axes, dropped or not, such that 4 x 4 are left.
  std::pair<Shape, std::vector<AxisCut>> random_cuts(int first) {
    Shape whole = first ? Shape{1, kSide, kSide} : Shape{kSide, kSide};
    std::vector<AxisCut> cuts;
    for (int32_t axis = 0; axis < 2; ++axis) {
      const int32_t dim = first + axis;
      if (const int32_t kind = below(3); kind > 0) cuts.push_back({dim, axis, kind == 1});
    }
    for (const AxisCut& cut : cuts) {
      if (cut.drop) {
        for (int d = whole.rank; d > cut.dim; --d) whole[d] = whole[d - 1];
        ++whole.rank;
        whole[cut.dim] = 1;
      }
      whole[cut.dim] *= size(cut.axis);
    }
    return {whole, cuts};
  }

  void add_x() {
    const auto [whole, cuts] = random_cuts(1);
    values_ = {must(model_->add_input("x", {DType::f32, whole}, true))};
    for (const AxisCut& cut : cuts) EXPECT_TRUE(model_->cut_input(values_[0], cut).ok());
  }

  NodeId linear(NodeId x) {
    const auto [whole, cuts] = random_cuts(0);
    ParamId weight = -1;
    if (!model_->params().empty() && below(3) == 0)
      weight = below(static_cast<int64_t>(model_->params().size()));
    if (weight < 0) {
      weight = must(model_->add_param(cat("w", model_->params().size()), whole, {}));
      for (const AxisCut& cut : cuts) EXPECT_TRUE(model_->cut_param(weight, cut).ok());
      const bool shares = below(2);
      EXPECT_TRUE(!shares || model_->share_gradient(weight).ok());
    }
    return must(model_->add_node("", find_op("linear"), {}, {&x, 1}, {&weight, 1}));
  }

  NodeId collective(const char* op, NodeId x, int32_t axis, std::vector<int32_t> coordinates,
                    int32_t dim = 0, Shape dims = {}) {
    Attrs attrs;
    attrs.axis = dim;
    attrs.dims = dims;
    attrs.over = {.axis = axis, .size = 0, .coordinates = std::move(coordinates)};
    return must(model_->add_node("", find_op(op), attrs, {&x, 1}, {}));
  }

  std::vector<int32_t> permutation(int32_t n) {
    std::vector<int32_t> out(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = i;
    std::shuffle(out.begin(), out.end(), rng_);
    return out;
  }

  NodeId moved(NodeId x) {
    const int32_t axis = below(2), n = size(axis), dim = 1 + below(2);
    std::vector<int32_t> order = permutation(n);
    switch (below(7)) {
      case 0:
        for (int32_t& from : order) from = below(4) ? from : -1;
        return collective("ppermute", x, axis, order);
      case 1:
        order.resize(static_cast<size_t>(1 + below(n)));
        return collective("mask", x, axis, order);
      case 2: return collective("broadcast", x, axis, {order[0]});
      case 3: return collective("all_reduce", x, axis, {});
      case 4: return collective("all_to_all", x, axis, {}, 0, {dim, dim});
      case 5:
        x = collective("all_to_all", x, axis, {}, 0, {dim, 3 - dim});
        return collective("all_to_all", x, axis, {}, 0, {3 - dim, dim});
      default:
        if (below(2)) {
          x = collective("all_gather", x, axis, {}, dim);
          return collective("reduce_scatter", x, axis, {}, dim);
        }
        x = collective("reduce_scatter", x, axis, {}, dim);
        return collective("all_gather", x, axis, {}, dim);
    }
  }

  void add_step() {
    const NodeId x =
        below(3) ? values_.back() : values_[static_cast<size_t>(below(values_.size()))];
    const int32_t kind = below(6);
    if (kind == 0) values_.push_back(linear(x));
    if (kind == 1) {
      const NodeId in[] = {x, values_[static_cast<size_t>(below(values_.size()))]};
      values_.push_back(must(model_->add_node("", find_op("add"), {}, in, {})));
    }
    if (kind == 2 && kinks_)
      values_.push_back(must(model_->add_node("", find_op("relu"), {}, {&x, 1}, {})));
    if (kind > 2) values_.push_back(moved(x));
  }

  std::mt19937& rng_;
  const bool kinks_;
  std::shared_ptr<Model> model_;
  std::vector<NodeId> values_;
};

struct Matrix {
  int64_t rows, columns;
  std::vector<double> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

// What a program computes for one sample. Tensors outside of it are given as a whole.
class Interpreter {
 public:
  using Tensors = std::vector<std::vector<double>>;
  explicit Interpreter(const Model& model) : model_(model), mesh_(model.axes()) {}

  double loss(const Tensors& inputs, const Tensors& params) {
    values_.clear();
    size_t input = 0;
    for (NodeId id = 0; id < model_.loss(); ++id) {
      const Node& node = model_.node(id);
      auto& made = values_.emplace_back();
      const size_t number = node.is_input() ? input++ : 0;
      for (int32_t c = 0; c < mesh_.count(); ++c)
        made.push_back(node.is_input()
                           ? piece(inputs[number], model_.whole_desc(id).shape, node.cuts, c)
                           : compute(node, params, c));
    }
    const std::vector<NodeId>& in = model_.node(model_.loss()).in;
    double sum = 0;
    for (size_t i = 0; i < size_t{kSide * kSide}; ++i)
      sum += std::pow(value(in[0], 0).values[i] - value(in[1], 0).values[i], 2);
    return sum / (kSide * kSide * kSamples);
  }

 private:
  const Matrix& value(NodeId id, int32_t coordinate) const {
    return values_[static_cast<size_t>(id)][static_cast<size_t>(coordinate)];
  }

  // Element by element: its index in the whole, from the last dimension to the first.
  Matrix piece(const std::vector<double>& whole, const Shape& shape,
               const std::vector<AxisCut>& cuts, int32_t coordinate) const {
    Matrix out(kSide, kSide);
    for (size_t e = 0; e < out.values.size(); ++e) {
      int64_t rest = static_cast<int64_t>(e), index = 0, stride = 1;
      for (int d = shape.rank; d-- > 0;) {
        int64_t extent = shape[d], number = 0;
        bool dropped = false;
        for (const AxisCut& cut : cuts)
          if (cut.dim == d) {
            extent /= model_.axes()[static_cast<size_t>(cut.axis)].size;
            number = mesh_.along(coordinate, cut.axis);
            dropped = cut.drop;
          }
        index += (number * extent + (dropped ? 0 : rest % extent)) * stride;
        if (!dropped) rest /= extent;
        stride *= shape[d];
      }
      out.values[e] = whole[static_cast<size_t>(index)];
    }
    return out;
  }

  Matrix compute(const Node& node, const Interpreter::Tensors& params, int32_t c) const {
    const Shape& shape = node.one.out.shape;
    Matrix out(shape[1], shape[2]);
    const Matrix& x = value(node.in[0], c);
    if (node.op->name() == "linear") {
      const auto w = static_cast<size_t>(node.weights[0]);
      const Param& param = model_.params()[w];
      const Matrix weight = piece(params[w], param.shape, param.cuts, c);
      for (int64_t r = 0; r < kSide; ++r)
        for (int64_t k = 0; k < kSide; ++k)
          for (int64_t i = 0; i < kSide; ++i) out.at(r, k) += x.at(r, i) * weight.at(i, k);
      return out;
    }
    if (node.op->collective() != Collective::none) return collective(node, c, out);
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = node.op->name() == "relu" ? std::max(0.0, x.values[i])
                                                : x.values[i] + value(node.in[1], c).values[i];
    return out;
  }

  Matrix collective(const Node& node, int32_t c, Matrix out) const {
    const Over& over = node.attrs.over;
    const int32_t here = mesh_.along(c, over.axis);
    const auto from = [&](int32_t number) -> const Matrix& {
      return value(node.in[0], mesh_.with(c, over.axis, number));
    };
    const auto& list = over.coordinates;
    const Collective kind = node.op->collective();
    if (kind == Collective::broadcast) return from(list[0]);
    if (kind == Collective::mask)
      return std::find(list.begin(), list.end(), here) != list.end() ? from(here) : out;
    if (kind == Collective::ppermute) {
      const int32_t source = list[static_cast<size_t>(here)];
      return source >= 0 ? from(source) : out;
    }
    // Which coordinate has an element, and where, along the dimension that is joined or cut.
    const bool exchange = kind == Collective::all_to_all;
    const int64_t cut = exchange ? node.attrs.dims[0] : node.attrs.axis,
                  joint = exchange ? node.attrs.dims[1] : node.attrs.axis;
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t k = 0; k < out.columns; ++k) {
        int64_t at[] = {0, r, k};
        if (kind == Collective::all_gather || exchange) {
          const int64_t part = (joint == 1 ? out.rows : out.columns) / over.size;
          const auto source = static_cast<int32_t>(at[joint] / part);
          at[joint] %= part;
          if (exchange) {
            const Matrix& x = from(source);
            at[cut] += here * ((cut == 1 ? x.rows : x.columns) / over.size);
          }
          out.at(r, k) = from(source).at(at[1], at[2]);
          continue;
        }
        if (kind == Collective::reduce_scatter)
          at[cut] += here * (cut == 1 ? out.rows : out.columns);
        for (int32_t i = 0; i < over.size; ++i) out.at(r, k) += from(i).at(at[1], at[2]);
      }
    return out;
  }

  const Model& model_;
  const Coordinates mesh_;
  std::vector<std::vector<Matrix>> values_;  // per node and coordinate
};

// Whole numbers for everything outside of a program.
struct Numbers {
  std::vector<std::vector<float>> inputs, params;  // inputs: all samples
  Numbers(const Model& model, std::mt19937& rng) {
    const auto draw = [&](int64_t n) {
      std::vector<float> out(static_cast<size_t>(n));
      for (float& v : out) v = static_cast<float>(static_cast<int>(rng() % 3) - 1);
      return out;
    };
    for (NodeId id : model.inputs())
      inputs.push_back(draw(kSamples * model.whole_desc(id).elements()));
    for (const Param& param : model.params()) params.push_back(draw(param.shape.elements()));
  }
  // Of one sample.
  Interpreter::Tensors sample(int64_t s) const {
    Interpreter::Tensors out;
    for (const auto& all : inputs) {
      const auto size = static_cast<std::ptrdiff_t>(all.size() / kSamples);
      out.emplace_back(all.begin() + s * size, all.begin() + (s + 1) * size);
    }
    return out;
  }
  Interpreter::Tensors whole_params() const {
    Interpreter::Tensors out;
    for (const auto& all : params) out.emplace_back(all.begin(), all.end());
    return out;
  }
};

struct Outcome {
  double loss = 0;
  std::vector<float> slope;
  Digest digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome step(const std::shared_ptr<const Model>& model, const PlanConfig& config,
             const Numbers& numbers, int threads) {
  Outcome out;
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan.ok()) return out;
  const auto drop = [](void*) {};
  auto run =
      must(threads ? start_threads(plan.take(), threads, drop) : start_inline(plan.take(), drop));
  for (size_t p = 0; p < numbers.params.size(); ++p)
    EXPECT_TRUE(run->write(static_cast<ParamId>(p), Part::value, numbers.params[p]).ok());
  std::vector<const void*> inputs;
  for (const auto& values : numbers.inputs) inputs.push_back(values.data());
  out.loss = test::run_step(*run, Mode::train, kSamples, inputs).loss;
  out.slope.resize(numbers.inputs[0].size());
  // A program may use x nowhere on the way to its loss.
  (void)run->read_input_grad(run->plan().model->find_node("x"), out.slope).ok();
  out.digest = must(run->digest());
  return out;
}

PlanConfig config_of() {
  PlanConfig config;
  config.micro_batches = 2;
  config.micro_batch_size = kSamples / 2;
  config.optim.rule = Rule::sgd;
  config.optim.rate = 0.5;
  return config;
}

TEST(Spmd, ProgramsAreThoseOfTheInterpreter) {
  int sloped = 0;
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); seed += test::kEvery) {
    std::mt19937 rng(seed);
    const bool kinks = seed % 2;
    const auto model = RandomProgram(rng, 1 + static_cast<int>(rng() % 6), kinks).take();
    const Numbers numbers(*model, rng);
    const Outcome found = step(model, config_of(), numbers, 0);
    Interpreter interpreter(*model);
    const Interpreter::Tensors params = numbers.whole_params();
    double loss = 0;
    for (int64_t s = 0; s < kSamples; ++s) loss += interpreter.loss(numbers.sample(s), params);
    ASSERT_EQ(found.loss, loss) << "seed " << seed;
    if (kinks) continue;
    // The loss is a square in x, so that differences are exact.
    const size_t size = found.slope.size() / kSamples;
    for (size_t i = 0; i < found.slope.size(); i += 1 + found.slope.size() / 40) {
      Interpreter::Tensors sample = numbers.sample(static_cast<int64_t>(i / size));
      double& x = sample[0][i % size];
      x += 1;
      const double above = interpreter.loss(sample, params);
      x -= 2;
      ASSERT_EQ(found.slope[i], (above - interpreter.loss(sample, params)) / 2)
          << "seed " << seed << ", element " << i;
      sloped += found.slope[i] != 0;
    }
  }
  EXPECT_GT(sloped, 500 / test::kEvery);
}

// Stages of which a rank would have no node are refused.
bool fits(const std::shared_ptr<const Model>& model, const PlanConfig& config) {
  const auto plan = make_plan(model, config);
  if (plan.ok()) return true;
  const std::string& text = plan.status().text();
  EXPECT_TRUE(text.find("has no node for rank") != text.npos ||
              text.find("expected one stage") != text.npos ||
              text.find("need at least as many nodes") != text.npos)
      << text;
  return false;
}

TEST(Spmd, PlacesDecideNoBit) {
  const char* schedules[] = {"1f1b", "gpipe", "zb-h1", "interleaved", "zb-v"};
  const char* recomputes[] = {"none", "stage", "every:2"};
  int staged = 0, shared = 0;
  for (uint32_t seed = 0; seed < 100 && !HasFailure(); seed += test::kEvery) {
    std::mt19937 rng(seed);
    const auto model = RandomProgram(rng, 2 + static_cast<int>(rng() % 8), true).take();
    const Numbers numbers(*model, rng);
    const Outcome expected = step(model, config_of(), numbers, 0);
    for (const int32_t shard_ranks : {1, 2, 4, model->shards()})
      for (const int32_t stages : {1, 2, 3}) {
        PlanConfig config = config_of();
        config.shard_ranks = shard_ranks;
        config.ranks = shard_ranks * stages;
        config.schedule = schedules[rng() % 5];
        config.recompute = recomputes[rng() % 3];
        if (!fits(model, config)) continue;
        staged += stages > 1;
        for (const Param& param : model->params())
          shared += param.shares && param.uses.size() > 1 && shard_ranks > 1;
        EXPECT_EQ(step(model, config, numbers, seed % 5 ? 0 : 2), expected)
            << "seed " << seed << ", " << shard_ranks << " x " << stages << " ranks, "
            << config.schedule;
      }
  }
  EXPECT_GT(staged, 100 / test::kEvery);
  EXPECT_GT(shared, 40 / test::kEvery);
}

}  // namespace
}  // namespace weft
