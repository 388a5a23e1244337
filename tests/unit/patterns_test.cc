// Patterns of names, against a definition that tries every length of a '*'.
#include "base/patterns.h"

#include <gtest/gtest.h>

#include <random>

namespace weft {
namespace {

bool defined(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (size_t taken = 0; taken <= name.size(); ++taken)
      if (defined(pattern.substr(1), name.substr(taken))) return true;
    return false;
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         defined(pattern.substr(1), name.substr(1));
}

TEST(Patterns, MatchWholeNames) {
  EXPECT_TRUE(matches("h.1.*", "h.1.attn.weight"));
  EXPECT_FALSE(matches("h.1.*", "h.11.attn.weight"));
  EXPECT_FALSE(matches("h.1", "h.1.attn.weight"));
  EXPECT_TRUE(matches("h.?.*.bias", "h.3.ln_1.bias"));
  EXPECT_FALSE(matches("h[01]", "h0"));  // no other character is special
  EXPECT_TRUE(matches("h[01]", "h[01]"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
}

TEST(Patterns, OneOfAListMatches) {
  for (const char* name : {"a", "b.c"}) EXPECT_TRUE(matches_any("a,b.*", name)) << name;
  for (const char* name : {"", "a,b.c", "b"}) EXPECT_FALSE(matches_any("a,b.*", name)) << name;
  EXPECT_FALSE(matches_any("", ""));
}

TEST(Patterns, AListIsVisitedWithItsEmptyPatterns) {
  const auto items = [](std::string_view list) {
    std::string out;
    const Status status = each_pattern(list, [&out](std::string_view pattern) {
      out += "[" + std::string(pattern) + "]";
      return pattern == "end" ? Status(Code::invalid, "end") : Status();
    });
    return out + (status.ok() ? "" : " failed");
  };
  EXPECT_EQ(items(""), "");
  EXPECT_EQ(items("a"), "[a]");
  EXPECT_EQ(items("a,"), "[a][]");
  EXPECT_EQ(items(",a"), "[][a]");
  EXPECT_EQ(items("a,,b"), "[a][][b]");
  EXPECT_EQ(items("a,end,b"), "[a][end] failed");
}

TEST(Patterns, MatchWhatTheyAreDefinedToMatch) {
  std::mt19937 rng(3);
  const auto text = [&rng](std::string_view letters, size_t most) {
    std::string out;
    for (size_t n = rng() % (most + 1); out.size() < n;) out += letters[rng() % letters.size()];
    return out;
  };
  int matched = 0;
  for (int i = 0; i < 50000; ++i) {
    const std::string pattern = text("ab*?", 7), name = text("ab", 8);
    EXPECT_EQ(matches(pattern, name), defined(pattern, name)) << pattern << " " << name;
    matched += matches(pattern, name);
  }
  EXPECT_GT(matched, 5000);
}

// A simple matcher would try 30 over 15 places.
TEST(Patterns, ManyStarsTakeShortTime) {
  const std::string name(200, 'a');
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  EXPECT_TRUE(matches(pattern, name));
  EXPECT_FALSE(matches(pattern + "b", name));
}

}  // namespace
}  // namespace weft
