// attention at lengths that the op suite cannot afford: what it keeps and needs, and blocks of
// fewer rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
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

TEST(Attention, KeepsTwoNumbersPerRowAndHead) {
  const Inferred gpt2 = infer({4, 1024, 3 * 768}, 12);
  EXPECT_EQ(gpt2.out, (Desc{DType::f32, {4, 1024, 768}}));
  EXPECT_EQ(gpt2.stash, std::vector<Desc>(2, Desc{DType::f32, {4 * 12, 1024}}));
}

TEST(Attention, ScratchDoesNotGrowWithSamplesNorWithTheSquareOfTheLength) {
  const size_t one = infer({4, 1024, 3 * 768}, 12).scratch;
  EXPECT_EQ(infer({64, 1024, 3 * 768}, 12).scratch, one);
  EXPECT_LE(one, size_t{17} << 20);
  EXPECT_LE(infer({4, 16384, 3 * 768}, 12).scratch, 16 * one);
}

// One head, causal, in double: out, and the gradients of q, k and v side by side as the op has
// them. `size_of_din`: the sums of the magnitudes of what makes up each gradient.
struct Reference {
  std::vector<double> out, din, size_of_din;

  Reference(const std::vector<float>& qkv, const std::vector<float>& dout, size_t rows, size_t size)
      : out(rows * size), din(rows * 3 * size), size_of_din(din.size()) {
    const auto add = [&](size_t t, size_t which, size_t i, double term) {
      din[t * 3 * size + which * size + i] += term;
      size_of_din[t * 3 * size + which * size + i] += std::fabs(term);
    };
    const double factor = 1 / std::sqrt(static_cast<double>(size));
    const auto q = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + i]; };
    const auto k = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + size + i]; };
    const auto v = [&](size_t t, size_t i) -> double { return qkv[t * 3 * size + 2 * size + i]; };
    std::vector<double> p(rows), dp(rows);
    for (size_t t = 0; t < rows; ++t) {
      double sum = 0, mean = 0;
      for (size_t s = 0; s <= t; ++s) {
        p[s] = 0;
        for (size_t i = 0; i < size; ++i) p[s] += q(t, i) * k(s, i);
      }
      const double top =
          *std::max_element(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(t + 1));
      for (size_t s = 0; s <= t; ++s) sum += p[s] = std::exp((p[s] - top) * factor);
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
          add(t, 0, i, ds * k(s, i));
          add(s, 1, i, ds * q(t, i));
          add(s, 2, i, p[s] * dout[t * size + i]);
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
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 2e-5 * std::max(1.0, std::fabs(expected[i]))) << i;
}

// Computes forward, and if that succeeds I, with two threads. All inputs are batched. `din`: null
// data for an input without a gradient. The status is that of forward.
Status compute(const Attrs& attrs, const std::vector<View>& in, const std::vector<View>& din,
               std::vector<float>& out, const std::vector<float>& dout) {
  const Op& op = *find_op("attention");
  std::vector<Operand> operands;
  for (const View& view : in) operands.push_back({view.desc, true});
  const Inferred inferred = op.infer(attrs, operands, {}).take();
  std::vector<std::vector<float>> kept;
  std::vector<View> stash;
  for (const Desc& desc : inferred.stash) {
    kept.emplace_back(static_cast<size_t>(desc.shape.elements()), NAN);
    stash.push_back({kept.back().data(), desc});
  }
  std::vector<std::byte> scratch(inferred.scratch, std::byte{0xff});
  test::ThreadedTiles tiles(2);
  Call call;
  call.attrs = &attrs;
  call.in = in;
  call.out = {out.data(), inferred.out};
  call.stash = stash;
  call.dout = {const_cast<float*>(dout.data()), inferred.out};
  call.scratch = scratch.data();
  call.tiles = &tiles;
  ComputeScope scope;
  const Status status = op.forward(call);
  call.din = din;
  EXPECT_TRUE(!status.ok() || op.input_grad(call).ok());
  return status;
}

View view_of(const std::vector<float>& data, const Shape& shape) {
  return {const_cast<float*>(data.data()), {DType::f32, shape}};
}
View view_of(const std::vector<int32_t>& data, const Shape& shape) {
  return {const_cast<int32_t*>(data.data()), {DType::i32, shape}};
}

// Causal attention of one head over packed samples.
struct Computed {
  std::vector<float> out, din;
  Status status;  // of forward

