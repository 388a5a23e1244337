// The functions of math-inl.h against double libm, for every SIMD target that this machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::kernels {
namespace HWY_NAMESPACE {
namespace {

void test_exp(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return vexp(v); });
}
void test_log(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return vlog(v); });
}
void test_erf(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return verf(v); });
}
void test_sigmoid(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return vsigmoid(v); });
}
void test_softplus(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return vsoftplus(v); });
}
void test_tanh(const float* x, float* y, int64_t n) {
  map1(x, y, n, [](FloatVec v) HWY_ATTR { return vtanh(v); });
}
float test_sum(const float* x, int64_t n) {
  return sum(n, [x](int64_t i, int64_t count)
                    HWY_ATTR { return hn::Add(load(x + i, count), constant(1.0f)); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::kernels {

HWY_EXPORT(test_exp);
HWY_EXPORT(test_log);
HWY_EXPORT(test_erf);
HWY_EXPORT(test_sigmoid);
HWY_EXPORT(test_softplus);
HWY_EXPORT(test_tanh);
HWY_EXPORT(test_sum);

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  void (*run)(const float*, float*, int64_t);
  double (*exact)(double);
  double max_ulp;
  float low, high;  // where results are finite
};

double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double exact_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

const Function kFunctions[] = {
    {"exp",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_exp)
       (x, y, n);
     },
     std::exp, 1.2, -103.0f, 88.72f},
    {"log",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_log)
       (x, y, n);
     },
     std::log, 1.2, 1e-45f, 3.4e38f},
    {"erf",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_erf)
       (x, y, n);
     },
     std::erf, 1.5, -6, 6},
    {"sigmoid",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_sigmoid)
       (x, y, n);
     },
     exact_sigmoid, 3, -87, 87},
    {"softplus",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_softplus)
       (x, y, n);
     },
     exact_softplus, 3, -87, 87},
    {"tanh",
     [](const float* x, float* y, int64_t n) {
       HWY_DYNAMIC_DISPATCH(test_tanh)
       (x, y, n);
     },
     std::tanh, 3, -12, 12},
};

// Distance in units of the last place of the exact value; below the normal range the unit stays
// that of the smallest normal number.
double ulps(float got, double exact) {
  const double magnitude = std::max(std::fabs(exact), 0x1p-126);
  return std::fabs(double{got} - exact) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

template <typename F>
void for_each_target(const F& body) {
  const int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t rest = all; rest; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Every float of a spread of all bit patterns that lies in [low, high], and an even grid.
std::vector<float> points(float low, float high) {
  std::vector<float> out;
  for (uint64_t bits = 0; bits < 0x100000000ull; bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (x >= low && x <= high) out.push_back(x);
  }
  for (int i = 0; i <= 1000000; ++i)
    out.push_back(static_cast<float>(low + (double{high} - low) * i / 1000000));
  return out;
}

TEST(Math, StaysWithinItsErrorOverTheWholeRange) {
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.name);
    const std::vector<float> x = points(f.low, f.high);
    std::vector<double> exact;
    for (float v : x) exact.push_back(f.exact(v));
    std::vector<float> y(x.size());
    for_each_target([&](int64_t) {
      f.run(x.data(), y.data(), static_cast<int64_t>(x.size()));
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i)
        if (const double e = ulps(y[i], exact[i]); !(e <= worst)) worst = e, at = x[i];
      EXPECT_LE(worst, f.max_ulp) << "at x = " << at;
    });
  }
}

TEST(Math, SpecialValues) {
  struct Row {
    const char* name;
    float x, y;
  };
  const Row rows[] = {
      {"exp", 0, 1},
      {"exp", -kInf, 0},
      {"exp", kInf, kInf},
      {"exp", kNaN, kNaN},
      {"exp", 100, kInf},
      {"exp", -200, 0},
      {"exp", 3e38f, kInf},
      {"log", 1, 0},
      {"log", 0, -kInf},
      {"log", -0.0f, -kInf},
      {"log", kInf, kInf},
      {"log", -1, kNaN},
      {"log", -kInf, kNaN},
      {"log", kNaN, kNaN},
      {"erf", 0, 0},
      {"erf", -0.0f, -0.0f},
      {"erf", kInf, 1},
      {"erf", -kInf, -1},
      {"erf", kNaN, kNaN},
      {"erf", -3e38f, -1},
      {"sigmoid", 0, 0.5f},
      {"sigmoid", kInf, 1},
      {"sigmoid", -kInf, 0},
      {"sigmoid", kNaN, kNaN},
      {"softplus", kInf, kInf},
      {"softplus", -kInf, 0},
      {"softplus", kNaN, kNaN},
      {"softplus", 3e38f, 3e38f},
      {"tanh", 0, 0},
      {"tanh", -0.0f, -0.0f},
      {"tanh", kInf, 1},
      {"tanh", -kInf, -1},
      {"tanh", kNaN, kNaN},
      {"tanh", 1e-40f, 1e-40f},
  };
  for (const Row& row : rows)
    for (const Function& f : kFunctions) {
      if (std::string_view(f.name) != row.name) continue;
      for_each_target([&](int64_t) {
        float y = 42;
        f.run(&row.x, &y, 1);
        if (std::isnan(row.y))
          EXPECT_TRUE(std::isnan(y)) << f.name << "(" << row.x << ") = " << y;
        else
          EXPECT_EQ(std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(row.y))
              << f.name << "(" << row.x << ") = " << y;
      });
    }
}

// An element's bits do not depend on its lane, its neighbours or its address.
TEST(Math, AnElementIsTreatedAlikeEverywhere) {
  std::vector<float> x(67), whole(67);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.05f + 0.13f * static_cast<float>(i);
  for (const Function& f : kFunctions)
    for_each_target([&](int64_t) {
      f.run(x.data(), whole.data(), 67);
      for (size_t i = 0; i < x.size(); ++i) {
        float alone;
        f.run(&x[i], &alone, 1);
        ASSERT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(whole[i]))
            << f.name << " of element " << i;
      }
    });
}

// The partial sums are the same for all widths; a target without fused multiply-add may differ in
// functions, never in a plain sum.
TEST(Math, ASumIsTheSameForAllTargets) {
  std::vector<float> x(1003);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(1.0f + static_cast<float>(i) * 1e-3f, static_cast<int>(i % 7));
  for (int64_t n : {0, 1, 15, 16, 31, 32, 33, 63, 1003}) {
    const float expected = HWY_DYNAMIC_DISPATCH(test_sum)(x.data(), n);
    double exact = 0;
    for (int64_t i = 0; i < n; ++i) exact += double{x[static_cast<size_t>(i)]} + 1;
    EXPECT_NEAR(expected, exact, exact * 1e-6);
    for_each_target([&](int64_t) {
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(test_sum)(x.data(), n), expected) << "n = " << n;
    });
  }
}

}  // namespace
}  // namespace weft::kernels
#endif
