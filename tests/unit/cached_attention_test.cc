// cached_attention against attention, bit for bit, however tokens are divided among calls; and
// tokens that it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/fpenv.h"
#include "kernels/gemm.h"
#include "ops/cache_copy.h"
#include "ops/op.h"
#include "support/threaded_tiles.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 3 * 40;  // of queries, keys and values together
constexpr int kHeads = 5;

std::vector<float> random(int64_t count, uint64_t purpose) {
  const Stream stream = Stream::data(3, purpose);
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(stream.normal(i)[0]);
  return out;
}

// Rows of memory that begin at a multiple of 64 bytes.
class Memory {
 public:
  explicit Memory(const Desc& desc) : desc_(desc), store_(desc.bytes() / 4 + 32) {}
  View view() {
    auto at = reinterpret_cast<uintptr_t>(store_.data());
    return {reinterpret_cast<void*>((at + 63) / 64 * 64), desc_};
  }

 private:
  Desc desc_;
  std::vector<float> store_;
};

// What attention makes of `rows` tokens.
std::vector<float> whole(std::vector<float>& qkv, int64_t rows, int64_t window, double cap) {
  Attrs attrs;
  attrs.cap = cap;
  attrs.heads = kHeads;
  attrs.dims = {window};
  attrs.flags = kCausal;
  const Operand in{{DType::f32, {1, rows, kWidth}}, true};
  const Op& op = *find_op("attention");
  const Inferred made = op.infer(attrs, std::span(&in, 1), {}).take();
  std::vector<float> out(static_cast<size_t>(made.out.elements()));
  std::vector<Memory> stash(made.stash.begin(), made.stash.end());
  std::vector<View> stash_views;
  for (Memory& memory : stash) stash_views.push_back(memory.view());
  Memory scratch({DType::i32, {static_cast<int64_t>(made.scratch / 4)}});
  const View operand{qkv.data(), in.desc};
  SerialTiles tiles;
  Call call;
  call.attrs = &attrs;
  call.in = std::span(&operand, 1);
  call.out = {out.data(), made.out};
  call.stash = stash_views;
  call.scratch = scratch.view().data;
  call.training = false;
  call.tiles = &tiles;
  const ComputeScope scope;
  EXPECT_TRUE(op.forward(call).ok());
  return out;
}

struct Token {
  const float* qkv;
  int32_t position, sequence;
};

// A node with its state.
class Cache {
 public:
  Cache(int64_t sequences, int64_t length, uint32_t flags = 0, int64_t window = INT32_MAX,
        double cap = 0, bool shares_keys = false)
      : shares_keys_(shares_keys) {
    attrs_.cap = cap;
    attrs_.heads = kHeads;
    attrs_.flags = flags;
    attrs_.dims = {sequences, length, window};
    const Inferred made = infer(1);
    for (const Desc& desc : made.state) state_.emplace_back(desc);
    for (Memory& memory : state_) views_.push_back(memory.view());
  }

  Status forward(const std::vector<Token>& tokens, Tiles& tiles, std::vector<float>& out) {
    const auto rows = static_cast<int64_t>(tokens.size());
    const std::vector<Operand> operands = operands_of(rows);
    std::vector<std::vector<float>> values(operands.size() - 2);
    std::vector<int32_t> positions, sequences;
    for (const Token& token : tokens) {
      const float* from = token.qkv;
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t width = operands[i].desc.shape.last();
        values[i].insert(values[i].end(), from, from + width);
        from += width;
      }
      positions.push_back(token.position);
      sequences.push_back(token.sequence);
    }
    const Inferred made = infer(rows);
    std::vector<View> in;
    for (std::vector<float>& tensor : values)
      in.push_back({tensor.data(), operands[in.size()].desc});
    in.push_back({positions.data(), {DType::i32, {rows}}});
    in.push_back({sequences.data(), {DType::i32, {rows}}});
    Memory scratch({DType::i32, {static_cast<int64_t>(made.scratch / 4)}});
    out.assign(static_cast<size_t>(made.out.elements()), -1);
    Call call;
    call.attrs = &attrs_;
    call.in = in;
    call.out = {out.data(), made.out};
    call.state = views_;
    call.scratch = scratch.view().data;
    call.tiles = &tiles;
    const ComputeScope scope;
    return op_.forward(call);
  }

  std::string refusal(const std::vector<Token>& tokens) {
    SerialTiles tiles;
    std::vector<float> out;
    const Status status = forward(tokens, tiles, out);
    return status.ok() ? "" : status.text();
  }

  Inferred infer(int64_t rows) const { return op_.infer(attrs_, operands_of(rows), {}).take(); }

 private:
  // Queries, keys and values together, or apart with one head of keys for all queries.
  std::vector<Operand> operands_of(int64_t rows) const {
    std::vector<Operand> out;
    const int64_t one = kWidth / 3 / kHeads;
    for (const int64_t width :
         shares_keys_ ? std::vector<int64_t>{kHeads * one, one, one} : std::vector<int64_t>{kWidth})
      out.push_back({{DType::f32, {rows, width}}, true});
    out.insert(out.end(), 2, {{DType::i32, {rows}}, true});
    return out;
  }

  const bool shares_keys_;
  const Op& op_ = *find_op("cached_attention");
  Attrs attrs_;
  std::vector<Memory> state_;
  std::vector<View> views_;
};

