#include "io/manifest.h"

#include <gtest/gtest.h>

#include "files.h"

namespace weft {
namespace {

using test::fine;
using test::says;

Manifest example() {
  Manifest out;
  out.weft = "0.1.0";
  out.model = "line\nbreak \xE2\x82\xAC \"x\"";
  out.seed = ~uint64_t{0};
  out.step = uint64_t{1} << 60;
  out.optimizer = {{"rule", "sgd"}, {"rate", "1e-30"}};
  out.options = {{"", ""}, {"a.b", "c"}};
  out.shards = {{"model-00001.safetensors",
                 ShardPart::model,
                 1234,
                 {0x0123456789abcdef, 0xfedcba9876543210},
                 {"w", "b/\xC3\xA9"}},
                {"optimizer-00001.safetensors", ShardPart::optimizer, 0, {}, {"w"}}};
  return out;
}

// Of the printed example with `from` replaced, checksum aside.
Status changed(const std::string& from, const std::string& to) {
  std::string text = print_manifest(example()).value();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in\n" << text;
  return parse_manifest(text.replace(at, from.size(), to), Checksum::ignore).status();
}

TEST(Manifest, ComesBackAsItWas) {
  const auto text = print_manifest(example());
  ASSERT_TRUE(fine(text.status()));
  const auto read = parse_manifest(text.value());
  ASSERT_TRUE(fine(read.status()));
  EXPECT_EQ(read.value(), example());
  EXPECT_EQ(parse_manifest(print_manifest(Manifest()).value()).value(), Manifest());
}

TEST(Manifest, AnyChangeOfASignIsFound) {
  const std::string text = print_manifest(example()).value();
  for (size_t at = 0; at < text.size(); ++at) {
    for (const int bit : {0, 1, 4, 7}) {
      std::string other = text;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      const auto read = parse_manifest(other);
      // White space carries nothing.
      if (read.ok()) {
        EXPECT_EQ(read.value(), example()) << "bit " << bit << " of byte " << at;
      }
    }
  }
  for (size_t size = 0; size + 1 < text.size(); ++size)
    EXPECT_FALSE(parse_manifest(text.substr(0, size)).ok()) << size;
}

TEST(Manifest, RefusesWhatNoWriterWrites) {
  EXPECT_TRUE(says(changed("\"format\": 1", "\"format\": 2"), {"'format' is 2", "reads 1"}));
  EXPECT_TRUE(
      says(changed("\"format\": 1", "\"format\": 1, \"format\": 1"), {"duplicate key 'format'"}));
  EXPECT_TRUE(
      says(changed("\"format\": 1", "\"extra\": 1, \"format\": 1"), {"unknown key 'extra'"}));
  EXPECT_TRUE(says(changed("\"part\": \"model\"", "\"part\": \"model\", \"x\": 1"),
                   {"shard 1", "unknown key 'x'"}));
  EXPECT_TRUE(says(changed("\"part\": \"model\"", "\"part\": \"moddel\""),
                   {"shard 1", "'part'", "'moddel'"}));
  EXPECT_TRUE(says(changed("\"bytes\": 1234", "\"bytes\": -1"),
                   {"shard 1", "'bytes'", "a whole number from 0"}));
  EXPECT_TRUE(says(changed("\"bytes\": 1234", "\"bytes\": 1.5"), {"expected no fraction", "1.5"}));
  EXPECT_TRUE(
      says(changed("\"bytes\": 1234", "\"bytes\": 4000000000000000000000"),
           {"expected whole numbers up to 18446744073709551615, found '4000000000000000000000'"}));
  EXPECT_TRUE(says(changed("\"bytes\": 1234", "\"bytes\": -1"),
                   {"'bytes' expects a whole number from 0, found -1"}));
  EXPECT_TRUE(says(changed("\"bytes\": 1234", "\"bytes\": 18446744073709551616"),
                   {"18446744073709551616"}));
  EXPECT_TRUE(says(changed("0123456789abcdef", "0123456789abcdeF"),
                   {"shard 1", "'checksum'", "32 hexadecimal digits"}));
  EXPECT_TRUE(says(changed("\"weft\"", "\"wift\""), {"has no 'weft'"}));
  EXPECT_TRUE(says(changed("\"rate\": \"1e-30\"", "\"rate\": 1"),
                   {"'optimizer'", "'rate' expects a string"}));
  EXPECT_TRUE(
      says(changed("\"rate\": \"1e-30\"", "\"rate\": [[[[[]]]]]"), {"nested deeper than 5"}));
  EXPECT_TRUE(says(changed("optimizer-00001", "model-00001"),
                   {"file 'model-00001.safetensors' occurs twice"}));
  EXPECT_TRUE(says(changed("\"part\": \"optimizer\"", "\"part\": \"model\""),
                   {"model tensor 'w' occurs twice"}));
  EXPECT_TRUE(says(parse_manifest("").status(), {"is empty, expected a JSON object"}));
  EXPECT_TRUE(says(parse_manifest("[]").status(), {"begins with '[', expected a JSON object"}));
  EXPECT_TRUE(says(parse_manifest(std::string("{}\0{}", 5)).status(), {"NUL"}));
  EXPECT_TRUE(says(parse_manifest("{}{}").status(), {"not valid JSON"}));
  EXPECT_TRUE(
      says(parse_manifest("{\"a\":" + std::string(100000, '[')).status(), {"nested deeper"}));
}

TEST(Manifest, FilesStayInTheirDirectory) {
  for (const char* name : {"", ".", "..", "../x", "/etc/passwd", "a/b", "a\\\\b", ".hidden", "a b",
                           "\\u0000", "a\\nb", "\\u00e9"})
    EXPECT_TRUE(
        says(changed("model-00001.safetensors", name), {"shard 1", "'file' expects a plain name"}))
        << name;
  EXPECT_TRUE(fine(changed("model-00001.safetensors", "Model_1.x-y")));
}

}  // namespace
}  // namespace weft
