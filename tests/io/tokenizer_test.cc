// Tokenizers against the `tokenizers` library (tests/data/make_tokenizers.py), and what is refused.
#include "io/tokenizer_json.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "files.h"
#include "test_data.h"

namespace weft {
namespace {

using Ids = std::vector<uint32_t>;

std::string read(const std::string& name) {
  std::ifstream file(std::string(WEFT_TEST_DATA) + "/tokenizers/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string repeated(const char* text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

Ids encoded(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options = {}) {
  Ids ids;
  const Status status = tokenizer.encode(text, options, ids);
  EXPECT_TRUE(status.ok()) << status.text();
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  TokenStream stream(tokenizer, false);
  std::string text;
  for (uint32_t id : ids) {
    const std::string part = stream.add(id).take();
    EXPECT_TRUE(valid_utf8(part)) << part;
    text += part;
  }
  return text + stream.finish().take();
}

class Reference : public testing::TestWithParam<const char*> {};

TEST_P(Reference, IdsAndTextsAreThoseOfTheLibrary) {
  const std::string name = GetParam();
  auto opened = parse_tokenizer(read(name + "/tokenizer.json"));
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  const Tokenizer& tokenizer = opened.value();
  const auto expected = nlohmann::json::parse(read(name + "/expected.json"));
  ASSERT_GT(expected.size(), 50u);
  for (const auto& row : expected) {
    const std::string text = row["text"];
    const Ids ids = row["ids"].get<Ids>();
    EXPECT_EQ(encoded(tokenizer, text), ids) << text;
    EXPECT_EQ(encoded(tokenizer, text, {.add_begin = true, .add_end = true}),
              row["with_specials"].get<Ids>())
        << text;
    EXPECT_EQ(tokenizer.decode(ids, false).take(), row["decoded"].get<std::string>()) << text;
    EXPECT_EQ(tokenizer.decode(ids, true).take(), row["without_specials"].get<std::string>());
    EXPECT_EQ(streamed(tokenizer, ids), row["decoded"].get<std::string>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Reference,
                         testing::Values("bytes_of_gpt2", "byte_fallback", "pattern_of_gpt4",
                                         "words"),
                         [](const auto& of) { return std::string(of.param); });

Tokenizer bytes() { return parse_tokenizer(read("bytes_of_gpt2/tokenizer.json")).take(); }

TEST(Tokenizer, ASpecialTokenInATextCanBePlainText) {
  const Tokenizer tokenizer = bytes();
  const uint32_t end = *tokenizer.id("<|end|>");
  EXPECT_EQ(encoded(tokenizer, "<|end|>"), Ids{end});
  const Ids plain = encoded(tokenizer, "<|end|>", {.find_specials = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(tokenizer.decode(plain, true).take(), " <|end|>");
}

TEST(Tokenizer, AStreamHoldsBackAnIncompleteCharacter) {
  const Tokenizer tokenizer = bytes();
  const Ids ids = encoded(tokenizer, "\xf0\x9f\x91\xa9!");
  TokenStream stream(tokenizer, false);
  std::string text;
  for (size_t i = 0; i + 2 < ids.size(); ++i) text += stream.add(ids[i]).take();
  EXPECT_EQ(text, " ");
  EXPECT_EQ(stream.finish().take(), "\xef\xbf\xbd");
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefused) {
  Ids ids;
  const Status status = bytes().encode("ab\xff", {}, ids);
  EXPECT_EQ(status.text(), "the text is not UTF-8 at byte 2");
}

TEST(Tokenizer, ALongWordTakesTimeInProportionToItsLength) {
  const Tokenizer tokenizer = bytes();
  const std::string text(2000000, 'o');
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text), false).take(), " " + text);
}

// A token of one space takes the spaces after it, in which the next one is found.
TEST(Tokenizer, ManyTokensOfSpacesTakeTimeInProportionToTheirNumber) {
  auto json = nlohmann::json::parse(read("pattern_of_gpt4/tokenizer.json"));
  const uint32_t id = 403;
  json["added_tokens"].push_back({{"id", id},
                                  {"content", " "},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", true},
                                  {"normalized", false},
                                  {"special", false}});
  auto tokenizer = parse_tokenizer(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  const size_t count = 1000000;
  EXPECT_EQ(encoded(tokenizer.value(), std::string(count, ' ')), Ids(count, id));
}

// Combining marks in the wrong order, which a normal form sorts.
TEST(Tokenizer, ManyMarksTakeTimeInProportionToTheirNumber) {
  const Tokenizer tokenizer = parse_tokenizer(read("pattern_of_gpt4/tokenizer.json")).take();
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\xcc\x81\xcc\xa7";
  EXPECT_FALSE(encoded(tokenizer, text).empty());
}

// U+0D3B has a combining class since Unicode 10; U+11938 is composed since Unicode 13.
TEST(Tokenizer, NormalFormsAreThoseOfUnicode9) {
  const Tokenizer tokenizer = parse_tokenizer(read("pattern_of_gpt4/tokenizer.json")).take();
  for (const std::string text : {"a\u0d3b\u0334", "\U00011935\U00011930", "\U00011938"})
    EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text), false).take(), text);
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "a\u0301\u0334"), false).take(), "\u00e1\u0334");
}

