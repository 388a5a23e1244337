// attention at lengths that the op suite cannot afford: what it keeps and needs, and blocks of fewer rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/fpenv.h"
#include "ops/op.h"
#include "support/threaded_tiles.h"

namespace weft {
namespace {

Inferred infer(Shape in, int heads) {
  const Operand operand{{DType::f32, in}, true};
  Attrs attrs;
  attrs.heads = heads;
  attrs.flags = kCausal;
  auto inferred = find_op("attention")->infer(attrs, std::span(&operand, 1), {});
  EXPECT_TRUE(inferred.ok()) << inferred.status().text();
  return inferred.ok() ? inferred.take() : Inferred{};
}

TEST(Attention, KeepsOneNumberPerRowAndHead) {
  const Inferred gpt2 = infer({4, 1024, 3 * 768}, 12);
  EXPECT_EQ(gpt2.out, (Desc{DType::f32, {4, 1024, 768}}));
  ASSERT_EQ(gpt2.stash.size(), 1u);
  EXPECT_EQ(gpt2.stash[0], (Desc{DType::f32, {4 * 12, 1024}}));
}

TEST(Attention, ScratchDoesNotGrowWithSamplesNorWithTheSquareOfTheLength) {
  const size_t one = infer({4, 1024, 3 * 768}, 12).scratch;
  EXPECT_EQ(infer({64, 1024, 3 * 768}, 12).scratch, one);
  EXPECT_LE(one, size_t{9} << 20);
  EXPECT_LT(infer({4, 16384, 3 * 768}, 12).scratch, 5 * one);
}

// One head, causal, in double: out, and the gradients of q, k and v side by side as the op has them.
struct Reference {
  std::vector<double> out, din;

  Reference(const std::vector<float>& qkv, const std::vector<float>& dout, size_t rows, size_t size)
      : out(rows * size), din(rows * 3 * size) {
    const double factor = 1 / std::sqrt(static_cast<double>(size));
    const auto q = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + i]; };
    const auto k = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + size + i]; };
    const auto v = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + 2 * size + i]; };
    std::vector<double> p(rows), dp(rows);
    for (size_t t = 0; t < rows; ++t) {
      double sum = 0, mean = 0;
      for (size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += q(t, i) * k(s, i);
        sum += p[s] = std::exp(score * factor);
      }
      for (size_t s = 0; s <= t; ++s) {
        p[s] /= sum;
        dp[s] = 0;
        for (size_t i = 0; i < size; ++i) {
          out[t * size + i] += p[s] * v(s, i);
          dp[s] += dout[t * size + i] * v(s, i);
        }
        mean += p[s] * dp[s];
      }
      for (size_t s = 0; s <= t; ++s)
        for (size_t i = 0; i < size; ++i) {
          const double ds = p[s] * (dp[s] - mean) * factor;
          din[t * 3 * size + i] += ds * k(s, i);
          din[s * 3 * size + size + i] += ds * q(t, i);
          din[s * 3 * size + 2 * size + i] += p[s] * dout[t * size + i];
        }
    }
  }
};

std::vector<float> normals(size_t n, uint64_t purpose) {
  const Stream stream = Stream::data(3, purpose);
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(stream.normal(i)[0]);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-5 * std::max(1.0, std::fabs(expected[i]))) << i;
}

// Two samples of one head; above 2048 rows a block has fewer of them, and the last one is short.
TEST(Attention, AgreesWithThePlainWayOverLongRows) {
  constexpr size_t kRows = 2500, kSize = 5, kSamples = 2;
  Attrs attrs;
  attrs.heads = 1;
  attrs.flags = kCausal;
  const Inferred inferred = infer({kSamples, kRows, 3 * kSize}, 1);
  std::vector<float> in = normals(kSamples * kRows * 3 * kSize, 1), dout = normals(kSamples * kRows * kSize, 2);
  std::vector<float> out(dout.size(), NAN), lse(kSamples * kRows, NAN), din(in.size(), NAN);
  std::vector<std::byte> scratch(inferred.scratch, std::byte{0xff});
  test::ThreadedTiles tiles(2);

  const View in_view{in.data(), {DType::f32, {kSamples, kRows, 3 * kSize}}}, din_view{din.data(), in_view.desc};
  const View stash{lse.data(), inferred.stash[0]};
  Call call;
  call.attrs = &attrs;
  call.in = std::span(&in_view, 1);
  call.out = {out.data(), inferred.out};
  call.stash = std::span(&stash, 1);
  call.dout = {dout.data(), inferred.out};
  call.scratch = scratch.data();
  call.tiles = &tiles;
  ComputeScope scope;
  ASSERT_TRUE(find_op("attention")->forward(call).ok());
  call.din = std::span(&din_view, 1);
  ASSERT_TRUE(find_op("attention")->input_grad(call).ok());

  for (size_t sample = 0; sample < kSamples; ++sample) {
    const auto part = [&](const std::vector<float>& all) {
      const size_t n = all.size() / kSamples;
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(sample * n),
                                all.begin() + static_cast<std::ptrdiff_t>((sample + 1) * n));
    };
    const Reference reference(part(in), part(dout), kRows, kSize);
    expect_near(part(out), reference.out);
    expect_near(part(din), reference.din);
  }
}

}  // namespace
}  // namespace weft
