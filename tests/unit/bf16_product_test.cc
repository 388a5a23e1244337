// Products of bf16: every unit and SIMD target against the contract of bf16_product.h, bit for bit.
#include "kernels/bf16_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/fpenv.h"
#include "support/bf16_reference.h"
#include "support/simd_targets.h"
#include "support/threaded_tiles.h"

namespace weft::kernels {
namespace {

using test::Numbers;

constexpr Numbers kNumbers[] = {Numbers::usual, Numbers::small, Numbers::any_bits};

enum class Result { floats, added, rounded, biased, past_caches };

std::vector<float> random_floats(Numbers numbers, int64_t n, uint64_t seed) {
  const std::vector<Bf16> upper = test::random_bf16s(numbers, n, seed);
  const std::vector<Bf16> lower = test::random_bf16s(Numbers::any_bits, n, seed + 1);
  std::vector<float> out;
  for (size_t i = 0; i < upper.size(); ++i) {
    // A sum of small products is near the smallest normal number.
    const float x = std::bit_cast<float>(uint32_t{upper[i]} << 16 | lower[i]);
    out.push_back(numbers == Numbers::small ? x * 0x1p-62f : x);
  }
  return out;
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// C[m,n], as floats; rows of the operands are longer than they need be.
struct Case {
  int64_t m, n, k;
  Result result;
  std::vector<Bf16> a, b, packed;
  std::vector<float> c, bias;

  Case(int64_t m_, int64_t n_, int64_t k_, Result result_, Numbers numbers)
      : m(m_), n(n_), k(k_), result(result_) {
    a = test::random_bf16s(numbers, m * a_row(), 1);
    b = test::random_bf16s(numbers, k * n, 2);
    c = random_floats(numbers, m * c_row(), 3);
    bias = random_floats(numbers, n, 5);
    packed.resize(static_cast<size_t>(packed_bf16_bytes(k, n) / 2));
    SerialTiles serial;
    pack_bf16(PackBf16<Bf16>{k, n, b.data(), n, false, packed.data()}, serial);
  }
  int64_t a_row() const { return k + 5; }
  int64_t c_row() const { return n + 3; }

  Bf16Product product(float* floats, Bf16* halves) const {
    const bool bf16 = result == Result::rounded || result == Result::biased;
    return {.m = m,
            .n = n,
            .k = k,
            .a = a.data(),
            .a_row = a_row(),
            .b = packed.data(),
            .c = bf16 ? nullptr : floats,
            .rounded = bf16 ? halves : nullptr,
            .c_row = c_row(),
            .bias = result == Result::biased ? bias.data() : nullptr,
            .add = result == Result::added,
            .past_caches = result == Result::past_caches};
  }

  std::vector<float> run(Tiles& tiles, Bf16Unit unit) const {
    std::vector<float> floats = c;
    std::vector<Bf16> halves(c.size(), 42);
    const ComputeScope scope;
    const Bf16Product g = product(floats.data(), halves.data());
    bf16_product(g, tiles, unit);
    if (g.rounded) from_bf16(halves.data(), floats.data(), static_cast<int64_t>(halves.size()));
    return floats;
  }

  float expected(int64_t i, int64_t j) const {
    const auto at = [](int64_t row, int64_t width, int64_t column) {
      return static_cast<size_t>(row * width + column);
    };
    const float start = result == Result::added ? c[at(i, c_row(), j)] : 0;
    const float sum = test::reference_sum(
        k, start, [&](int64_t p) { return a[at(i, a_row(), p)]; },
        [&](int64_t p) { return b[at(p, n, j)]; });
    if (result == Result::rounded) return test::widened(test::rounded(sum));
    if (result == Result::biased)
      return test::widened(test::rounded(sum + bias[static_cast<size_t>(j)]));
    return sum;
  }

  std::vector<float> reference() const {
    const FlushScope scope;
    const bool bf16 = result == Result::rounded || result == Result::biased;
    std::vector<float> out = c;
    if (bf16) std::fill(out.begin(), out.end(), test::widened(42));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) out[static_cast<size_t>(i * c_row() + j)] = expected(i, j);
    return out;
  }
};

void expect_same(const std::vector<float>& got, const std::vector<float>& expected) {
  size_t wrong = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;)
    if (!same(got[i], expected[i])) {
      ++wrong;
      first = i;
    }
  ASSERT_EQ(wrong, 0u) << "of " << got.size() << ", first at " << first << ": " << std::hexfloat
                       << got[first] << " for " << expected[first];
}

// Without FMA, products round: only usual numbers are exact.
bool target_has_fma(int64_t target) { return HWY_ARCH_ARM || target <= HWY_AVX2; }

// Runs body(unit) for the FMA kernels of each SIMD target, and for AMX.
template <typename F>
void for_each_unit(Numbers numbers, const F& body) {
  test::for_each_target([&](int64_t target) {
    if (numbers == Numbers::usual || target_has_fma(target)) body(Bf16Unit::fma);
  });
  SCOPED_TRACE("AMX");
  if (bf16_has_amx()) body(Bf16Unit::amx);
}

TEST(Bf16Product, HasTheBitsOfTheContract) {
  SerialTiles serial;
  const int64_t sizes[][3] = {
      {1, 1, 1},     {1, 40, 64},   {16, 16, 32},  {17, 33, 31},  {32, 32, 32},
      {13, 70, 300}, {33, 65, 257}, {50, 130, 33}, {3, 0, 5},     {0, 3, 5},
      {5, 40, 0},    {48, 96, 2},   {80, 64, 512}, {300, 40, 34}, {3, 35, kBf16Long + 515}};
  for (const auto& [m, n, k] : sizes)
    for (const Result result :
         {Result::floats, Result::added, Result::rounded, Result::biased, Result::past_caches})
      for (const Numbers numbers : kNumbers) {
        SCOPED_TRACE(testing::Message()
                     << m << 'x' << n << 'x' << k << " result " << static_cast<int>(result)
                     << " numbers " << static_cast<int>(numbers));
        const Case one(m, n, k, result, numbers);
        const std::vector<float> expected = one.reference();
        for_each_unit(numbers,
                      [&](Bf16Unit unit) { expect_same(one.run(serial, unit), expected); });
      }
}

struct alignas(64) Line {
  float floats[16];
};

// As rows that lie at lines, and as rows that do not; run() has them anywhere.
TEST(Bf16Product, EqualBitsPastTheCaches) {
  SerialTiles serial;
  for (const int64_t n : {61, 64, 125}) {  // rows of n + 3
    const Case one(70, n, 100, Result::past_caches, Numbers::usual);
    std::vector<Line> lines(one.c.size() / 16 + 1);
    float* const c = lines.front().floats;
    for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
      std::copy(one.c.begin(), one.c.end(), c);
      const ComputeScope scope;
      bf16_product(one.product(c, nullptr), serial, unit);
      expect_same(std::vector<float>(c, c + one.c.size()), one.run(serial, unit));
    });
  }
}

