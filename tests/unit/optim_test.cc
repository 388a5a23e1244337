// Update rules against numbers that optax made, rates, norms, and the same bits for any number of
// threads.
#include "optim/optim.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/plain_math.h"
#include "base/rng.h"
#include "data/optim.h"
#include "kernels/fpenv.h"
#include "support/threaded_tiles.h"

namespace weft {
namespace {

std::vector<float> random_floats(size_t n, uint64_t seed) {
  const Stream stream = Stream::data(seed, 0);
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(unit(stream.draw(i)[0]) - 0.5);
  return out;
}

OptimSettings settings_of(const test::OptimCase& one) {
  OptimSettings settings;
  settings.rule = one.rule;
  settings.rate = one.rate;
  settings.momentum = one.momentum;
  settings.beta1 = one.beta1;
  settings.beta2 = one.beta2;
  settings.eps = one.eps;
  settings.weight_decay = one.weight_decay;
  return settings;
}

// A parameter with its slots.
struct Parameter {
  std::vector<float> weight, slot0, slot1;

  explicit Parameter(std::vector<float> w)
      : weight(std::move(w)), slot0(weight.size()), slot1(weight.size()) {}

  void step(const OptimSettings& settings, uint64_t step, double scale, bool decay,
            const std::vector<float>& grad, Tiles& tiles) {
    step_after(settings, step, step, scale, decay, grad, tiles);
  }
  void step_after(const OptimSettings& settings, uint64_t step, uint64_t made, double scale,
                  bool decay, const std::vector<float>& grad, Tiles& tiles,
                  const kernels::WeightCopies& copies = {}) {
    ComputeScope scope;
    update(settings, rate_at(settings, step), made, scale, {.decay = decay ? 1.0 : 0.0},
           static_cast<int64_t>(weight.size()), weight.data(), grad.data(),
           slots(settings) > 0 ? slot0.data() : nullptr,
           slots(settings) > 1 ? slot1.data() : nullptr, copies, tiles);
  }
};

TEST(Optim, NamesReadBack) {
  for (Rule rule : {Rule::sgd, Rule::adam, Rule::adamw})
    EXPECT_EQ(rule_named(rule_name(rule)).value(), rule);
  for (RateCurve curve : {RateCurve::constant, RateCurve::cosine, RateCurve::linear})
    EXPECT_EQ(curve_named(curve_name(curve)).value(), curve);
  EXPECT_EQ(rule_named("sdg").status().text(), "'rule' is 'sdg', expected adamw, adam or sgd");
  EXPECT_EQ(curve_named("").status().text(), "'curve' is '', expected constant, cosine or linear");
}

TEST(Optim, AFactorOfZeroChangesNothing) {
  SerialTiles tiles;
  for (const Rule rule : {Rule::sgd, Rule::adam, Rule::adamw}) {
    OptimSettings settings;
    settings.rule = rule;
    settings.weight_decay = 0.1;
    settings.momentum = rule == Rule::sgd ? 0.9 : 0;
    Parameter parameter(random_floats(1000, 1));
    parameter.step(settings, 0, 1, true, random_floats(1000, 2), tiles);
    const Parameter before = parameter;
    const double scale = clip_scale(settings, std::nan(""));
    parameter.step(settings, 1, scale, true, std::vector<float>(1000, INFINITY), tiles);
    EXPECT_EQ(parameter.weight, before.weight);
    EXPECT_EQ(parameter.slot0, before.slot0);
    EXPECT_EQ(parameter.slot1, before.slot1);
  }
}

TEST(Optim, StepsAreThoseOfOptax) {
  for (const test::OptimCase& one : test::kOptimCases) {
    SCOPED_TRACE(one.name);
    const OptimSettings settings = settings_of(one);
    ASSERT_TRUE(check(settings).ok());
    // Repeated, so that whole vectors and a short last one are compared.
    constexpr int kRepeats = 9;
    std::vector<float> start;
    for (int i = 0; i < test::kOptimCount * kRepeats; ++i)
      start.push_back(static_cast<float>(i % test::kOptimCount * 5 % 7 - 3) / 4);
    Parameter parameter(start);
    SerialTiles serial;
    size_t row = 0;
    for (int step = 0; step < 10; ++step) {
      std::vector<float> grad;
      for (size_t i = 0; i < start.size(); ++i)
        grad.push_back(
            static_cast<float>((static_cast<int>(i) % test::kOptimCount * 7 + step * 3) % 11 - 5) /
            8);
      parameter.step(settings, static_cast<uint64_t>(step), one.scale, true, grad, serial);
      if (step + 1 != test::kOptimSteps[row]) continue;
      for (size_t i = 0; i < start.size(); ++i)
        EXPECT_NEAR(parameter.weight[i], one.weights[row][i % test::kOptimCount], 2e-6)
            << "after step " << step + 1 << ", element " << i;
      ++row;
    }
    EXPECT_EQ(row, std::size(test::kOptimSteps));
  }
}

TEST(Optim, MomentsAreCorrectedByUpdatesAndTheRateIsOfTheStep) {
  SerialTiles serial;
  const std::vector<float> grad = random_floats(100, 2);
  OptimSettings constant;
  constant.rule = Rule::adam;
  OptimSettings falling = constant;
  falling.curve = RateCurve::cosine;
  falling.total = 20;
  Parameter a(random_floats(100, 1)), b = a, c = a, d = a;
  a.step_after(constant, 6, 2, 1, true, grad, serial);
  b.step(constant, 2, 1, true, grad, serial);
  EXPECT_EQ(a.weight, b.weight);
  c.step_after(falling, 6, 2, 1, true, grad, serial);
  constant.rate = rate_at(falling, 6);
  d.step(constant, 2, 1, true, grad, serial);
  EXPECT_EQ(c.weight, d.weight);
  EXPECT_NE(c.weight, a.weight);
}

TEST(Optim, WithoutDecayTheAmountDoesNotMatter) {
  SerialTiles serial;
  const std::vector<float> grad = random_floats(100, 2);
  for (Rule rule : {Rule::sgd, Rule::adam, Rule::adamw}) {
    OptimSettings with;
    with.rule = rule;
    with.weight_decay = 0.5;
    OptimSettings without = with;
    without.weight_decay = 0;
    Parameter a(random_floats(100, 1)), b = a, c = a;
    a.step(with, 0, 1, false, grad, serial);
    b.step(without, 0, 1, true, grad, serial);
    c.step(with, 0, 1, true, grad, serial);
    EXPECT_EQ(a.weight, b.weight);
    EXPECT_NE(a.weight, c.weight);
  }
}

TEST(Optim, WithoutDecayAnInfiniteParameterStaysSo) {
  SerialTiles serial;
  constexpr size_t kCount = 37;  // whole vectors and a short last one
  for (Rule rule : {Rule::sgd, Rule::adam, Rule::adamw})
    for (const double momentum : {0.0, 0.9}) {
      if (momentum != 0 && rule != Rule::sgd) continue;
      OptimSettings settings;
      settings.rule = rule;
      settings.momentum = momentum;
      settings.weight_decay = 0;
      Parameter finite(random_floats(kCount, 1)), infinite(std::vector<float>(kCount, INFINITY));
      for (Parameter* parameter : {&finite, &infinite})
        parameter->step(settings, 0, 1, true, random_floats(kCount, 2), serial);
      EXPECT_EQ(infinite.weight, std::vector<float>(kCount, INFINITY));
      EXPECT_EQ(infinite.slot0, finite.slot0);
      EXPECT_EQ(infinite.slot1, finite.slot1);
    }
}

// Powers of two do not round.
TEST(Optim, FactorsMultiplyRateAndDecay) {
  const std::vector<float> grad = random_floats(5000, 2);
  for (Rule rule : {Rule::sgd, Rule::adam, Rule::adamw})
    for (RateCurve curve : {RateCurve::constant, RateCurve::cosine}) {
      OptimSettings settings;
      settings.rule = rule;
      settings.weight_decay = 0.1;
      settings.rate = 0.02;
      settings.curve = curve;
      if (curve == RateCurve::cosine) {
        settings.total = 9;
        settings.min_rate = 0.01;
      }
      OptimSettings scaled = settings;
      scaled.rate *= 0.25;
      scaled.min_rate *= 0.25;
      scaled.weight_decay *= 8;
      SerialTiles serial;
      Parameter a(random_floats(5000, 1)), b = a;
      for (uint64_t step = 0; step < 5; ++step) {
        a.step(scaled, step, 1, true, grad, serial);
        const ComputeScope scope;
        update(settings, rate_at(settings, step), step, 1, {.rate = 0.25, .decay = 8},
               static_cast<int64_t>(grad.size()), b.weight.data(), grad.data(), b.slot0.data(),
               b.slot1.data(), {}, serial);
      }
      EXPECT_EQ(a.weight, b.weight);
    }
}

TEST(Optim, EqualBitsForAnyNumberOfThreadsAndAnyAddress) {
  const size_t n = 100'003;
  const std::vector<float> grad = random_floats(n, 2);
  for (Rule rule : {Rule::sgd, Rule::adam, Rule::adamw}) {
    OptimSettings settings;
    settings.rule = rule;
    settings.momentum = 0.5;
    settings.weight_decay = 0.1;
    SerialTiles serial;
    test::ThreadedTiles threads(4);
    Parameter a(random_floats(n, 1)), b = a;
    a.step(settings, 3, 0.7, true, grad, serial);
    b.step(settings, 3, 0.7, true, grad, threads);
    EXPECT_GT(threads.most, 4);
    EXPECT_EQ(std::memcmp(a.weight.data(), b.weight.data(), n * sizeof(float)), 0);
    EXPECT_EQ(a.slot0, b.slot0);
    EXPECT_EQ(a.slot1, b.slot1);

    // One element, which is a short vector, has the same result as among others.
    Parameter one({a.weight[0]}), many(std::vector<float>(70, a.weight[0]));
    one.step(settings, 0, 1, true, {0.3f}, serial);
    many.step(settings, 0, 1, true, std::vector<float>(70, 0.3f), serial);
    for (float w : many.weight) EXPECT_EQ(w, one.weight[0]);
  }
}

// The packed forms are those of the new weight, whatever its shape.
TEST(Optim, NewWeightsArePacked) {
  constexpr int64_t kShapes[][2] = {{1, 1}, {32, 64}, {31, 70}, {100, 33}, {700, 257}};
  for (const auto& [rows, columns] : kShapes)
    for (Rule rule : {Rule::sgd, Rule::adamw}) {
      OptimSettings settings;
      settings.rule = rule;
      const auto n = static_cast<size_t>(rows * columns);
      const std::vector<float> grad = random_floats(n, 2);
      test::ThreadedTiles threads(2);
      SerialTiles serial;
      Parameter a(random_floats(n, 1)), b = a;
      std::vector<std::vector<float>> memory;
      std::vector<kernels::PackedMatrix> packed;
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool transposed : {false, true}) {
          memory.emplace_back(n + 64 * static_cast<size_t>(rows + columns + 64), 42.f);
          packed.push_back({dtype, transposed ? columns : rows, transposed ? rows : columns,
                            transposed, memory.back().data()});
        }
      std::vector<kernels::Bf16> in_order(n), rounded(n);
      a.step_after(settings, 0, 0, 1, true, grad, threads,
                   {.packed = packed, .in_order = in_order.data()});
      b.step(settings, 0, 1, true, grad, serial);
      kernels::to_bf16(b.weight.data(), rounded.data(), static_cast<int64_t>(n));
      EXPECT_EQ(in_order, rounded);
      EXPECT_EQ(a.weight, b.weight);
      const std::vector<std::vector<float>> written = memory;
      for (const kernels::PackedMatrix& matrix : packed) write_packed(matrix, 0, b.weight);
      EXPECT_EQ(written, memory) << rows << 'x' << columns;
    }
}

TEST(Optim, SumOfSquaresFoldsBlocksOf4096) {
  const size_t n = 3 * 16384 + 4096 + 77;
  const std::vector<float> x = random_floats(n, 5);
  double expected = 0;
  std::vector<double> blocks;
  for (size_t i = 0; i < n; ++i) {
    if (i % 4096 == 0) blocks.push_back(0);
    blocks.back() += double{x[i]} * x[i];
  }
  for (double block : blocks) expected += block;

  ComputeScope scope;
  const auto size = static_cast<int64_t>(n);
  std::vector<double> whole(blocks.size(), -1), parts(blocks.size(), -1);
  square_blocks(x.data(), 0, size, whole.data());
  square_blocks(x.data(), 16384, size, parts.data());
  square_blocks(x.data(), 0, 16384, parts.data());
  EXPECT_EQ(whole, parts);
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_NEAR(whole[i], blocks[i], 1e-12 * blocks[i]);
  EXPECT_NEAR(sum_of_blocks(whole.data(), size), expected, 1e-12 * expected);
  EXPECT_EQ(sum_of_blocks(whole.data(), 0), 0);
}

TEST(Optim, RatesWarmUpAndFollowTheCosine) {
  OptimSettings settings;
  settings.rate = 0.5;
  settings.warmup = 5;
  EXPECT_EQ(rate_at(settings, 0), 0.1);
  EXPECT_EQ(rate_at(settings, 4), 0.5);
  EXPECT_EQ(rate_at(settings, 1000), 0.5);
  settings.curve = RateCurve::cosine;
  settings.total = 25;
  settings.min_rate = 0.05;
  for (size_t i = 0; i < std::size(test::kCosineRates); ++i)
    EXPECT_NEAR(rate_at(settings, 5 + i), test::kCosineRates[i], 1e-15) << i;
  EXPECT_EQ(rate_at(settings, 25), 0.05);
  EXPECT_EQ(rate_at(settings, 26), 0.05);
  settings.warmup = 0;
  EXPECT_EQ(rate_at(settings, 0), 0.5);
}

TEST(Optim, RatesFallOnALine) {
  OptimSettings settings;
  settings.rate = 0.5;
  settings.warmup = 2;
  settings.curve = RateCurve::linear;
  settings.total = 6;
  settings.min_rate = 0.25;
  const double expected[] = {0.25, 0.5, 0.5, 0.4375, 0.375, 0.3125, 0.25, 0.25};
  for (size_t step = 0; step < std::size(expected); ++step)
    EXPECT_EQ(rate_at(settings, step), expected[step]) << step;
}

TEST(Optim, ClipScale) {
  OptimSettings settings;
  EXPECT_EQ(clip_scale(settings, 1e9), 1);
  settings.clip = 2;
  EXPECT_EQ(clip_scale(settings, 2), 1);
  EXPECT_EQ(clip_scale(settings, 8), 0.25);
  EXPECT_EQ(clip_scale(settings, std::nan("")), 0);
}

TEST(Optim, SlotsHaveTheirNames) {
  OptimSettings settings;
  EXPECT_EQ(slots(settings), 2);
  EXPECT_EQ(slot_name(settings, 0), "exp_avg");
  EXPECT_EQ(slot_name(settings, 1), "exp_avg_sq");
  settings.rule = Rule::sgd;
  EXPECT_EQ(slots(settings), 0);
  settings.momentum = 0.9;
  EXPECT_EQ(slots(settings), 1);
  EXPECT_EQ(slot_name(settings, 0), "momentum");
}

TEST(Optim, SettingsThatCannotBeAreNamed) {
  const auto text = [](auto change) {
    OptimSettings settings;
    change(settings);
    return check(settings).text();
  };
  EXPECT_EQ(text([](OptimSettings&) {}), "");
  EXPECT_EQ(text([](OptimSettings& s) { s.rate = -1; }),
            "optimizer rate is -1, expected a finite float of 0 or more");
  EXPECT_EQ(text([](OptimSettings& s) { s.weight_decay = 1e39; }),
            "optimizer weight_decay is 1e+39, expected a finite float of 0 or more");
  EXPECT_EQ(text([](OptimSettings& s) { s.beta2 = 1; }),
            "optimizer beta2 is 1, expected 0 or more and below 1");
  EXPECT_EQ(text([](OptimSettings& s) { s.clip = std::nan(""); }),
            "optimizer clip is nan, expected a finite number of 0 or more");
  EXPECT_EQ(text([](OptimSettings& s) { s.rule = static_cast<Rule>(9); }),
            "optimizer rule is 9, expected 1 (sgd), 2 (adam) or 3 (adamw)");
  EXPECT_EQ(text([](OptimSettings& s) { s.curve = static_cast<RateCurve>(9); }),
            "optimizer curve is 9, expected 1 (constant), 2 (cosine) or 3 (linear)");
  EXPECT_EQ(text([](OptimSettings& s) { s.curve = RateCurve::cosine; }),
            "optimizer total is 0 steps, expected more than the 0 of warmup");
  EXPECT_EQ(text([](OptimSettings& s) {
              s.curve = RateCurve::cosine;
              s.total = 10;
              s.min_rate = 1;
            }),
            "optimizer min_rate is 1, expected 0 to the rate 0.001");
  EXPECT_EQ(text([](OptimSettings& s) { s.momentum = 0.9; }),
            "optimizer momentum is 0.9, but rule adamw does not read it; expected 0, or rule sgd");
  EXPECT_EQ(text([](OptimSettings& s) {
              s.rule = Rule::sgd;
              s.beta2 = 0.95;
            }),
            "optimizer beta2 is 0.95, but rule sgd does not read it; expected 0.999, or rules adam "
            "and adamw");
  EXPECT_EQ(text([](OptimSettings& s) { s.min_rate = 1e-5; }),
            "optimizer min_rate is 1e-05, but curve constant does not read it; expected 0, or "
            "curves cosine and linear");
  EXPECT_EQ(text([](OptimSettings& s) { s.total = 10; }),
            "optimizer total is 10, but curve constant does not read it; expected 0, or curves "
            "cosine and linear");
}

TEST(PlainMath, AgreesWithLibm) {
  for (double x : {1e-300, 1e-9, 0.1, 0.5, 0.7, 1.0, 1.5, 2.0, 1000.0, 1e300})
    EXPECT_NEAR(plain_log(x), std::log(x), 1e-14 * std::abs(std::log(x)) + 1e-16);
  for (int i = 0; i < 64; ++i) {
    const double turn = i / 64.0;
    double sine, cosine;
    plain_sincos_turn(turn, sine, cosine);
    EXPECT_NEAR(sine, std::sin(turn * 6.283185307179586), 1e-14);
    EXPECT_NEAR(cosine, std::cos(turn * 6.283185307179586), 1e-14);
  }
  EXPECT_EQ(plain_power(0.5, 10), 0x1p-10);
  EXPECT_EQ(plain_power(3, 0), 1);
  EXPECT_NEAR(plain_power(0.999, 12345), std::pow(0.999, 12345), 1e-16);
  EXPECT_EQ(plain_power(0.9, 1'000'000'000'000), 0);
}

}  // namespace
}  // namespace weft
