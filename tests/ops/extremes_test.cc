// Operands at the ends of what a float holds, against plain double, and gradients that are 0 by
// mathematics: those are 0 to the bit, since an optimizer that divides by their size would make
// updates of their rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/rng.h"
#include "ops/runner.h"
#include "tensor/byte_count.h"

namespace weft::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> normals(int64_t count, uint64_t purpose) {
  const Stream stream = Stream::data(5, purpose);
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(stream.normal(i)[0]);
  return out;
}

std::vector<float> ramp(size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = 0.25f + static_cast<float>(i % 7);
  return out;
}

// An op over float inputs; dout is random, weights are as given.
Problem problem_of(const char* op, const Attrs& attrs, const std::vector<Shape>& shapes,
                   const std::vector<std::vector<float>>& in,
                   const std::vector<std::vector<float>>& weights = {}) {
  Problem p{.op = find_op(op), .attrs = attrs};
  for (size_t i = 0; i < in.size(); ++i) {
    p.in.push_back({{DType::f32, shapes[i]}, true});
    p.in_data.push_back(bytes_of(in[i]));
  }
  for (const std::vector<float>& weight : weights) {
    p.weights.push_back({DType::f32, {static_cast<int64_t>(weight.size())}});
    p.weight_data.push_back(bytes_of(weight));
    p.acc.push_back(bytes_of(std::vector<float>(weight.size())));
  }
  auto inferred = p.op->infer(p.attrs, p.in, p.weights);
  EXPECT_TRUE(inferred.ok()) << inferred.status().text();
  p.inferred = inferred.take();
  p.dout = bytes_of(normals(p.inferred.out.elements(), 77));
  return p;
}

Results run_float(const Problem& p) {
  const Results r = run(p, {});
  EXPECT_EQ(r.error, "");
  return r;
}

void expect_zeros(const Bytes& bytes, const std::string& what) {
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i)
    ASSERT_EQ(numbers(bytes, DType::f32)[i], 0) << what << ", element " << i;
}

// Rows of logits around `base`, far enough apart from one another that all of them count, and exact
// in a float.
void check_cross_entropy(float base) {
  SCOPED_TRACE(base);
  constexpr int64_t kRows = 5, kClasses = 37;
  std::vector<float> logits;
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c)
      logits.push_back(base + static_cast<float>((c * (r + 3)) % 11 - 5));
    targets.push_back(r == 2 ? -1 : static_cast<int32_t>(r * 7));
  }
  Problem p{.op = find_op("softmax_cross_entropy")};
  p.in = {{{DType::f32, {kRows, kClasses}}, true}, {{DType::i32, {kRows}}, true}};
  p.in_data = {bytes_of(logits), bytes_of(targets)};
  p.inferred = p.op->infer(p.attrs, p.in, p.weights).take();
  const Results r = run_float(p);
  const std::vector<double> din = numbers(r.din[0], DType::f32);
  double loss = 0;
  for (size_t row = 0; row < kRows; ++row) {
    const float* x = logits.data() + row * kClasses;
    double sum = 0;
    for (size_t c = 0; c < kClasses; ++c) sum += std::exp(double{x[c]} - base);
    if (targets[row] >= 0) loss += std::log(sum) - (double{x[targets[row]]} - base);
    for (size_t c = 0; c < kClasses; ++c) {
      const double share =
          std::exp(double{x[c]} - base) / sum - (static_cast<int32_t>(c) == targets[row] ? 1 : 0);
      const double expected = targets[row] >= 0 ? share / p.denominator : 0;
      ASSERT_NEAR(din[row * kClasses + c], expected, 3e-7 * std::fabs(expected))
          << "row " << row << ", class " << c;
    }
  }
  ASSERT_NEAR(numbers(r.out, DType::f64)[0], loss, 2e-7 * loss);
}

TEST(Extremes, CrossEntropyIsThatOfLogitsAround0) {
  for (const float base : {0.0f, 1e4f, -1e4f, 1e6f, 1e7f, -1e7f}) check_cross_entropy(base);
}