// Millions of outputs, with chunks enough for the sums to leave the normal range and return.
TEST(Bf16Product, AmxHasTheBitsOfTheFmaKernels) {
  if (!bf16_has_amx()) GTEST_SKIP() << "this process has no AMX";
  SerialTiles serial;
  for (const Numbers numbers : kNumbers)
    for (const int64_t k : {2, 32, 100, 320, 810}) {
      const Case one(1000, 1000, k, Result::added, numbers);
      expect_same(one.run(serial, Bf16Unit::amx), one.run(serial, Bf16Unit::fma));
    }
}

// More than one block of rows and of columns; k ends within a slice, and within a chunk.
TEST(Bf16Product, AmxHasTheBitsOfTheFmaKernelsIfKIsLong) {
  if (!bf16_has_amx()) GTEST_SKIP() << "this process has no AMX";
  SerialTiles serial;
  for (const Result result : {Result::added, Result::biased}) {
    const Case one(kBf16BlockRows + 50, kBf16LongColumns + 40, kBf16Long + 999, result,
                   Numbers::usual);
    expect_same(one.run(serial, Bf16Unit::amx), one.run(serial, Bf16Unit::fma));
  }
}

TEST(Bf16Product, EqualBitsHoweverItIsCut) {
  SerialTiles serial;
  test::ThreadedTiles threads(4);
  for (const int64_t k : {96, 300})
    for (const Result result : {Result::added, Result::biased}) {
      const Case one(520, 300, k, result, Numbers::usual);
      for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
        expect_same(one.run(threads, unit), one.run(serial, unit));
      });
    }
  EXPECT_GE(threads.most, 4) << "no product was split, so nothing was compared";
}