// What comes from the first character of a text is known after replacements, too. The ids are those
// of the library.
TEST(Tokenizer, ReplacedTextsAreNormalizedFurther) {
  const auto ids = [](const char* pattern, const char* content, const char* next,
                      const std::string& text) {
    const std::string json = cat(
        R"({"version":"1.0","added_tokens":[],"normalizer":{"type":"Sequence","normalizers":[)"
        R"({"type":"Replace","pattern":{"Regex":")",
        pattern, R"("},"content":")", content, R"("},{"type":")", next,
        R"("}]},"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first",)"
        R"("split":true},"post_processor":null,"decoder":null,"model":{"type":"BPE","unk_token":)"
        R"(null,"vocab":{"a":0,"b":1,"\u2581":2,"\u00e9":3},"merges":[]}})");
    auto tokenizer = parse_tokenizer(json);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().text();
    return encoded(tokenizer.value(), text);
  };
  for (const char* next : {"NFC", "Lowercase"}) {
    EXPECT_EQ(ids(" ", "\u2581", next, " "), (Ids{2}));
    EXPECT_EQ(ids("a", "\u00e9\u00e9", next, "ab"), (Ids{2, 3, 3, 1}));
    EXPECT_EQ(ids("\\\\s+", "", next, " ab"), (Ids{0, 1}));
    EXPECT_EQ(ids("\\\\s+", "a", next, "  b"), (Ids{0, 1}));
    EXPECT_EQ(ids("b", "", next, "ab"), (Ids{2, 0}));
  }
}

// Each step is allowed by itself. `kind` is "normalizer", "pre_tokenizer" or "decoder".
std::string growth_error(const std::string& kind, const nlohmann::json& step, int steps) {
  auto json = nlohmann::json::parse(read("pattern_of_gpt4/tokenizer.json"));
  for (const char* other : {"normalizer", "pre_tokenizer", "decoder"}) json[other] = nullptr;
  nlohmann::json list = nlohmann::json::array();
  for (int i = 0; i < steps; ++i) list.push_back(step);
  const std::string key = kind == "pre_tokenizer" ? "pretokenizers" : kind + "s";
  json[kind] = {{"type", "Sequence"}, {key, list}};
  const Tokenizer tokenizer = parse_tokenizer(json.dump()).take();
  Ids ids;
  const Status status = tokenizer.encode("aaaaaaaa", {}, ids);
  return status.ok() ? tokenizer.decode(ids, false).status().text() : status.text();
}