// The rows of two texts, in calls of `chunk` tokens, alternately.
std::vector<std::vector<float>> in_chunks(const std::vector<float>& first,
                                          const std::vector<float>& second, int64_t rows,
                                          int64_t chunk, Tiles& tiles, int64_t window, double cap) {
  Cache cache(3, rows + 5, 0, window, cap);
  std::vector<std::vector<float>> out(2);
  const std::vector<float>* texts[] = {&first, &second};
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    std::vector<Token> tokens;
    for (size_t t = 0; t < 2; ++t) {
      tokens.push_back({first.data(), 99, -1});
      for (int64_t i = begin; i < begin + count; ++i)
        tokens.push_back(
            {texts[t]->data() + i * kWidth, static_cast<int32_t>(i), static_cast<int32_t>(2 - t)});
    }
    std::vector<float> made;
    EXPECT_TRUE(cache.forward(tokens, tiles, made).ok());
    const int64_t width = kWidth / 3, each = (count + 1) * width;
    for (int64_t t = 0; t < 2; ++t) {
      const auto at = made.begin() + static_cast<std::ptrdiff_t>(t * each);
      EXPECT_TRUE(std::all_of(at, at + width, [](float x) { return x == 0; })) << "padding";
      out[static_cast<size_t>(t)].insert(out[static_cast<size_t>(t)].end(), at + width, at + each);
    }
  }
  return out;
}

TEST(CachedAttention, HasTheBitsOfAttentionForAnyChunksAndThreads) {
  constexpr int64_t kRows = 150;
  if (!gemm_is_fused()) GTEST_SKIP() << "the bits of BLIS depend on the shape";
  std::vector<float> first = random(kRows * kWidth, 1), second = random(kRows * kWidth, 2);
  SerialTiles serial;
  test::ThreadedTiles threads(4);
  const std::pair<int64_t, double> choices[] = {{1, 0},   {2, 0},   {40, 0},  {64, 0},
                                                {65, 0},  {101, 0}, {149, 0}, {150, 0},
                                                {150, 1}, {40, 1},  {1000, 0}};
  for (const auto& [window, cap] : choices) {
    const std::vector<float> expected[] = {whole(first, kRows, window, cap),
                                           whole(second, kRows, window, cap)};
    for (const int64_t chunk : {1, 3, 16, 64, 150})
      for (Tiles* tiles : {static_cast<Tiles*>(&serial), static_cast<Tiles*>(&threads)}) {
        const auto made = in_chunks(first, second, kRows, chunk, *tiles, window, cap);
        for (size_t text = 0; text < 2; ++text)
          EXPECT_TRUE(made[text] == expected[text])
              << "chunks of " << chunk << ", window " << window << ", cap " << cap;
      }
  }
}

TEST(CachedAttention, WhatATokenDoesNotSeeAffectsNoBitOfIt) {
  constexpr int64_t kRows = 90, kBad = 10;
  const std::vector<float> good = random(kRows * kWidth, 1), other = random(kRows * kWidth, 2);
  SerialTiles tiles;
  for (const int64_t column : {kWidth / 3, 2 * kWidth / 3})  // of a key, of a value
    for (const int64_t window : {4, 70, 1000})
      for (const int64_t chunk : {1, 3, 90}) {
        std::vector<float> bad = good;
        bad[static_cast<size_t>(kBad * kWidth + column)] = INFINITY;
        const auto expected = in_chunks(good, other, kRows, chunk, tiles, window, 0)[0],
                   made = in_chunks(bad, other, kRows, chunk, tiles, window, 0)[0];
        for (int64_t row = 0; row < kRows; ++row) {
          const auto at = static_cast<std::ptrdiff_t>(row * kWidth / 3);
          const auto same =
              std::equal(made.begin() + at, made.begin() + at + kWidth / 3, expected.begin() + at);
          EXPECT_EQ(same, row < kBad || row >= kBad + window)
              << "row " << row << ", window " << window << ", chunks of " << chunk;
        }
      }
}

