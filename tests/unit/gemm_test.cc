// gemm: bit for bit against the numeric contract of gemm.h on each SIMD target, near BLIS, and the
// same bits for packed factors and any number of threads.
#include "kernels/gemm.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "kernels/fpenv.h"
#include "kernels/packed.h"
#include "runtime/welcome.h"
#include "support/simd_targets.h"
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

// Floats of a matrix whose rows are `stride` apart: nothing lies behind the last row, so that a
// sanitizer finds reads beyond it.
int64_t floats(int64_t rows, int64_t columns, int64_t stride) {
  return rows == 0 || columns == 0 ? 0 : (rows - 1) * stride + columns;
}

struct AlignedFree {
  void operator()(float* p) const { std::free(p); }
};
using Packed = std::unique_ptr<float, AlignedFree>;

Packed packed(const Factor& b, int64_t k, int64_t n, Tiles& tiles) {
  const size_t bytes = static_cast<size_t>(packed_floats(k, n)) * sizeof(float);
  Packed out(
      static_cast<float*>(std::aligned_alloc(kPackedAlign, std::max(bytes, size_t{kPackedAlign}))));
  pack(b, k, n, out.get(), tiles);
  return out;
}

// One product with rows wider than they need be, so that a wrong leading dimension shows.
struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b;
  float alpha, beta;
  std::vector<float> a, b, c, bias;  // the bias may be empty

  Case(int64_t m_, int64_t n_, int64_t k_, bool ta, bool tb, float alpha_ = 1, float beta_ = 0)
      : m(m_), n(n_), k(k_), trans_a(ta), trans_b(tb), alpha(alpha_), beta(beta_) {
    a = random_floats(ta ? floats(k, m, lda()) : floats(m, k, lda()), 1);
    b = random_floats(tb ? floats(n, k, ldb()) : floats(k, n, ldb()), 2);
    c = random_floats(m * ldc(), 3);
    if (beta == 0 && (m + n + k) % 2 == 0) bias = random_floats(n, 4);
  }
  int64_t lda() const { return (trans_a ? m : k) + 3; }
  int64_t ldb() const { return (trans_b ? k : n) + 1; }
  int64_t ldc() const { return n + 2; }
  float a_at(int64_t i, int64_t p) const {
    return a[static_cast<size_t>(trans_a ? p * lda() + i : i * lda() + p)];
  }
  float b_at(int64_t p, int64_t j) const {
    return b[static_cast<size_t>(trans_b ? j * ldb() + p : p * ldb() + j)];
  }

  Gemm product(float* out) const {
    return {.m = m,
            .n = n,
            .k = k,
            .a = {a.data(), lda(), trans_a},
            .b = {b.data(), ldb(), trans_b},
            .c = out,
            .stride = ldc(),
            .alpha = alpha,
            .beta = beta,
            .bias = bias.empty() ? nullptr : bias.data()};
  }

  std::vector<float> run(Tiles& tiles) const {
    ComputeScope scope;
    std::vector<float> out = c;
    gemm(product(out.data()), tiles);
    return out;
  }

  std::vector<float> run_packed(Tiles& tiles) const {
    ComputeScope scope;
    std::vector<float> out = c;
    const Packed copy = packed({b.data(), ldb(), trans_b}, k, n, tiles);
    Gemm g = product(out.data());
    g.packed_b = copy.get();
    g.b = {};
    gemm(g, tiles);
    return out;
  }

  // By the contract.
  std::vector<float> expected() const {
    std::vector<float> out = c;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float& to = out[static_cast<size_t>(i * ldc() + j)];
        to = beta == 1 ? to : beta * to;
        if (beta == 0) to = bias.empty() ? 0 : bias[static_cast<size_t>(j)];
        for (int64_t from = 0; from < k; from += kGemmDepth) {
          float sum = 0;
          for (int64_t p = from; p < std::min(k, from + kGemmDepth); ++p)
            sum = std::fma(a_at(i, p), b_at(p, j), sum);
          to = std::fma(alpha, sum, to);
        }
      }
    return out;
  }

  std::vector<float> by_blis() const {
    std::vector<float> out = c;
    blis_product(product(out.data()));
    return out;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected, int64_t k) {
  const double bound = 1e-6 * std::sqrt(static_cast<double>(k) + 1) + 1e-6;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], bound) << "element " << i;
}