// A row of logits whose target is in another part, with the gradient of its log.
Problem part_of_logits(const std::vector<float>& logits, float gradient) {
  const auto n = static_cast<int64_t>(logits.size());
  Problem p{.op = &cross_entropy_part_op(),
            .attrs = {.section = {.axis = 1, .begin = 0, .whole = n + 1}}};
  p.in = {{{DType::f32, {1, n}}, true}, {{DType::i32, {1}}, true}};
  p.in_data = {bytes_of(logits), bytes_of(std::vector<int32_t>{static_cast<int32_t>(n)})};
  p.inferred = p.op->infer(p.attrs, p.in, p.weights).take();
  p.dout = bytes_of(std::vector<float>{gradient, gradient, 0});
  return p;
}

TEST(Extremes, ALogitThatIsNoNumberMakesTheLogOfItsPartNone) {
  for (size_t n = 1; n < 40; ++n)
    for (size_t at = 0; at <= n; ++at) {
      std::vector<float> logits(n, at == n ? NAN : 0.5f);  // the last: all of them
      if (at < n) logits[at] = NAN;
      const Results r = run_float(part_of_logits(logits, 0.5f));
      EXPECT_TRUE(std::isnan(numbers(r.out, DType::f32)[0])) << at << " of " << n;
      EXPECT_TRUE(std::isnan(numbers(r.din[0], DType::f32)[0])) << at << " of " << n;
    }
}

TEST(Extremes, APartThatIsRuledOutHasAGradientOf0UnlessItsLogHasNone) {
  const std::vector<float> logits(19, -kInfinity);
  expect_zeros(run_float(part_of_logits(logits, 0)).din[0], "ruled out");
  for (const double x : numbers(run_float(part_of_logits(logits, NAN)).din[0], DType::f32))
    EXPECT_TRUE(std::isnan(x));
}

TEST(Extremes, LayerNormOfARowOfEqualNumbersIsItsShift) {
  for (const int64_t n : {1, 7, 33, 768})
    for (const float x : {10000.7f, -1.0f / 3, 1e7f, 3e-7f, 123456.7f}) {
      const std::vector<float> gamma(static_cast<size_t>(n), 1.5f),
          beta = ramp(static_cast<size_t>(n));
      const Problem p = problem_of("layer_norm", {.factor = 1e-5}, {{1, n}},
                                   {std::vector<float>(static_cast<size_t>(n), x)}, {gamma, beta});
      const Results r = run_float(p);
      EXPECT_TRUE(r.out == bytes_of(beta))
          << n << " times " << x << ": the first is " << numbers(r.out, DType::f32)[0];
      expect_zeros(r.acc[0], "gradient of gamma");
    }
}

// The mean of such a row is a float; its numbers lie a few of their last digits from it.
TEST(Extremes, LayerNormFarFrom0IsThatOfADouble) {
  for (const size_t n : {7u, 33u, 768u})
    for (const float base : {1000.0f, 10000.0f, 1e6f}) {
      std::vector<float> x(n);
      for (size_t i = 0; i < n; ++i) x[i] = base + static_cast<float>(static_cast<int>(i % 3) - 1);
      x.back() -= n % 3 == 1 ? -1.0f : 0.0f;
      double mean = 0, variance = 0;
      for (float v : x) mean += v;
      mean /= static_cast<double>(n);
      for (float v : x) variance += (v - mean) * (v - mean);
      variance /= static_cast<double>(n);
      const Problem p = problem_of("layer_norm", {.factor = 1e-5}, {{1, static_cast<int64_t>(n)}},
                                   {x}, {std::vector<float>(n, 1), std::vector<float>(n)});
      const std::vector<double> out = numbers(run_float(p).out, DType::f32);
      const double last_digit = std::nextafter(base, kInfinity) - base;
      for (size_t i = 0; i < n; ++i)
        ASSERT_NEAR(out[i], (x[i] - mean) / std::sqrt(variance + 1e-5), 1e-6 + last_digit)
            << n << " around " << base;
    }
}