TEST(CachedAttention, ScratchGrowsWithTheWindowAndNotWithTheLength) {
  EXPECT_EQ(Cache(1, 100'000, 0, 50).infer(20).scratch, Cache(1, 1000, 0, 50).infer(20).scratch);
  EXPECT_LT(Cache(1, 1000, 0, 50).infer(20).scratch, Cache(1, 1000, 0, 500).infer(20).scratch);
}

TEST(CachedAttention, BlocksOfALongTextAreComputedAtTheSameTime) {
  const std::vector<float> text = random(100 * kWidth, 1);
  std::vector<Token> tokens;
  for (int32_t i = 0; i < 100; ++i) tokens.push_back({text.data() + i * kWidth, i, 0});
  test::ThreadedTiles threads(2);
  std::vector<float> out;
  ASSERT_TRUE(Cache(1, 100).forward(tokens, threads, out).ok());
  EXPECT_GT(threads.most, kHeads);
}

TEST(CachedAttention, APlaceOfTheCacheTakesOtherTextsAndGoesBack) {
  std::vector<float> text = random(20 * kWidth, 1), other = random(20 * kWidth, 2);
  const auto tokens = [](const std::vector<float>& of, int32_t begin, int32_t end) {
    std::vector<Token> out;
    for (int32_t i = begin; i < end; ++i)
      out.push_back({of.data() + static_cast<std::ptrdiff_t>(i) * kWidth, i, 0});
    return out;
  };
  SerialTiles tiles;
  Cache fresh(1, 20), used(1, 20);
  std::vector<float> expected, made, ignored;
  ASSERT_TRUE(fresh.forward(tokens(text, 0, 12), tiles, expected).ok());
  ASSERT_TRUE(used.forward(tokens(other, 0, 20), tiles, ignored).ok());
  ASSERT_TRUE(used.forward(tokens(text, 0, 12), tiles, made).ok());
  EXPECT_TRUE(made == expected);
  ASSERT_TRUE(used.forward(tokens(text, 5, 12), tiles, made).ok());
  EXPECT_TRUE(std::equal(made.begin(), made.end(), expected.end() - 7 * kWidth / 3));
}

TEST(CachedAttention, Bf16HasHalfTheBytesAndAlmostTheValues) {
  std::vector<float> text = random(30 * kWidth, 1);
  std::vector<Token> tokens;
  for (int32_t i = 0; i < 30; ++i)
    tokens.push_back({text.data() + static_cast<std::ptrdiff_t>(i) * kWidth, i, 0});
  SerialTiles tiles;
  std::vector<float> exact, rounded;
  ASSERT_TRUE(Cache(1, 30).forward(tokens, tiles, exact).ok());
  ASSERT_TRUE(Cache(1, 30, kBf16Cache).forward(tokens, tiles, rounded).ok());
  EXPECT_FALSE(exact == rounded);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], rounded[i], 0.03);
}

// The rows of a text at positions `begin` to `end` - 1 of a sequence.
std::vector<Token> tokens_of(const std::vector<float>& text, int32_t begin, int32_t end,
                             int32_t sequence) {
  std::vector<Token> out;
  for (int32_t i = begin; i < end; ++i)
    out.push_back({text.data() + static_cast<std::ptrdiff_t>(i) * kWidth, i, sequence});
  return out;
}

constexpr int64_t kPlaces = 3;

// Copies positions 0 to `count` - 1.
Token copy(const std::vector<float>& ignored, int32_t count, int32_t from, int32_t to) {
  return {ignored.data(), count - 1, number_of({from, to}, kPlaces)};
}

