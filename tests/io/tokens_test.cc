#include "io/tokens.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/rng.h"
#include "files.h"

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::says;
using test::spill;

// `count` tokens of which the i-th is i * 7 % 251, so that neighbours differ and a place can be
// told from its ids.
int32_t pattern(int64_t i) { return static_cast<int32_t>(i * 7 % 251); }

std::string file_of(int64_t count, int width) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i)
    for (int k = 0; k < width; ++k) bytes += static_cast<char>(k == 0 ? pattern(i) : 0);
  return bytes;
}

TEST(Tokens, ReadsBytesAndWiderIds) {
  const Directory directory;
  for (const auto& [name, width] :
       {std::pair("text.txt", 1), std::pair("ids.u16", 2), std::pair("ids.u32", 4)}) {
    spill(directory / name, file_of(20000, width));
    auto file = TokenFile::open(directory / name, 251);
    ASSERT_TRUE(fine(file.status()));
    ASSERT_EQ(file.value().size(), 20000);
    // Longer than what is read at once.
    std::vector<int32_t> ids(18000, -1);
    ASSERT_TRUE(fine(file.value().window(1999, 18000, ids.data())));
    for (int64_t i = 0; i < 18000; ++i)
      ASSERT_EQ(ids[static_cast<size_t>(i)], pattern(1999 + i)) << name << " " << i;
    EXPECT_TRUE(fine(file.value().window(20000, 0, nullptr)));
  }
}

TEST(Tokens, WideIdsAreLittleEndian) {
  const Directory directory;
  spill(directory / "a.u16", "\x01\x02\xFF\xFF");
  spill(directory / "a.u32", std::string("\x01\x02\x03\x04\xFF\xFF\xFF\x7F\xFF\xFF\xFF\xFF", 12));
  int32_t ids[2] = {};
  ASSERT_TRUE(fine(TokenFile::open(directory / "a.u16", 65536).value().window(0, 2, ids)));
  EXPECT_EQ(ids[0], 0x0201);
  EXPECT_EQ(ids[1], 0xFFFF);
  EXPECT_TRUE(says(TokenFile::open(directory / "a.u32", int64_t{1} << 31).status(),
                   {"a.u32", "token 2 is 4294967295",
                    "expected 0 to 2147483647 for a vocabulary of 2147483648"}));
  spill(directory / "a.u32", std::string("\x01\x02\x03\x04\xFF\xFF\xFF\x7F", 8));
  auto wide = TokenFile::open(directory / "a.u32", int64_t{1} << 31);
  ASSERT_TRUE(fine(wide.value().window(0, 2, ids)));
  EXPECT_EQ(ids[0], 0x04030201);
  EXPECT_EQ(ids[1], 0x7FFFFFFF);
}

TEST(Tokens, AnIdOutOfRangeIsFoundOnOpeningWhereverItIs) {
  const Directory directory;
  std::string bytes(2 * 100000, '\1');
  for (const size_t at : {size_t{0}, size_t{65535}, size_t{65536}, size_t{99999}}) {
    std::string bad = bytes;
    bad[2 * at + 1] = '\4';
    spill(directory / "a.u16", bad);
    EXPECT_TRUE(says(
        TokenFile::open(directory / "a.u16", 1025).status(),
        {directory / "a.u16",
         "token " + std::to_string(at) + " is 1025, expected 0 to 1024 for a vocabulary of 1025"}));
    EXPECT_TRUE(fine(TokenFile::open(directory / "a.u16", 1026).status()));
  }
}

TEST(Tokens, RefusesIdsOutOfRangeThatCameLater) {
  const Directory directory;
  spill(directory / "a", "abccc");
  auto file = TokenFile::open(directory / "a", 'c' + 1);
  ASSERT_TRUE(fine(file.status()));
  spill(directory / "a", "abcde");
  int32_t ids[5];
  EXPECT_TRUE(fine(file.value().window(0, 3, ids)));
  const Status status = file.value().window(1, 4, ids);
  EXPECT_TRUE(says(status, {directory / "a", "token 3 is 100, expected 0 to 99"}));
  EXPECT_EQ(status.code(), Code::data);
}

TEST(Tokens, RefusesWhatCannotBe) {
  const Directory directory;
  spill(directory / "a.u16", "abc");
  spill(directory / "b.u32", "abcdef");
  spill(directory / "c", "abc");
  EXPECT_TRUE(says(TokenFile::open(directory / "a.u16", 9).status(),
                   {"a.u16", "3 bytes", "multiple of 2"}));
  EXPECT_TRUE(says(TokenFile::open(directory / "b.u32", 9).status(), {"6 bytes", "multiple of 4"}));
  EXPECT_TRUE(says(TokenFile::open(directory / "c", 0).status(), {"vocabulary is 0"}));
  EXPECT_TRUE(
      says(TokenFile::open(directory / "c", (int64_t{1} << 31) + 1).status(), {"vocabulary"}));
  EXPECT_EQ(TokenFile::open(directory / "d", 256).status().code(), Code::not_found);
  auto file = TokenFile::open(directory / "c", 256);
  int32_t ids[8];
  EXPECT_TRUE(says(file.value().window(1, 3, ids), {"tokens 1 to 1 + 3", "it has 3"}));
  EXPECT_FALSE(file.value().window(-1, 1, ids).ok());
  EXPECT_FALSE(file.value().window(0, -1, ids).ok());
  EXPECT_FALSE(file.value().window(INT64_MAX, INT64_MAX, ids).ok());
  std::filesystem::resize_file(directory / "c", 2);
  EXPECT_TRUE(says(file.value().window(0, 3, ids), {directory / "c", "ends at byte 2"}));
}