TEST(Bf16Product, KIsCutAtChunksInOrder) {
  SerialTiles serial;
  const int64_t cut = 64;
  const Case whole(40, 50, 200, Result::added, Numbers::usual);
  std::vector<Bf16> first(static_cast<size_t>(packed_bf16_bytes(cut, whole.n) / 2));
  std::vector<Bf16> rest(static_cast<size_t>(packed_bf16_bytes(whole.k - cut, whole.n) / 2));
  pack_bf16(PackBf16<Bf16>{cut, whole.n, whole.b.data(), whole.n, false, first.data()}, serial);
  pack_bf16(PackBf16<Bf16>{whole.k - cut, whole.n, whole.b.data() + cut * whole.n, whole.n, false,
                           rest.data()},
            serial);
  for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
    std::vector<float> c = whole.c;
    Bf16Product g = whole.product(c.data(), nullptr);
    g.k = cut;
    g.b = first.data();
    bf16_product(g, serial, unit);
    g.a += cut;
    g.k = whole.k - cut;
    g.b = rest.data();
    bf16_product(g, serial, unit);
    expect_same(c, whole.run(serial, unit));
  });
}

// The mode of the caller has no effect and remains.
TEST(Bf16Product, ComputesInItsOwnMode) {
  SerialTiles serial;
  const Case one(20, 40, 64, Result::biased, Numbers::small);
  const std::vector<float> expected = one.reference();
  for_each_unit(Numbers::small, [&](Bf16Unit unit) {
    const ComputeScope scope;
    volatile float tiny = 0x1p-126f;
    expect_same(one.run(serial, unit), expected);
    EXPECT_EQ(tiny / 4, 0x1p-128f);
  });
}

// One number for all processors. The numbers are usual, so targets without FMA agree.
TEST(Bf16Product, EqualBitsOnEveryProcessor) {
  SerialTiles serial;
  const Case one(37, 61, 333, Result::biased, Numbers::usual);
  for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
    const std::vector<float> out = one.run(serial, unit);
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (float x : out) hash = (hash ^ std::bit_cast<uint32_t>(x)) * 1099511628211u;
    EXPECT_EQ(hash, 10407865314666757157u);
  });
}

struct GradCase {
  int64_t rows, k, n;
  std::vector<Bf16> x, dy;
  std::vector<float> acc;

  GradCase(int64_t rows_, int64_t k_, int64_t n_, Numbers numbers) : rows(rows_), k(k_), n(n_) {
    x = test::random_bf16s(numbers, rows * (k + 2), 1);
    dy = test::random_bf16s(numbers, rows * (n + 1), 2);
    acc = random_floats(numbers, k * (n + 4), 3);
  }