  Computed(int64_t samples, int64_t rows, int64_t size, const std::vector<float>& in,
           const std::vector<float>& dout, const std::vector<int32_t>& positions = {},
           int64_t window = 0)
      : out(dout.size(), NAN), din(in.size(), NAN) {
    Attrs attrs;
    attrs.heads = 1;
    attrs.flags = kCausal;
    if (window > 0) attrs.dims = {window};
    const Shape shape{samples, rows, 3 * size};
    std::vector<View> ins{view_of(in, shape)}, dins{view_of(din, shape)};
    if (!positions.empty()) {
      ins.push_back(view_of(positions, {samples, rows}));
      dins.push_back({nullptr, ins[1].desc});
    }
    status = compute(attrs, ins, dins, out, dout);
  }
};

// Two samples of one head; above 2048 rows a block has fewer of them, and the last one is short.
TEST(Attention, AgreesWithThePlainWayOverLongRows) {
  constexpr size_t kRows = 2500, kSize = 5, kSamples = 2;
  const std::vector<float> in = normals(kSamples * kRows * 3 * kSize, 1),
                           dout = normals(kSamples * kRows * kSize, 2);
  const Computed computed(kSamples, kRows, kSize, in, dout);
  for (size_t sample = 0; sample < kSamples; ++sample) {
    const auto part = [&](const std::vector<float>& all) {
      const size_t n = all.size() / kSamples;
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(sample * n),
                                all.begin() + static_cast<std::ptrdiff_t>((sample + 1) * n));
    };
    const Reference reference(part(in), part(dout), kRows, kSize);
    expect_near(part(computed.out), reference.out);
    expect_near(part(computed.din), reference.din);
  }
}

// Lengths and sizes that fill the tiles of the kernels, and that do not.
TEST(Attention, AgreesWithThePlainWayAtAnyTile) {
  for (const size_t rows : {1, 16, 63, 64, 65, 130, 200})
    for (const size_t size : {1, 16, 33, 64, 80, 128}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << size);
      const std::vector<float> in = normals(rows * 3 * size, 1), dout = normals(rows * size, 2);
      const Computed computed(1, static_cast<int64_t>(rows), static_cast<int64_t>(size), in, dout);
      const Reference reference(in, dout, rows, size);
      expect_near(computed.out, reference.out);
      expect_near(computed.din, reference.din);
    }
}

// The rows from `first` on of a tensor with so many columns.
std::vector<float> rows_of(const std::vector<float>& all, size_t first, size_t count,
                           size_t columns) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * columns);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * columns)};
}

// Sequences that begin where a tile of columns begins.
TEST(Attention, APackedSequenceHasTheBitsThatItHasAlone) {
  constexpr size_t kSize = 20;
  const std::vector<size_t> lengths = {20, 44, 128, 100};
  std::vector<int32_t> positions;
  for (const size_t length : lengths)
    for (size_t i = 0; i < length; ++i) positions.push_back(static_cast<int32_t>(i));
  const size_t rows = positions.size();
  const std::vector<float> in = normals(rows * 3 * kSize, 1), dout = normals(rows * kSize, 2);
  const Computed packed(1, static_cast<int64_t>(rows), kSize, in, dout, positions);
  size_t first = 0;
  for (const size_t length : lengths) {
    SCOPED_TRACE(testing::Message() << length << " rows from " << first);
    const size_t begin = std::exchange(first, first + length);
    if (begin % 64 != 0) continue;
    const Computed alone(1, static_cast<int64_t>(length), kSize,
                         rows_of(in, begin, length, 3 * kSize),
                         rows_of(dout, begin, length, kSize));
    EXPECT_EQ(rows_of(packed.out, begin, length, kSize), alone.out);
    EXPECT_EQ(rows_of(packed.din, begin, length, 3 * kSize), alone.din);
  }
}

TEST(Attention, AWindowOfAllRowsHasTheBitsOfNone) {
  constexpr int64_t kRows = 130, kSize = 20;
  const std::vector<float> in = normals(kRows * 3 * kSize, 1), dout = normals(kRows * kSize, 2);
  const Computed none(1, kRows, kSize, in, dout);
  for (const int64_t window : {kRows, kRows + 1, INT64_MAX}) {
    const Computed all(1, kRows, kSize, in, dout, {}, window);
    EXPECT_EQ(all.out, none.out);
    EXPECT_EQ(all.din, none.din);
  }
  const Computed less(1, kRows, kSize, in, dout, {}, kRows - 1);
  EXPECT_EQ(rows_of(less.out, 0, kRows - 1, kSize), rows_of(none.out, 0, kRows - 1, kSize));
  EXPECT_NE(less.out, none.out);
}

