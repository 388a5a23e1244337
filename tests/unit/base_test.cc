// base: status, text, queue, hash, counter-based random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/fifo.h"
#include "base/flat_map.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/text.h"

namespace weft {
namespace {

TEST(Text, NumbersAreShortestAndWithoutLocale) {
  EXPECT_EQ(cat("a ", 1, ' ', -2L, " ", 0.1, " ", 1e300), "a 1 -2 0.1 1e+300");
  EXPECT_EQ(zero_padded(7, 3), "007");
  EXPECT_EQ(zero_padded(1234, 3), "1234");
}

TEST(Text, BytesAreExactAndReadable) {
  EXPECT_EQ(bytes_text(1000), "1000 bytes");
  EXPECT_EQ(bytes_text(822404224), "822404224 bytes (784.3 MiB)");
  EXPECT_EQ(bytes_text((int64_t{10} << 30) - 1), "10737418239 bytes (10239.9 MiB)");
  EXPECT_EQ(bytes_text(int64_t{11} << 30), "11811160064 bytes (11.0 GiB)");
  EXPECT_EQ(bytes_text(INT64_MAX), "9223372036854775807 bytes (8589934591.9 GiB)");
}

TEST(Text, WhatATerminalObeysIsMadePrintable) {
  EXPECT_EQ(printable("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xc2\xa0"),
            "\\xc2\\x9b2J \xc2\xa0");  // CSI in 8 bits, and a character behind it
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable(printable("\x1b")), "\\x1b");
  EXPECT_EQ(shown("\x1b"), "'\\x1b'");
  EXPECT_EQ(shown(std::string(79, 'a') + "\xc3\xa4"), "'" + std::string(79, 'a') + "...'");
  const Status peer(Code::peer, "rank 1 failed: \x1b[31m");
  EXPECT_EQ(peer.text(), "rank 1 failed: \\x1b[31m");
  EXPECT_EQ(peer.within("\x07").text(), "\\x07: rank 1 failed: \\x1b[31m");
}

TEST(Fifo, ReturnsItsItemsInOrderAlsoAfterItHasGrown) {
  Fifo<std::unique_ptr<int>> fifo(3);
  int pushed = 0, popped = 0;
  for (int round = 1; round < 20; ++round) {  // each has one more than the last one
    for (int i = 0; i < 2 * round; ++i) fifo.push(std::make_unique<int>(pushed++));
    for (int i = 0; i < 2 * round - 1; ++i) ASSERT_EQ(*fifo.pop(), popped++);
  }
  ASSERT_EQ(fifo.size(), 19u);
  fifo.remove([](const std::unique_ptr<int>& item) { return *item % 2 == 0; });
  for (size_t i = 1; i < fifo.size(); ++i) EXPECT_EQ(*fifo[i], *fifo[i - 1] + 2);
  EXPECT_EQ(*fifo.front() % 2, 1);
  fifo.clear();
  EXPECT_TRUE(fifo.empty());
}

TEST(FlatMap, IsSortedWhateverTheOrderOfInsertions) {
  FlatMap<int, int> map;
  for (const int key : {5, 1, 9, 3, 5}) map[key] += key;
  const std::vector<std::pair<int, int>> expected = {{1, 1}, {3, 3}, {5, 10}, {9, 9}};
  EXPECT_EQ(std::vector(map.begin(), map.end()), expected);
  EXPECT_EQ(map.at(5), 10);
  EXPECT_TRUE(map.contains(9));
  for (const int missing : {0, 4, 10}) EXPECT_EQ(map.find(missing), map.end());
}

TEST(Hash, HexIsThatOfTheReference) {
  // XXH3-128 of the empty input, from the specification of xxHash.
  EXPECT_EQ(hash_bytes("", 0).hex(), "99aa06d3014798d86001c324468d497f");
  Hasher a, b;
  a.text("ab").text("c");
  b.text("a").text("bc");
  EXPECT_NE(a.finish(), b.finish());
}

TEST(Hash, LongInputsAndPiecesHaveTheBitsOfTheReference) {
  std::vector<unsigned char> bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 256);
  // What XXH3_128bits() of xxHash 0.8.1 returns without vector instructions that are optional.
  const std::string expected = "4e53faeda1b5812bb25cea78018497ff";
  EXPECT_EQ(hash_bytes(bytes.data(), bytes.size()).hex(), expected);
  Hasher hasher;
  for (size_t at = 0, size = 1; at < bytes.size(); at += size, size = 2 * size + 1) {
    size = std::min(size, bytes.size() - at);
    hasher.bytes(bytes.data() + at, size);
  }
  EXPECT_EQ(hasher.finish().hex(), expected);
}

TEST(Rng, PhiloxKnownAnswers) {
  // Known-answer vectors of Random123 (philox4x32 10).
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffffull),
            (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, NormalHasItsMoments) {
  const Stream stream = Stream::initial(7, "w");
  double sum = 0, squares = 0, fourth = 0;
  const int n = 200000;
  for (int i = 0; i < n / 2; ++i)
    for (double z : stream.normal(static_cast<uint64_t>(i))) {
      sum += z;
      squares += z * z;
      fourth += z * z * z * z;
    }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 3, 0.1);
}

TEST(Rng, StreamsDifferByWhatTheyAreFor) {
  EXPECT_NE(Stream::initial(1, "a").draw(0), Stream::initial(1, "b").draw(0));
  EXPECT_NE(Stream::initial(1, "a").draw(0), Stream::initial(2, "a").draw(0));
  EXPECT_NE(Stream::dropout(1, 2, 3, 4).draw(0), Stream::dropout(1, 2, 4, 3).draw(0));
  EXPECT_NE(Stream::data(1, 2).draw(0), Stream::dropout(1, 2, 0, 0).draw(0));
  EXPECT_LT(Stream::data(1, 2).below(9, 10), 10u);
}

TEST(Rng, AShuffledOrderHasEachNumberOnce) {
  const auto order = [](uint64_t step, uint64_t count) {
    std::vector<uint64_t> out;
    for (uint64_t i = 0; i < count; ++i) out.push_back(Stream::data(3, step).shuffled(i, count));
    return out;
  };
  for (const uint64_t count : {1u, 2u, 3u, 4u, 5u, 7u, 16u, 17u, 100u, 1025u}) {
    std::vector<uint64_t> numbers = order(0, count), ascending(count);
    std::iota(ascending.begin(), ascending.end(), uint64_t{0});
    if (count > 10) {
      EXPECT_NE(numbers, ascending);
    }
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(numbers, ascending);
  }
  EXPECT_NE(order(0, 100), order(1, 100));
  // Each of the orders of three numbers comes up.
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t step = 0; step < 100; ++step) orders.insert(order(step, 3));
  EXPECT_EQ(orders.size(), 6u);
}

}  // namespace
}  // namespace weft