TEST(Extremes, GeluKeepsItsLimits) {
  const std::vector<float> x = {kInfinity, -kInfinity, 3e38f, -3e38f, 1e19f, -1e19f,
                                40,        -40,        0.0f,  -0.0f,  NAN};
  const std::vector<float> slope = {1, 0, 1, 0, 1, 0, 1, 0, 0.5f, 0.5f, NAN};
  for (const uint32_t flags : {0u, uint32_t{kTanh}}) {
    Problem p = problem_of("gelu", {.flags = flags}, {{1, static_cast<int64_t>(x.size())}}, {x});
    p.dout = bytes_of(std::vector<float>(x.size(), 1.0f));
    const Results r = run_float(p);
    const std::vector<double> out = numbers(r.out, DType::f32), din = numbers(r.din[0], DType::f32);
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      EXPECT_EQ(out[i], x[i] > 0 ? x[i] : 0) << x[i];
      EXPECT_EQ(std::signbit(out[i]), std::signbit(x[i])) << x[i];
      EXPECT_EQ(din[i], slope[i]) << x[i];
    }
    EXPECT_TRUE(std::isnan(out.back()) && std::isnan(din.back()));
  }
}

// Functions whose limits are 0, a constant or the input itself have them at the ends of a float.
TEST(Extremes, FunctionsAndTheirSlopesKeepTheirLimits) {
  const std::vector<float> x = {kInfinity, -kInfinity, 3e38f, -3e38f, 120, -120};
  const struct {
    const char* op;
    float above, below, slope_above;  // NaN: the input itself
  } rows[] = {
      {"sigmoid", 1, 0, 0}, {"silu", NAN, 0, 1}, {"softplus", NAN, 0, 1}, {"tanh", 1, -1, 0}};
  for (const auto& row : rows) {
    Problem p = problem_of(row.op, {}, {{1, static_cast<int64_t>(x.size())}}, {x});
    p.dout = bytes_of(std::vector<float>(x.size(), 1.0f));
    const Results r = run_float(p);
    const std::vector<double> out = numbers(r.out, DType::f32), din = numbers(r.din[0], DType::f32);
    for (size_t i = 0; i < x.size(); ++i) {
      const float above = std::isnan(row.above) ? x[i] : row.above;
      EXPECT_FLOAT_EQ(static_cast<float>(out[i]), x[i] > 0 ? above : row.below)
          << row.op << " of " << x[i];
      EXPECT_EQ(din[i], x[i] > 0 ? row.slope_above : 0) << row.op << " of " << x[i];
    }
  }
}

// The gradient goes to the first of equal elements, and to NaN.
TEST(Extremes, MaxHasOneGradientPerResult) {
  const std::vector<float> x = {2,   5, 5,          1,          NAN,        3,
                                NAN, 9, -kInfinity, -kInfinity, -kInfinity, -0.0f};
  Problem p = problem_of("max", {.axis = 1}, {{3, 4}}, {x});
  p.dout = bytes_of(std::vector<float>{1, 2, 3});
  const Results r = run_float(p);
  EXPECT_EQ(numbers(r.out, DType::f32)[0], 5);
  EXPECT_TRUE(std::isnan(numbers(r.out, DType::f32)[1]));
  EXPECT_EQ(numbers(r.out, DType::f32)[2], 0);
  EXPECT_TRUE(r.din[0] == bytes_of(std::vector<float>{0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3}));
}