// Row `bad` of q, k, v or dout is not finite. `sees`: whether a row sees a column.
template <typename Sees>
void expect_no_bit_changes_elsewhere(const std::vector<int32_t>& positions, int64_t window,
                                     size_t rows, const Sees& sees) {
  constexpr size_t kSize = 20;
  const std::vector<float> in = normals(rows * 3 * kSize, 1), dout = normals(rows * kSize, 2);
  const auto computed = [&](const std::vector<float>& x, const std::vector<float>& dy) {
    return Computed(1, static_cast<int64_t>(rows), kSize, x, dy, positions, window);
  };
  const Computed good = computed(in, dout);
  for (const size_t bad : {0, 5, 23, 40, 70})
    for (const size_t which : {0, 1, 2, 3}) {  // q, k, v, dout
      SCOPED_TRACE(testing::Message() << "row " << bad << " of operand " << which);
      std::vector<float> x = in, dy = dout;
      (which < 3 ? x[(bad * 3 + which) * kSize + 3] : dy[bad * kSize + 3]) = INFINITY;
      const Computed got = computed(x, dy);
      const auto row_is_bad = [&](size_t row) {
        return which == 1 || which == 2 ? sees(row, bad) : row == bad;
      };
      for (size_t row = 0; row < rows; ++row) {
        bool column_is_bad = false;
        for (size_t r = 0; r < rows; ++r)
          column_is_bad = column_is_bad || (sees(r, row) && row_is_bad(r));
        const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, size_t at) {
          ASSERT_EQ(rows_of(a, at, 1, kSize), rows_of(b, at, 1, kSize)) << row;
        };
        if (which < 3 && !row_is_bad(row)) same(got.out, good.out, row);
        if (!row_is_bad(row)) same(got.din, good.din, row * 3);
        if (!column_is_bad) same(got.din, good.din, row * 3 + 1);
        if (!column_is_bad) same(got.din, good.din, row * 3 + 2);
      }
    }
}

TEST(Attention, WhatARowDoesNotSeeAffectsNoBitOfIt) {
  constexpr size_t kRows = 100, kWindow = 7, kLength = 25;
  expect_no_bit_changes_elsewhere({}, 0, kRows, [](size_t row, size_t c) { return c <= row; });
  expect_no_bit_changes_elsewhere(
      {}, kWindow, kRows, [](size_t row, size_t c) { return c <= row && row - c < kWindow; });
  std::vector<int32_t> positions;
  for (size_t row = 0; row < kRows; ++row) positions.push_back(static_cast<int32_t>(row % kLength));
  expect_no_bit_changes_elsewhere(positions, 0, kRows, [](size_t row, size_t c) {
    return c <= row && row / kLength == c / kLength;
  });
}

TEST(Attention, RefusesAPositionBeforeTheFirstRow) {
  const std::vector<float> in = normals(2 * 3 * 3 * 4, 1), dout = normals(2 * 3 * 4, 2);
  const auto fault = [&](std::vector<int32_t> positions) {
    return Computed(2, 3, 4, in, dout, positions).status.text();
  };
  EXPECT_EQ(fault({0, 1, 2, 0, 0, 1}), Status().text());
  EXPECT_EQ(fault({0, 1, 2, 0, 2, 1}), "position 2 at element 4 of i32[2,3], expected 0 to 1");
  EXPECT_EQ(fault({0, 1, 2, -1, 0, 1}), "position -1 at element 3 of i32[2,3], expected 0 to 0");
}

// Attention of queries over keys and values of other rows, of which a mask hides some.
struct Crossed {
  std::vector<float> out, dq, dk, dv;
  Status status;  // of forward

  Crossed(int64_t rows, int64_t keys, int64_t width, const std::vector<float>& q,
          const std::vector<float>& k, const std::vector<float>& v, const std::vector<float>& dout,
          const std::vector<int32_t>& mask)
      : out(q.size(), NAN), dq(q.size(), NAN), dk(k.size(), NAN), dv(v.size(), NAN) {
    Attrs attrs;
    attrs.heads = 2;
    const Shape of_q{1, rows, width}, of_k{1, keys, width};
    std::vector<View> ins{view_of(q, of_q), view_of(k, of_k), view_of(v, of_k)},
        dins{view_of(dq, of_q), view_of(dk, of_k), view_of(dv, of_k)};
    if (!mask.empty()) {
      ins.push_back(view_of(mask, {1, keys}));
      dins.push_back({nullptr, ins[3].desc});
    }
    status = compute(attrs, ins, dins, out, dout);
  }
};