void append(std::vector<Token>& to, const std::vector<Token>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

struct CopyCase {
  uint32_t flags;
  int64_t window;
  bool shares_keys;
};

class Copies : public testing::TestWithParam<CopyCase> {
 protected:
  static constexpr int32_t kRows = 60;
  const std::vector<float> text_ = random(kRows * kWidth, 1), other_ = random(kRows * kWidth, 2);
  SerialTiles serial_;
  test::ThreadedTiles threads_{4};

  Cache cache() const {
    return Cache(kPlaces, kRows, GetParam().flags, GetParam().window, 0, GetParam().shares_keys);
  }
  void forward(Cache& cache, const std::vector<Token>& tokens, std::vector<float>& out) {
    const Status status = cache.forward(tokens, threads_, out);
    EXPECT_TRUE(status.ok()) << status.text();
  }
};

// Place 2 gets the first tokens of the text from place 0, before or in the call of the others.
TEST_P(Copies, HaveTheBitsOfTheirTokens) {
  std::vector<float> expected, made;
  Cache fresh = cache();
  ASSERT_TRUE(fresh.forward(tokens_of(text_, 0, kRows, 2), serial_, expected).ok());
  for (const int32_t count : {1, 15, 16, 17, 40, 59})
    for (const bool together : {false, true}) {
      Cache used = cache();
      forward(used, tokens_of(other_, 0, kRows, 2), made);
      std::vector<Token> tokens = tokens_of(text_, 0, 59, 0);
      if (!together) forward(used, tokens, made);
      if (!together) tokens.clear();
      tokens.push_back(copy(text_, count, 0, 2));
      const size_t before = tokens.size();
      append(tokens, tokens_of(text_, count, kRows, 2));
      forward(used, tokens, made);
      const auto rows = [](auto begin, size_t row) {
        return begin + static_cast<std::ptrdiff_t>(row) * kWidth / 3;
      };
      EXPECT_TRUE(std::all_of(rows(made.begin(), before - 1), rows(made.begin(), before),
                              [](float x) { return x == 0; }));
      EXPECT_TRUE(std::equal(rows(made.begin(), before), made.end(),
                             rows(expected.begin(), static_cast<size_t>(count))))
          << count << " positions, " << (together ? "one call" : "two calls");
    }
}

// The place that was copied gets another text in the same call, and the copy is copied.
TEST_P(Copies, KeepWhatTheyHadWhenTheyWereMade) {
  std::vector<float> expected, made;
  Cache fresh = cache(), used = cache();
  forward(fresh, tokens_of(text_, 0, kRows, 1), expected);
  forward(used, tokens_of(text_, 0, 50, 0), made);
  std::vector<Token> tokens = {copy(text_, 50, 0, 2), copy(text_, 45, 2, 1)};
  append(tokens, tokens_of(other_, 0, kRows, 0));
  append(tokens, tokens_of(text_, 45, kRows, 1));
  forward(used, tokens, made);
  EXPECT_TRUE(
      std::equal(made.end() - 15 * kWidth / 3, made.end(), expected.end() - 15 * kWidth / 3));
}

INSTANTIATE_TEST_SUITE_P(CachedAttention, Copies,
                         testing::Values(CopyCase{0, INT32_MAX, false},
                                         CopyCase{kBf16Cache, INT32_MAX, false},
                                         CopyCase{0, 20, false}, CopyCase{0, INT32_MAX, true},
                                         CopyCase{kBf16Cache, 20, true}));

TEST(CachedAttention, RefusesCopiesThatDoNotFit) {
  const std::vector<float> row = random(4 * kWidth, 1);
  const auto refusal = [&](const std::vector<Token>& tokens) {
    return Cache(kPlaces, 4).refusal(tokens);
  };
  EXPECT_EQ(refusal({{row.data(), 0, -11}}),
            "input 2: element 0 is -11, expected -10 to -2 for a copy, or -1 for padding");
  EXPECT_EQ(refusal({copy(row, 1, 1, 1)}),
            "input 2: element 0 is -6, a copy of sequence 1 to itself, expected two sequences");
  EXPECT_EQ(refusal({copy(row, 5, 0, 1)}), "input 1: element 0 is 4, expected 0 to 3");
  EXPECT_EQ(refusal({copy(row, 0, 0, 1)}), "input 1: element 0 is -1, expected 0 to 3");
  std::vector<Token> tokens = tokens_of(row, 0, 2, 0);
  tokens.push_back(copy(row, 3, 0, 1));
  EXPECT_EQ(refusal(tokens),
            "row 2 copies 3 positions of sequence 0, expected at most 2, which it has");
  tokens.back() = copy(row, 1, 1, 0);
  EXPECT_EQ(refusal(tokens),
            "row 2 copies 1 positions of sequence 1, expected at most 0, which it has");
  append(tokens, tokens_of(row, 0, 1, 1));
  std::swap(tokens[2], tokens[3]);
  EXPECT_EQ(refusal(tokens),
            "row 3 copies to sequence 0, expected no row of that sequence before it in the "
            "micro-batch");
}

TEST(CachedAttention, RefusesTokensThatDoNotFit) {
  const std::vector<float> row = random(kWidth, 1);
  const auto token = [&](int32_t position, int32_t sequence) {
    return Token{row.data(), position, sequence};
  };
  EXPECT_EQ(Cache(2, 4).refusal({token(0, 2)}),
            "input 2: element 0 is 2, expected 0 to 1, or -1 for padding");
  EXPECT_EQ(Cache(2, 4).refusal({token(0, 0), token(0, -6)}),
            "input 2: element 1 is -6, expected -5 to -2 for a copy, or -1 for padding");
  EXPECT_EQ(Cache(2, 2).refusal({token(0, 1), token(1, 1), token(2, 1)}),
            "input 1: element 2 is 2, expected 0 to 1");
  EXPECT_EQ(Cache(2, 4).refusal({token(0, 1), token(2, 1)}),
            "position 2 of sequence 1 follows 1 positions, expected at most 1");
  EXPECT_EQ(Cache(2, 4).refusal({token(0, 1), token(0, 1)}),
            "sequence 1 goes back to position 0 in row 1, expected ascending positions in a "
            "micro-batch");
}

}  // namespace
}  // namespace weft
