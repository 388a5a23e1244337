// gemm: against a naive product in double, the same bits for any number of threads, and the choice
// of BLIS's kernels.
#include "kernels/gemm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/fpenv.h"
#include "support/threaded_tiles.h"

namespace weft {
namespace {

std::vector<float> random_floats(int64_t n, uint64_t seed) {
  const Stream stream = Stream::data(seed, 0);
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(unit(stream.draw(i)[0]) - 0.5);
  return out;
}

// One product with rows wider than they need be, so that a wrong leading dimension shows.
struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b;
  float alpha, beta;
  std::vector<float> a, b, c;

  Case(int64_t m_, int64_t n_, int64_t k_, bool ta, bool tb, float alpha_ = 1, float beta_ = 0)
      : m(m_), n(n_), k(k_), trans_a(ta), trans_b(tb), alpha(alpha_), beta(beta_) {
    a = random_floats((ta ? k : m) * lda(), 1);
    b = random_floats((tb ? n : k) * ldb(), 2);
    c = random_floats(m * ldc(), 3);
  }
  int64_t lda() const { return (trans_a ? m : k) + 3; }
  int64_t ldb() const { return (trans_b ? k : n) + 1; }
  int64_t ldc() const { return n + 2; }

  std::vector<float> run(Tiles& tiles) const {
    ComputeScope scope;
    std::vector<float> out = c;
    gemm({m,
          n,
          k,
          {a.data(), lda(), trans_a},
          {b.data(), ldb(), trans_b},
          out.data(),
          ldc(),
          alpha,
          beta},
         tiles);
    return out;
  }

  double expected(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      const float x =
          trans_a ? a[static_cast<size_t>(p * lda() + i)] : a[static_cast<size_t>(i * lda() + p)];
      const float y =
          trans_b ? b[static_cast<size_t>(j * ldb() + p)] : b[static_cast<size_t>(p * ldb() + j)];
      sum += double{x} * y;
    }
    return alpha * sum + (beta == 0 ? 0 : double{beta} * c[static_cast<size_t>(i * ldc() + j)]);
  }

  void check(const std::vector<float>& out) const {
    const double bound = 1e-6 * std::sqrt(static_cast<double>(k) + 1) + 1e-6;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j)
        ASSERT_NEAR(out[static_cast<size_t>(i * ldc() + j)], expected(i, j), bound)
            << i << ',' << j;
      for (int64_t j = n; j < ldc(); ++j)
        ASSERT_EQ(out[static_cast<size_t>(i * ldc() + j)], c[static_cast<size_t>(i * ldc() + j)]);
    }
  }
};

TEST(Gemm, AgreesWithTheNaiveProduct) {
  SerialTiles serial;
  const int64_t sizes[][3] = {{1, 1, 1},      {1, 7, 5},     {5, 1, 9},     {3, 4, 0},
                              {16, 4, 16},    {17, 33, 65},  {64, 64, 64},  {100, 1, 300},
                              {1, 300, 100},  {12, 800, 40}, {800, 12, 40}, {769, 40, 257},
                              {100, 300, 200}};
  for (const auto& s : sizes)
    for (int trans = 0; trans < 4; ++trans)
      for (const auto& [alpha, beta] :
           {std::pair{1.f, 0.f}, {1.f, 1.f}, {-0.5f, 1.f}, {-0.5f, 2.f}}) {
        SCOPED_TRACE(testing::Message() << s[0] << 'x' << s[1] << 'x' << s[2] << " transposes "
                                        << trans << " beta " << beta);
        const Case one(s[0], s[1], s[2], trans & 1, trans & 2, alpha, beta);
        one.check(one.run(serial));
      }
}

TEST(Gemm, SmallProductsAgreeOnEverySimdTarget) {
  SerialTiles serial;
  int targets = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (int trans = 0; trans < 4; ++trans)
      for (const auto& s : {std::array{17, 33, 65}, {8, 64, 128}, {9, 5, 3}, {5, 40, 0}}) {
        const Case one(s[0], s[1], s[2], trans & 1, trans & 2, 0.5f, 1);
        one.check(one.run(serial));
      }
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GE(targets, 1);
}