Result<Samples> samples(const std::string& path, int64_t length, double held_out) {
  return Samples::make(TokenFile::open(path, 256).take(), length, held_out);
}

TEST(Samples, TargetsFollowTokensByOne) {
  const Directory directory;
  spill(directory / "a", file_of(1000, 1));
  auto made = samples(directory / "a", 9, 0.25);
  ASSERT_TRUE(fine(made.status()));
  std::set<int64_t> seen;
  for (uint64_t step = 0; step < 500; ++step) {
    for (uint64_t sample = 0; sample < 8; ++sample) {
      int32_t tokens[9], targets[9];
      const int64_t at = made.value().training(42, step, static_cast<int64_t>(sample), 8);
      ASSERT_TRUE(fine(made.value().read(at, tokens, targets)));
      ASSERT_EQ(at, static_cast<int64_t>(Stream::data(42, step).below(sample, 750 - 9)));
      for (int64_t i = 0; i < 9; ++i) {
        ASSERT_EQ(tokens[i], pattern(at + i));
        ASSERT_EQ(targets[i], pattern(at + i + 1));
      }
      seen.insert(at);
    }
  }
  // The last target of the last position is token 749, the last that is not held out.
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LE(*seen.rbegin(), 740);
  EXPECT_GT(seen.size(), 700u) << "the places are spread badly";
}

TEST(Samples, EvaluationCoversWhatIsHeldOut) {
  const Directory directory;
  spill(directory / "a", file_of(1000, 1));
  auto made = samples(directory / "a", 9, 0.25);
  ASSERT_TRUE(fine(made.status()));
  EXPECT_EQ(made.value().trainings(), 84);    // 749 targets, 9 each
  ASSERT_EQ(made.value().evaluations(), 28);  // 249 targets, 9 each
  int64_t next = 750;
  for (int64_t window = 0; window < 27; ++window) {
    int32_t tokens[9], targets[9];
    ASSERT_TRUE(fine(made.value().read(made.value().evaluation(window), tokens, targets)));
    for (int64_t i = 0; i < 9; ++i, ++next) {
      ASSERT_EQ(tokens[i], pattern(next));
      ASSERT_EQ(targets[i], pattern(next + 1));
    }
  }
  int32_t tokens[9], targets[9], positions[9];
  ASSERT_TRUE(fine(made.value().read(made.value().evaluation(27), tokens, targets)));
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(tokens[i], i < 6 ? pattern(993 + i) : 0);
    EXPECT_EQ(targets[i], i < 6 ? pattern(994 + i) : -1);
  }
  made.value().positions(made.value().evaluation(0), positions);
  for (int32_t i = 0; i < 9; ++i) EXPECT_EQ(positions[i], i);
}

TEST(Samples, TheSmallestFilesThatWillDo) {
  const Directory directory;
  spill(directory / "10", file_of(10, 1));
  auto all = samples(directory / "10", 9, 0);
  ASSERT_TRUE(fine(all.status()));
  EXPECT_EQ(all.value().starts(), 1);
  EXPECT_EQ(all.value().trainings(), 1);
  EXPECT_EQ(all.value().evaluations(), 0);
  auto half = samples(directory / "10", 4, 0.5);
  ASSERT_TRUE(fine(half.status()));
  EXPECT_EQ(half.value().starts(), 1);
  EXPECT_EQ(half.value().evaluations(), 1);
  EXPECT_TRUE(says(samples(directory / "10", 10, 0).status(),
                   {"10 of its 10 tokens are for training", "take 11"}));
  EXPECT_TRUE(says(samples(directory / "10", 5, 0.5).status(),
                   {"5 of its 10 tokens are for training", "take 6"}));
  EXPECT_TRUE(says(samples(directory / "10", 4, 0.1).status(),
                   {"1 of its 10 tokens are for evaluation", "expected at least 2"}));
  EXPECT_TRUE(says(samples(directory / "10", 4, 1.5).status(), {"share is 1.5", "0 to 1"}));
  EXPECT_TRUE(says(samples(directory / "10", 4, -0.5).status(), {"share is -0.5"}));
  EXPECT_FALSE(samples(directory / "10", 4, std::numeric_limits<double>::quiet_NaN()).ok());
  EXPECT_FALSE(samples(directory / "10", 0, 0).ok());
  EXPECT_FALSE(samples(directory / "10", INT64_MAX, 0).ok());
}

}  // namespace
}  // namespace weft