constexpr int64_t kSizes[][3] = {
    {1, 1, 1},       {1, 7, 5},     {5, 1, 9},     {3, 4, 0},      {16, 4, 16},    {17, 33, 65},
    {64, 64, 64},    {100, 1, 300}, {1, 300, 100}, {12, 800, 40},  {800, 12, 40},  {241, 40, 770},
    {100, 300, 200}, {1, 65, 1030}, {9, 208, 900}, {241, 193, 20}, {24, 192, 300}, {100, 200, 769},
    {70, 48, 2000},  {15, 16, 1},   {70, 300, 800}};

std::string text_of(const Case& c) {
  return cat(c.m, " x ", c.n, " x ", c.k, ", transposed ", int{c.trans_a}, int{c.trans_b},
             ", alpha ", c.alpha, ", beta ", c.beta, c.bias.empty() ? "" : ", with a bias");
}

// Every size with each pair of transpositions, and one pair of alpha and beta after the other.
template <typename F>
void for_cases(F&& body) {
  constexpr std::pair<float, float> kScales[] = {{1, 0}, {1, 1}, {-0.5f, 1}, {0.3f, -1.7f}, {2, 0}};
  size_t scale = 0;
  for (const auto& s : kSizes)
    for (int trans = 0; trans < 4; ++trans) {
      const auto [alpha, beta] = kScales[scale++ % std::size(kScales)];
      const Case one(s[0], s[1], s[2], trans & 1, trans & 2, alpha, beta);
      SCOPED_TRACE(text_of(one));
      body(one);
    }
}

TEST(Gemm, FulfilsTheContractOnEachTarget) {
  SerialTiles serial;
  int compared = 0;
  for_cases([&](const Case& one) {
    const std::vector<float> expected = one.expected();
    test::for_each_target([&](int64_t) {
      const std::vector<float> plain = one.run(serial), from_packed = one.run_packed(serial);
      if (gemm_is_fused()) {
        ++compared;
        EXPECT_TRUE(same_bits(plain, expected));
        EXPECT_TRUE(same_bits(from_packed, expected));
      } else {
        expect_near(plain, expected, one.k);
        expect_near(from_packed, expected, one.k);
      }
    });
  });
  if (!gemm_is_fused()) GTEST_SKIP() << "this processor has no fused multiply-add";
  EXPECT_GT(compared, 0);
}

// So a weight has the same products whether a plan stores it packed or not.
TEST(Gemm, EqualBitsForPackedFactorsWithoutFusedMultiplyAdd) {
  const std::string kernels = blis_info().kernels;
  if (kernels == "haswell" || kernels.starts_with("zen"))
    GTEST_SKIP() << "the kernels of this processor depend on the order of the factor in memory";
  SerialTiles serial;
  for (const auto& s : kSizes)
    for (const bool transposed : {false, true}) {
      const Case one(s[0], s[1], s[2], false, transposed);
      SCOPED_TRACE(text_of(one));
      test::for_each_target([&](int64_t) {
        EXPECT_TRUE(gemm_is_fused() || same_bits(one.run_packed(serial), one.run(serial)));
      });
    }
}

TEST(Gemm, ProfileIsTheSameOnAllFusedTargets) {
  test::for_each_target([](int64_t) {
    if (gemm_is_fused())
      EXPECT_EQ(numeric_profile(), "fp32, fused");
    else
      EXPECT_NE(numeric_profile().find("BLIS"), std::string::npos) << numeric_profile();
  });
}

TEST(Gemm, IsNearBlis) {
  SerialTiles serial;
  for_cases([&](const Case& one) { expect_near(one.run(serial), one.by_blis(), one.k); });
}

TEST(Gemm, BetaZeroDoesNotReadC) {
  SerialTiles serial;
  Case one(20, 30, 10, false, false);
  const std::vector<float> expected = one.run(serial);
  for (int64_t i = 0; i < one.m; ++i)
    for (int64_t j = 0; j < one.n; ++j)
      one.c[static_cast<size_t>(i * one.ldc() + j)] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(same_bits(one.run(serial), expected));
}