  // Rows `begin` .. `end` - 1 into `out`, in parts of `most` rows.
  void run(std::vector<float>& out, int64_t begin, int64_t end, bool add, Tiles& tiles,
           Bf16Unit unit, int64_t most = 1 << 20) const {
    std::vector<Bf16Rows> parts;
    int64_t chunks = 0;
    do {
      const int64_t part = std::min(most, end - begin);
      parts.push_back({part, x.data() + begin * (k + 2), dy.data() + begin * (n + 1)});
      chunks += bf16_chunks(part);
      begin += part;
    } while (begin < end);
    const auto bytes = static_cast<size_t>(bf16_weight_grad_bytes(chunks, k, n));
    std::vector<std::byte> memory(bytes + 64);
    void* scratch = memory.data();
    size_t space = memory.size();
    std::align(64, bytes, scratch, space);
    bf16_weight_grad({.parts = parts,
                      .k = k,
                      .n = n,
                      .x_row = k + 2,
                      .dy_row = n + 1,
                      .acc = out.data(),
                      .acc_row = n + 4,
                      .add = add,
                      .scratch = static_cast<std::byte*>(scratch)},
                     tiles, unit);
  }

  std::vector<float> reference(bool add) const {
    const FlushScope scope;
    std::vector<float> out = acc;
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float& sum = out[static_cast<size_t>(i * (n + 4) + j)];
        sum = test::reference_sum(
            rows, add ? sum : 0, [&](int64_t r) { return x[static_cast<size_t>(r * (k + 2) + i)]; },
            [&](int64_t r) { return dy[static_cast<size_t>(r * (n + 1) + j)]; });
      }
    return out;
  }
};

TEST(Bf16WeightGrad, HasTheBitsOfTheContract) {
  test::ThreadedTiles threads(2);
  const int64_t sizes[][3] = {{1, 1, 1},  {32, 32, 32},  {5, 70, 40},  {64, 65, 33}, {300, 9, 7},
                              {0, 5, 40}, {530, 33, 31}, {7, 4100, 3}, {7, 3, 4100}};
  for (const auto& [rows, k, n] : sizes)
    for (const bool add : {false, true})
      for (const Numbers numbers : {Numbers::usual, Numbers::small}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << k << 'x' << n << " add " << add);
        const GradCase one(rows, k, n, numbers);
        const std::vector<float> expected = one.reference(add);
        for_each_unit(numbers, [&](Bf16Unit unit) {
          std::vector<float> out = one.acc;
          one.run(out, 0, one.rows, add, threads, unit);
          expect_same(out, expected);
        });
      }
}

// Parts end within a chunk, and where a batch of packed rows does.
TEST(Bf16WeightGrad, PartsAreAddedInOrder) {
  SerialTiles serial;
  for (const int64_t most : {1, 20, 64, 100, 300}) {
    const GradCase one(most < 20 ? 8 : 610, 50, 70, Numbers::usual);
    for (const bool add : {false, true})
      for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
        std::vector<float> one_by_one = one.acc, at_once = one.acc;
        for (int64_t begin = 0; begin < one.rows; begin += most)
          one.run(one_by_one, begin, std::min(one.rows, begin + most), add || begin > 0, serial,
                  unit);
        one.run(at_once, 0, one.rows, add, serial, unit, most);
        expect_same(at_once, one_by_one);
      });
  }
}

TEST(Bf16WeightGrad, RowsAreCutAtChunksInOrder) {
  SerialTiles serial;
  const GradCase one(224, 50, 70, Numbers::usual);
  for_each_unit(Numbers::usual, [&](Bf16Unit unit) {
    std::vector<float> whole = one.acc, parts = one.acc;
    one.run(whole, 0, 224, false, serial, unit);
    one.run(parts, 0, 32, false, serial, unit);
    one.run(parts, 32, 128, true, serial, unit);
    one.run(parts, 128, 224, true, serial, unit);
    expect_same(parts, whole);
  });
}

TEST(Bf16Product, InfoNamesTheUnit) {
  EXPECT_STREQ(bf16_info(), bf16_has_amx() ? "AMX" : "FMA");
  EXPECT_EQ(bf16_unit(), bf16_has_amx() ? Bf16Unit::amx : Bf16Unit::fma);
}

}  // namespace
}  // namespace weft::kernels