// The probabilities of many keys, one more probable than the others, add to 1.
TEST(Attention, OfEqualValuesIsThatValue) {
  for (const int64_t keys : {4096, 32768}) {
    std::vector<float> k(static_cast<size_t>(2 * keys));
    k[0] = k[1] = std::log(10.0f);
    const std::vector<float> ones(k.size(), 1.0f), q(2, 1.0f);
    for (const float out : Crossed(1, keys, 2, q, k, ones, q, {}).out)
      EXPECT_NEAR(out, 1, 5e-6) << keys;
  }
}

TEST(Attention, MaskedKeysBehindTheOthersAffectNoBit) {
  constexpr int64_t kRows = 70, kWidth = 24;
  const std::vector<float> q = normals(kRows * kWidth, 1), dout = normals(kRows * kWidth, 2);
  for (const int64_t keys : {1, 5, 64, 100}) {
    SCOPED_TRACE(keys);
    const auto floats = static_cast<size_t>(keys * kWidth);
    const std::vector<float> k = normals(floats, 3), v = normals(floats, 4);
    const Crossed none(kRows, keys, kWidth, q, k, v, dout, {});
    std::vector<int32_t> mask(static_cast<size_t>(keys), -1);
    const Crossed all(kRows, keys, kWidth, q, k, v, dout, mask);
    mask.resize(static_cast<size_t>(keys + 90));
    const auto longer = [&](std::vector<float> x) {
      x.resize(static_cast<size_t>((keys + 90) * kWidth), NAN);
      return x;
    };
    const Crossed padded(kRows, keys + 90, kWidth, q, longer(k), longer(v), dout, mask);
    for (const Crossed* other : {&all, &padded}) {
      EXPECT_EQ(other->out, none.out);
      EXPECT_EQ(other->dq, none.dq);
      EXPECT_EQ(std::vector(other->dk.begin(), other->dk.begin() + keys * kWidth), none.dk);
      EXPECT_EQ(std::vector(other->dv.begin(), other->dv.begin() + keys * kWidth), none.dv);
    }
    for (size_t i = floats; i < padded.dk.size(); ++i) {
      ASSERT_EQ(padded.dk[i], 0);
      ASSERT_EQ(padded.dv[i], 0);
    }
  }
}

TEST(Attention, RefusesAMaskThatHidesAllKeysOfASample) {
  const std::vector<float> q = normals(2 * 4, 1), k = normals(3 * 4, 2);
  EXPECT_EQ(Crossed(2, 3, 4, q, k, k, q, {0, 0, 0}).status.text(),
            "mask i32[1,3]: all 3 elements of sample 0 are 0, expected one that is not");
}

// Scores of a row lie close to one another and far from 0, and are exact in a float, so that the
// softmax is all that can be wrong.
TEST(Attention, AgreesWithThePlainWayAtLargeScores) {
  constexpr size_t kRows = 70, kSize = 4;  // scores are halved
  for (const float base : {0.0f, 1e4f, 1e6f, -1e6f}) {
    SCOPED_TRACE(base);
    std::vector<float> in = normals(kRows * 3 * kSize, 1);
    const std::vector<float> dout = normals(kRows * kSize, 2);
    for (size_t t = 0; t < kRows; ++t) {
      const float q[kSize] = {2 * base, 2, static_cast<float>(t % 2), 0};
      const float k[kSize] = {1, static_cast<float>(t % 9) / 4, static_cast<float>(t % 5), 3};
      std::copy(q, q + kSize, in.data() + t * 3 * kSize);
      std::copy(k, k + kSize, in.data() + t * 3 * kSize + kSize);
    }
    const Computed computed(1, kRows, kSize, in, dout);
    const Reference reference(in, dout, kRows, kSize);
    for (size_t i = 0; i < reference.out.size(); ++i)
      ASSERT_NEAR(computed.out[i], reference.out[i], 1e-6) << i;
    for (size_t i = 0; i < reference.din.size(); ++i)
      ASSERT_NEAR(computed.din[i], reference.din[i], 1e-6 * std::max(1.0, reference.size_of_din[i]))
          << i;
  }
}

}  // namespace
}  // namespace weft