TEST(Gemm, BetaZeroDoesNotReadC) {
  SerialTiles serial;
  Case one(20, 30, 10, false, false);
  for (int64_t i = 0; i < one.m; ++i)
    for (int64_t j = 0; j < one.n; ++j)
      one.c[static_cast<size_t>(i * one.ldc() + j)] = std::numeric_limits<float>::quiet_NaN();
  one.check(one.run(serial));
}

TEST(Gemm, EqualBitsForAnyNumberOfThreads) {
  SerialTiles serial;
  test::ThreadedTiles threads(4);
  const int64_t sizes[][3] = {
      {64, 1536, 96}, {64, 3100, 33}, {1600, 100, 64}, {770, 400, 20}, {256, 768, 100}};
  for (const auto& s : sizes)
    for (int trans = 0; trans < 4; ++trans) {
      SCOPED_TRACE(testing::Message()
                   << s[0] << 'x' << s[1] << 'x' << s[2] << " transposes " << trans);
      const Case one(s[0], s[1], s[2], trans & 1, trans & 2, 1, 1);
      const std::vector<float> expect = one.run(serial), got = one.run(threads);
      one.check(expect);
      EXPECT_EQ(std::memcmp(expect.data(), got.data(), expect.size() * sizeof(float)), 0);
    }
  EXPECT_GE(threads.most, 4) << "no product was split, so nothing was compared";
}

TEST(Gemm, TilesCoverTheLongerSide) {
  for (int64_t length : {1, 300, 383, 768, 769, 1000, 2304, 3072, 50257})
    for (int64_t other : {1, 64, 256}) {
      const GemmSplit split = gemm_split(other, length, 768);
      EXPECT_EQ(split.rows, other > length);
      EXPECT_EQ(gemm_split(length, other, 768).count, split.count);
      const int64_t cut = std::max(length, other);
      EXPECT_GE(split.block * split.count, cut);
      EXPECT_LT(split.block * (split.count - 1), cut);
    }
  EXPECT_EQ(gemm_split(256, 2304, 768).count, 4);
  EXPECT_EQ(gemm_split(256, 768, 768).count, 2);
  EXPECT_EQ(gemm_split(64, 64, 64).count, 1);
}

TEST(Gemm, KernelsAreThoseOfThisProcessor) {
  if (std::getenv("BLIS_ARCH_TYPE")) GTEST_SKIP() << "BLIS_ARCH_TYPE is set";
  const GemmInfo info = gemm_info();
  EXPECT_EQ(info.library.substr(0, 5), "BLIS ");
  EXPECT_FALSE(info.kernels.empty());
  EXPECT_FALSE(info.set_by_host);
  EXPECT_EQ(std::getenv("BLIS_ARCH_TYPE"), nullptr) << "the environment must be as it was";
  if (info.best.empty()) GTEST_SKIP() << "weft has no opinion about this processor";
  EXPECT_FALSE(info.slow) << info.text();
  EXPECT_EQ(info.kernels, info.best);
}

TEST(Gemm, TextSaysWhenItIsSlow) {
  GemmInfo info{.library = "BLIS 0.9.0", .kernels = "skx", .best = "skx"};
  EXPECT_EQ(info.text(), "BLIS 0.9.0, skx kernels");
  info.kernels = "generic";
  info.slow = info.set_by_host = true;
  EXPECT_EQ(info.text(),
            "BLIS 0.9.0, generic kernels (BLIS_ARCH_TYPE is set): slow, this processor runs skx");
}

#if defined(__x86_64__)
// Runs first (gtest orders *DeathTest suites so), in a child: BLIS is initialised once per process.
TEST(GemmDeathTest, AValueOfTheHostIsLeftToRule) {
  EXPECT_EXIT(
      {
        setenv("BLIS_ARCH_TYPE", "haswell", 1);
        const bool kept =
            gemm_info().set_by_host && std::strcmp(std::getenv("BLIS_ARCH_TYPE"), "haswell") == 0;
        std::_Exit(kept ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace weft