// The loss of a logit that agrees with its target does not vanish in the rounding of the logit.
TEST(Extremes, BinaryCrossEntropyIsExactForLargeLogits) {
  for (const float x : {30.0f, 80.0f, -30.0f, 3e38f, -3e38f, 0.0f}) {
    for (const float target : {0.0f, 1.0f}) {
      Problem p{.op = find_op("binary_cross_entropy")};
      p.in = {{{DType::f32, {1, 1}}, true}, {{DType::f32, {1, 1}}, true}};
      p.in_data = {bytes_of(std::vector<float>{x}), bytes_of(std::vector<float>{target})};
      p.inferred = p.op->infer(p.attrs, p.in, p.weights).take();
      const double wrong = target > 0 ? -x : x;
      const double expected = std::max(wrong, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      EXPECT_NEAR(numbers(run_float(p).out, DType::f64)[0], expected, 3e-7 * expected + 1e-45)
          << x << " and " << target;
    }
  }
}

TEST(Extremes, ReluKeepsZerosAndWhatIsNoNumber) {
  const std::vector<float> x = {-0.0f, 0.0f, -1e-40f, 1e-40f, -kInfinity, kInfinity, NAN};
  const std::vector<float> expected = {-0.0f, 0.0f, 0.0f, 1e-40f, 0.0f, kInfinity, NAN};
  const Results r = run_float(problem_of("relu", {}, {{1, static_cast<int64_t>(x.size())}}, {x}));
  EXPECT_TRUE(r.out == bytes_of(expected));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(numbers(r.din[0], DType::f32)[i], 0) << x[i];
}

TEST(Extremes, SoftcapStaysWithinItsCap) {
  const std::vector<float> x = {-0.0f, 0.0f, -1e30f, 1e30f, -kInfinity, kInfinity, NAN};
  const std::vector<float> expected = {-0.0f, 0.0f, -3.0f, 3.0f, -3.0f, 3.0f, NAN};
  const Shape shape{1, static_cast<int64_t>(x.size())};
  const Results r = run_float(problem_of("softcap", {.cap = 3}, {shape}, {x}));
  EXPECT_TRUE(r.out == bytes_of(expected));
  for (size_t i = 2; i < 6; ++i) EXPECT_EQ(numbers(r.din[0], DType::f32)[i], 0) << x[i];
}

// A sum of as many rows one after another would be off by 1 in 400.
TEST(Extremes, SumsOfManyRowsAreThoseOfADouble) {
  constexpr int64_t kRows = 1 << 18;
  constexpr double kSum = kRows * double{0.1f};
  const std::vector<float> x(3 * kRows, 0.1f);
  const Results sums = run_float(problem_of("sum", {.axis = 1}, {{1, kRows, 3}}, {x}));
  for (const double sum : numbers(sums.out, DType::f32)) EXPECT_NEAR(sum, kSum, 1e-5 * kSum);
  const Shape shapes[][2] = {{{1, kRows, 3}, {1, 1, 3}}, {{1, 3, kRows}, {1, 3, 1}}};
  for (const auto& [full, repeated] : shapes) {
    Problem p = problem_of("add", {}, {full, repeated}, {x, ramp(3)});
    p.dout = bytes_of(x);
    for (const double sum : numbers(run_float(p).din[1], DType::f32))
      EXPECT_NEAR(sum, kSum, 1e-5 * kSum) << full.text();
  }
}

// A plan refuses what a node says that it needs.
TEST(Extremes, ScratchMemoryOfManyHeadsAndPositionsDoesNotOverflow) {
  const int64_t heads = int64_t{1} << 27;
  const Desc q{DType::f32, {64, heads}}, key{DType::f32, {64, 1}}, number{DType::i32, {64}};
  const Operand in[] = {{q, true}, {key, true}, {key, true}, {number, true}, {number, true}};
  const Attrs attrs{.heads = heads, .dims = {1, INT32_MAX}};
  const auto inferred = find_op("cached_attention")->infer(attrs, in, {});
  ASSERT_TRUE(inferred.ok()) << inferred.status().text();
  EXPECT_GE(inferred.value().scratch, static_cast<size_t>(kMostBytes));
}

// The gradient of what is repeated 0 times is a sum of no terms.
TEST(Extremes, WhatIsRepeatedZeroTimesHasAGradientOf0) {
  const Shape shapes[][2] = {{{3, 1}, {3, 0}}, {{3, 1, 4}, {3, 0, 4}}, {{3, 2, 1}, {3, 1, 0}}};
  for (const auto& [full, empty] : shapes) {
    const Results r = run_float(
        problem_of("add", {}, {full, empty}, {ramp(static_cast<size_t>(full.elements())), {}}));
    EXPECT_EQ(r.out.size(), 0u);
    expect_zeros(r.din[0], full.text());
  }
  const Results r = run_float(problem_of("mul", {}, {{3, 0, 4}}, {{}}, {ramp(4)}));
  expect_zeros(r.acc[0], "gradient of the weight");
}

// One token attends to itself only.
TEST(Extremes, AttentionOfOneTokenHasNoGradientOfQueriesAndKeys) {
  for (const double dropout : {0.0, 0.4})
    for (const int64_t size : {1, 5, 64}) {
      const Shape shape{8, 1, 2 * size};
      const int64_t n = shape.elements();
      const Problem p =
          problem_of("attention", {.heads = 2, .factor = dropout}, {shape, shape, shape},
                     {normals(n, 1), normals(n, 2), normals(n, 3)});
      const Results r = run_float(p);
      expect_zeros(r.din[0], "gradient of q");
      expect_zeros(r.din[1], "gradient of k");
      EXPECT_TRUE(dropout > 0 || r.din[2] == p.dout) << "gradient of v";
    }
}

TEST(Extremes, AttentionOfTheFirstCausalRowHasNoGradientOfItsQuery) {
  const std::pair<double, double> choices[] = {{0, 0}, {0.3, 0}, {0, 2}};
  for (const auto& [dropout, cap] : choices) {
    constexpr int64_t kRows = 70, kWidth = 12, kSamples = 3;
    const Shape shape{kSamples, kRows, kWidth};
    const int64_t n = shape.elements();
    const Attrs attrs{.heads = 3, .flags = kCausal, .factor = dropout, .cap = cap};
    const Results r = run_float(problem_of("attention", attrs, {shape, shape, shape},
                                           {normals(n, 1), normals(n, 2), normals(n, 3)}));
    const std::vector<double> dq = numbers(r.din[0], DType::f32);
    for (size_t sample = 0; sample < kSamples; ++sample) {
      double second = 0;
      for (size_t c = 0; c < kWidth; ++c) {
        ASSERT_EQ(dq[sample * kRows * kWidth + c], 0) << "sample " << sample;
        second += std::fabs(dq[(sample * kRows + 1) * kWidth + c]);
      }
      EXPECT_GT(second, 0);
    }
  }
}

// Row 0 does not see the infinite key of row 1. Its score of it, 0 times infinity, is not a number.
TEST(Extremes, AttentionWithACapKeepsAScoreThatIsNotSeenOutOfTheGradientOfItsKey) {
  const Shape shape{1, 2, 2};
  const Results r =
      run_float(problem_of("attention", {.heads = 1, .flags = kCausal, .cap = 2},
                           {shape, shape, shape}, {{0, 1, 1, 1}, {1, 1, kInfinity, 1}, ramp(4)}));
  for (const double dk : numbers(r.din[1], DType::f32)) EXPECT_TRUE(std::isfinite(dk)) << dk;
}

// Values that are all the same, or one column with all the weight: no score changes the output.
TEST(Extremes, AttentionThatNoScoreChangesHasNoGradientOfQueriesAndKeys) {
  constexpr int64_t kRows = 37, kSize = 6;
  const Shape shape{1, kRows, kSize};
  const int64_t n = shape.elements();
  std::vector<float> same(static_cast<size_t>(n)), one_hot = normals(n, 2);
  const std::vector<float> value = normals(kSize, 9);
  for (size_t i = 0; i < same.size(); ++i) same[i] = value[i % kSize];
  std::vector<float> queries(static_cast<size_t>(n), 1.0f);
  for (size_t c = 0; c < kSize; ++c)
    one_hot[11 * kSize + c] = 400;  // scores some 900 above all others
  const std::vector<std::vector<float>> cases[] = {{normals(n, 1), normals(n, 2), same},
                                                   {queries, one_hot, normals(n, 3)}};
  for (const auto& in : cases) {
    const Results r = run_float(problem_of("attention", {.heads = 1}, {shape, shape, shape}, in));
    expect_zeros(r.din[0], "gradient of q");
    expect_zeros(r.din[1], "gradient of k");
  }
}

}  // namespace
}  // namespace weft::test