TEST(Tokenizer, TheStepThatMakesTooMuchOfATextIsNamed) {
  const auto replace = [](const std::string& content) -> nlohmann::json {
    return {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", content}};
  };
  const auto byte_level = [](bool prefix) -> nlohmann::json {
    return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", false}};
  };
  const auto error = [](const std::string& where, size_t found) {
    return cat(where, ": makes at least ", found, " bytes of a text of 8",
               ", expected at most 64 bytes of each byte and 4096 more");
  };
  EXPECT_EQ(growth_error("normalizer", replace("aa"), 9), "");
  EXPECT_EQ(growth_error("normalizer", replace("aa"), 60), error("normalizer 9", 4610));
  EXPECT_EQ(growth_error("normalizer", replace(std::string(5000, 'a')), 1),
            error("normalizer 0", 5000));
  EXPECT_EQ(growth_error("decoder", replace("aa"), 60), error("decoder 9", 4610));
  // Letters of bytes have two bytes each.
  EXPECT_EQ(growth_error("pre_tokenizer", byte_level(true), 60).substr(0, 32),
            "pre_tokenizer 11: makes at least");
}

// A file with one member replaced; `path` is a JSON pointer.
std::string error_with(const std::string& path, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(read("pattern_of_gpt4/tokenizer.json"));
  json[nlohmann::json::json_pointer(path)] = value;
  const auto out = parse_tokenizer(json.dump());
  return out.ok() ? "" : out.status().text();
}

TEST(TokenizerFile, WhatIsNotKnownIsRefusedByName) {
  using nlohmann::json;
  const auto pattern = [](const char* text) { return json{{"Regex", text}}; };
  const std::string at = "/pre_tokenizer/pretokenizers/0/pattern";
  EXPECT_EQ(error_with("/new", 1), "unknown key 'new'");
  EXPECT_EQ(error_with("/model/type", "Unigram"),
            "model: 'type' is 'Unigram', this version of weft knows BPE");
  EXPECT_EQ(error_with("/model/dropout", 0.5), "model: 'dropout' is 0.5, expected null or 0");
  EXPECT_EQ(error_with("/model/unk_token", "?!"), "'unk_token' '?!' is not in the vocabulary");
  EXPECT_EQ(error_with("/model/merges/0", "ab"),
            "'merges': merge 0 expects two tokens, found 'ab'");
  EXPECT_EQ(error_with("/model/merges/0", json::array({"t"})),
            "'merges': merge 0 expects two tokens, found a list of 1");
  EXPECT_EQ(error_with("/model/merges/0", json::array({"t", json::array({"a", "b"})})),
            "'merges': merge 0 expects two tokens, found a list in a list");
  EXPECT_EQ(error_with("/model/vocab/a", -1), "'vocab': token 'a' expects an id from 0, found -1");
  EXPECT_EQ(error_with("/model/vocab/zz", 5), "tokens '%' and 'zz' have the same id 5");
  EXPECT_EQ(error_with("/normalizer/type", "Nmt").substr(0, 29), "normalizer: 'type' is 'Nmt', ");
  EXPECT_EQ(error_with("/normalizer/more", 1), "normalizer: unknown key 'more'");
  EXPECT_EQ(error_with(at, pattern("[a&&b]")),
            "pre_tokenizer 0: regular expression '[a&&b]': '&&' in a class is not known to weft");
  EXPECT_EQ(error_with(at, pattern("(a")),
            "pre_tokenizer 0: regular expression '(a': missing closing parenthesis");
  EXPECT_EQ(error_with("/added_tokens/0/id", 7),
            "added token '<|end|>' has id 7, expected 0, as in the vocabulary");
  EXPECT_EQ(error_with("/pre_tokenizer/pretokenizers/0/behavior", "x").substr(0, 36),
            "pre_tokenizer 0: 'behavior' is 'x', ");
}

// tests/data/make_tokenizer_configs.py wrote the ids.
TEST(TokenizerConfig, ChangesIdsAsAutoTokenizerDoes) {
  const auto rows = nlohmann::json::parse(read("configs.json"));
  EXPECT_GT(rows.size(), 20u);
  for (const auto& row : rows) {
    const test::Directory directory;
    test::spill(directory / "tokenizer.json",
                read(row["tokenizer"].get<std::string>() + "/tokenizer.json"));
    for (const auto& [name, content] : row["files"].items())
      test::spill(directory / name, content.dump());
    for (const std::string& path : {directory.path(), directory / "tokenizer.json"}) {
      auto tokenizer = open_tokenizer(path);
      ASSERT_TRUE(tokenizer.ok()) << row << tokenizer.status().text();
      EXPECT_EQ(encoded(tokenizer.value(), row["text"], {.add_begin = true, .add_end = true}),
                row["ids"].get<Ids>())
          << row;
    }
  }
}

TEST(TokenizerConfig, IsNotThatOfAFileWithAnotherName) {
  const test::Directory directory;
  test::spill(directory / "other.json", read("byte_fallback/tokenizer.json"));
  test::spill(directory / "tokenizer_config.json", R"({"tokenizer_class": "GPTNeoXTokenizer"})");
  const Tokenizer tokenizer = open_tokenizer(directory / "other.json").take();
  EXPECT_EQ(encoded(tokenizer, "", {.add_begin = true, .add_end = true}), (Ids{1, 2}));
}

TEST(TokenizerConfig, NamesTheTokenThatEndsAText) {
  const auto end_token = [](const std::string& config) {
    const test::Directory directory;
    test::spill(directory / "tokenizer.json", read("byte_fallback/tokenizer.json"));
    test::spill(directory / "tokenizer_config.json", config);
    return open_tokenizer(directory.path()).take().end_token();
  };
  EXPECT_EQ(end_token("{}"), std::nullopt);
  EXPECT_EQ(end_token(R"({"eos_token": "</s>"})"), 2u);
  EXPECT_EQ(end_token(R"({"eos_token": {"content": "</s>"}})"), 2u);
  EXPECT_EQ(end_token(R"({"tokenizer_class": "LlamaTokenizer"})"), 2u);
  EXPECT_EQ(end_token(R"({"tokenizer_class": "LlamaTokenizer", "eos_token": null})"), std::nullopt);
}

TEST(TokenizerConfig, WhatCannotBeAppliedIsRefused) {
  const auto error = [](const std::string& config) {
    const test::Directory directory;
    test::spill(directory / "tokenizer.json", read("byte_fallback/tokenizer.json"));
    test::spill(directory / "tokenizer_config.json", config);
    const std::string text = open_tokenizer(directory.path()).status().text(),
                      begin = directory / "tokenizer.json: tokenizer_config.json: ";
    return text.starts_with(begin) ? text.substr(begin.size()) : text;
  };
  EXPECT_EQ(error(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true})"), "");
  EXPECT_EQ(error(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"),
            "'add_prefix_space' is false, but tokenizer.json puts a space before a text");
  EXPECT_EQ(error(R"({"tokenizer_class": "LlamaTokenizer", "bos_token": null})"),
            "'add_bos_token' is true, but 'bos_token' is null or missing");
  EXPECT_EQ(error(R"({"split_special_tokens": true})"),
            "'split_special_tokens' is true, expected false");
  EXPECT_EQ(error(R"({"extra_special_tokens": {"z": "<z>", "a": "<a>"}})"),
            "'extra_special_tokens' adds '<z>' and another token by name, expected one");
  EXPECT_EQ(error(R"({"add_prefix_space": 1})"),
            "'add_prefix_space' is number, expected true or false");
  EXPECT_EQ(error(R"({"tokenizer_class": 1})"), "'tokenizer_class' is number, expected a string");
  EXPECT_EQ(error(R"({"pad_token": 1})"),
            "'pad_token' is number, expected a string, or an object with the string 'content'");
  EXPECT_EQ(error(R"({"added_tokens_decoder": {"x": "a"}})"),
            "'added_tokens_decoder' has the key 'x', expected an id");
  EXPECT_EQ(error(R"({"additional_special_tokens": "a"})"),
            "'additional_special_tokens' is string, expected a list of tokens");
}

TEST(TokenizerFile, TruncationAndPaddingHaveNoEffect) {
  const std::string text = "say hello, Hello hellos";
  auto json = nlohmann::json::parse(read("pattern_of_gpt4/tokenizer.json"));
  const Ids expected = encoded(parse_tokenizer(json.dump()).take(), text);
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 64}}},
                     {"direction", "Right"},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "<|end|>"}};
  auto tokenizer = parse_tokenizer(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  EXPECT_GT(expected.size(), 4u);
  EXPECT_EQ(encoded(tokenizer.value(), text), expected);
}