// C that begins at a line, whose rows do or do not, and C that begins elsewhere.
TEST(Gemm, EqualBitsPastTheCaches) {
  SerialTiles serial;
  const ComputeScope scope;
  for (const auto& s : {std::array<int64_t, 3>{97, 160, 70}, {33, 75, 20}, {20, 48, 800}})
    for (const int64_t row : {s[1], (s[1] + 15) / 16 * 16})
      for (const size_t begin : {0, 1}) {
        const Case one(s[0], s[1], s[2], true, false);
        SCOPED_TRACE(cat(text_of(one), ", rows of ", row, ", from ", begin));
        const auto floats = static_cast<size_t>(one.m * row) + begin;
        Packed near(static_cast<float*>(std::aligned_alloc(64, (floats + 16) / 16 * 64)));
        Packed past(static_cast<float*>(std::aligned_alloc(64, (floats + 16) / 16 * 64)));
        std::fill_n(near.get(), floats, 42.0f);
        std::fill_n(past.get(), floats, 42.0f);
        test::for_each_target([&](int64_t) {
          Gemm g = one.product(near.get() + begin);
          g.stride = row;
          gemm(g, serial);
          g.c = past.get() + begin;
          g.past_caches = true;
          gemm(g, serial);
          EXPECT_EQ(std::memcmp(near.get(), past.get(), floats * sizeof(float)), 0);
        });
      }
}

TEST(Gemm, EqualBitsForAnyNumberOfThreads) {
  SerialTiles serial;
  test::ThreadedTiles threads(4);
  const int64_t sizes[][3] = {
      {64, 1536, 96}, {64, 3100, 33}, {1600, 100, 64}, {770, 400, 20}, {256, 768, 100}};
  for (const auto& s : sizes)
    for (int trans = 0; trans < 4; ++trans) {
      const Case one(s[0], s[1], s[2], trans & 1, trans & 2, 1, 1);
      SCOPED_TRACE(text_of(one));
      const std::vector<float> expected = one.run(serial);
      expect_near(expected, one.by_blis(), one.k);
      EXPECT_TRUE(same_bits(one.run(threads), expected));
      EXPECT_TRUE(same_bits(one.run_packed(threads), expected) || !gemm_is_fused());
    }
  EXPECT_GE(threads.most, 4) << "no product was split, so nothing was compared";
}

// Parts of different k, one with more than a block of it, and one without.
TEST(Gemm, ASumHasTheBitsOfItsProductsInTurn) {
  test::ThreadedTiles threads(3);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{40, 50}, {700, 1030}, {1500, 300}})
    for (const float beta : {0.0f, 1.0f})
      for (const bool past_caches : {false, true}) {
        std::vector<Case> cases;
        for (const int64_t k : {64, 0, 17, 800}) cases.emplace_back(m, n, k, true, false, 1, beta);
        ComputeScope scope;
        std::vector<float> in_turn = cases.front().c, at_once = in_turn;
        std::vector<GemmPart> parts;
        for (const Case& one : cases) {
          Gemm g = one.product(in_turn.data());
          g.bias = nullptr;
          if (!parts.empty()) g.beta = 1;
          gemm(g, threads);
          parts.push_back({one.k, g.a, g.b});
        }
        Gemm g = cases.front().product(at_once.data());
        g.bias = nullptr;
        g.past_caches = past_caches && beta == 0;
        gemm_sum(g, parts, threads);
        EXPECT_EQ(in_turn, at_once) << m << 'x' << n << " beta " << beta;
      }
}

TEST(Gemm, PackedFactorIsStripsOfSixteenColumns) {
  test::ThreadedTiles threads(2);
  for (const auto& [k, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 16}, {7, 35}, {66, 700}, {0, 9}})
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(cat(k, " x ", n, ", transposed ", int{transposed}));
      const Case one(1, n, k, false, transposed);
      const Packed out = packed({one.b.data(), one.ldb(), transposed}, k, n, threads);
      const int64_t strips = (n + 15) / 16;
      ASSERT_EQ(packed_floats(k, n), strips * k * 16);
      for (int64_t s = 0; s < strips; ++s)
        for (int64_t p = 0; p < k; ++p)
          for (int64_t j = 0; j < 16; ++j)
            ASSERT_EQ(out.get()[(s * k + p) * 16 + j], s * 16 + j < n ? one.b_at(p, s * 16 + j) : 0)
                << s << ',' << p << ',' << j;
    }
}