TEST(TokenizerFile, AnAddedTokenHasALimitedSize) {
  const std::string most(AddedToken::kMostBytes, 'x'), at = "/added_tokens/3/content";
  EXPECT_EQ(error_with(at, most), "");
  EXPECT_EQ(error_with(at, most + "x"),
            "added token '" + std::string(80, 'x') + "...': has 4097 bytes, expected at most 4096");
  auto json = nlohmann::json::parse(read("pattern_of_gpt4/tokenizer.json"));
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "h"}}}, {"content", most + "x"}};
  json["added_tokens"][1]["normalized"] = true;
  EXPECT_EQ(parse_tokenizer(json.dump()).status().text(),
            "added token 'hello', normalized: has 4101 bytes, expected at most 4096");
}

TEST(TokenizerFile, AnUnknownNameInAPatternIsQuotedOnce) {
  const auto error = [](const char* text) {
    return error_with("/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", text}});
  };
  EXPECT_EQ(error("\\p{L1}"),
            "pre_tokenizer 0: regular expression '\\p{L1}': '\\p{L1}' is not "
            "known to weft");
  EXPECT_EQ(error("[[:x:]]"),
            "pre_tokenizer 0: regular expression '[[:x:]]': '[:x:]' is not known to weft");
}

// The places of a word have 32 bits. The memory is not used.
TEST(Tokenizer, AWordThatIsTooLongIsRefused) {
  const size_t size = Bpe::kMostBytes + 1;
  void* const zeros =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  Ids ids;
  const Bpe model = Bpe::make({}, {}).take();
  EXPECT_EQ(model.encode({static_cast<const char*>(zeros), size}, ids).text(),
            "the text has a word of 4294967295 bytes, expected at most 4294967294");
  ::munmap(zeros, size);
}