TEST(Gemm, TilesCoverTheLongerSide) {
  for (int threads : {1, 2, 3, 8, 16})
    for (int64_t length : {1, 300, 383, 768, 769, 1000, 2304, 3072, 50257})
      for (int64_t other : {1, 64, 256}) {
        const GemmSplit split = gemm_split({.m = other, .n = length, .k = 768}, threads);
        EXPECT_EQ(split.rows, other > length);
        const int64_t cut = std::max(length, other);
        EXPECT_GE(split.block * split.count, cut);
        EXPECT_LT(split.block * (split.count - 1), cut);
        EXPECT_TRUE(split.count == 1 || split.block % kStrip == 0) << split.block;
      }
}

TEST(Gemm, OneThreadHasFewTiles) {
  if (!gemm_is_fused()) GTEST_SKIP() << "BLIS computes the products";
  const auto count = [](int64_t m, int64_t n, int64_t k, int threads) {
    return gemm_split({.m = m, .n = n, .k = k}, threads).count;
  };
  EXPECT_EQ(count(64, 64, 64, 16), 1);
  EXPECT_EQ(count(128, 512, 4096, 1), 1);
  EXPECT_EQ(count(128, 512, 4096, 2), 4);
  EXPECT_EQ(count(4096, 512, 128, 1), 1);
  EXPECT_EQ(count(4096, 512, 128, 2), 16);
  EXPECT_EQ(count(256, 2304, 768, 1), 3);
  EXPECT_EQ(count(256, 2304, 768, 2), 16);
  const float packed = 0;
  EXPECT_EQ(gemm_split({.m = 4096, .n = 512, .k = 128, .packed_b = &packed}, 1).count, 6);
}

// As weft(3) says of every kernel; those of products have the largest buffers.
TEST(Gemm, AMebibyteOfStackSuffices) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
  const auto multiply = [](void*) -> void* {
    SerialTiles serial;
    const Case one(200, 200, 800, true, true);
    EXPECT_FALSE(one.run(serial).empty());
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, multiply, nullptr), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(Gemm, KernelsOfBlisAreThoseOfThisProcessor) {
  if (std::getenv("BLIS_ARCH_TYPE")) GTEST_SKIP() << "BLIS_ARCH_TYPE is set";
  const GemmInfo info = blis_info();
  EXPECT_EQ(info.library.substr(0, 5), "BLIS ");
  EXPECT_FALSE(info.kernels.empty());
  EXPECT_FALSE(info.set_by_host);
  EXPECT_EQ(std::getenv("BLIS_ARCH_TYPE"), nullptr) << "the environment must be as it was";
  if (info.best.empty()) GTEST_SKIP() << "weft has no opinion about this processor";
  EXPECT_FALSE(info.slow) << info.text();
  EXPECT_EQ(info.kernels, info.best);
}

TEST(Gemm, TextNamesTheKernelsThatRun) {
  GemmInfo info;
  info.target = "AVX2";
  info.library = "BLIS 0.9.0";
  EXPECT_EQ(info.text(), "fp32: weft kernels, AVX2; BLIS 0.9.0 is the fallback");
  info.target.clear();
  info.kernels = info.best = "skx";
  EXPECT_EQ(info.text(), "fp32: BLIS 0.9.0, skx kernels");
  info.kernels = "generic";
  info.slow = info.set_by_host = true;
  EXPECT_EQ(
      info.text(),
      "fp32: BLIS 0.9.0, generic kernels (BLIS_ARCH_TYPE is set): slow, this processor runs skx");
}

#if defined(__x86_64__)
// Runs first (gtest orders *DeathTest suites so), in a child: BLIS is initialised once per process.
TEST(GemmDeathTest, AValueOfTheHostIsLeftToRule) {
  EXPECT_EXIT(
      {
        setenv("BLIS_ARCH_TYPE", "haswell", 1);
        const bool kept =
            blis_info().set_by_host && std::strcmp(std::getenv("BLIS_ARCH_TYPE"), "haswell") == 0;
        std::_Exit(kept ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace weft