// Words are the matches of the pattern; two letters a of one word are a token.
Tokenizer split_by(const std::string& pattern) {
  const nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", pattern}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"aa", 2}, {"\u00e9", 3}}},
        {"merges", nlohmann::json::array({nlohmann::json::array({"a", "a"})})}}}};
  auto tokenizer = parse_tokenizer(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  return tokenizer.take();
}

TEST(TokenizerFile, AnExpensivePatternEndsWithAnError) {
  // Steps at one place; steps at each place; letters that each place passes in few steps.
  EXPECT_TRUE(test::says(Regex::make("[ab]{1001}").status(),
                         {"repeats 1001 times, expected at most 1000"}));
  EXPECT_TRUE(test::says(Regex::make("a{2,99999}").status(), {"repeats 99999 times"}));
  EXPECT_TRUE(test::fine(Regex::make("a{2,1000}").status()));
  const std::pair<std::string, size_t> hostile[] = {
      {"(?:a|aa)+[^ac]", 5000}, {"a*a*a*b|a", 3000}, {"a*b|a", 100000}};
  for (const auto& [pattern, count] : hostile) {
    Ids ids;
    const std::string text(count, 'a'), error = split_by(pattern).encode(text, {}, ids).text();
    EXPECT_TRUE(error.starts_with(
        cat("regular expression '", pattern, "': the search takes too many steps at byte ")))
        << error;
    EXPECT_TRUE(error.ends_with(
        cat(" of a text of ", count, ", expected at most 30000000 and 1000 for each byte")))
        << error;
  }
}

// A search begins with a part of the text and with few steps.
TEST(Tokenizer, MatchesOfAnyLengthAreFound) {
  for (const char* pattern : {"a+", "(?:a|c)+", "a+(?=b)", "a+(?!a)", "\\ba+|a+", "a*[b-c]*?(?=b)"})
    for (size_t before = 0; before < 3; ++before)
      for (const size_t count : {2, 64, 250, 252, 254, 256, 258, 510, 512, 5000, 100000}) {
        Ids expected(before, 3);
        expected.insert(expected.end(), count / 2, 2);
        expected.push_back(1);
        const std::string text = repeated("\u00e9", before) + std::string(count, 'a') + "b";
        EXPECT_TRUE(encoded(split_by(pattern), text) == expected)
            << pattern << " " << before << " " << count;
      }
}

}  // namespace
}  // namespace weft
