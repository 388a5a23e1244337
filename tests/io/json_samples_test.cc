// Samples of NAME.jsonl: what is learned of them, how they are drawn, and files that are refused.
#include "io/json_samples.h"

#include <gtest/gtest.h>

#include <set>

#include "files.h"
#include "io/tokenizer_json.h"

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::says;
using test::spill;

using Row = std::vector<int32_t>;

// Puts the token <s>, 1, before each text.
const Tokenizer& tokenizer() {
  static const Tokenizer opened = open_tokenizer(WEFT_TEST_DATA "/tokenizers/byte_fallback").take();
  return opened;
}

Row ids_of(const std::string& text, bool begins) {
  std::vector<uint32_t> ids;
  EXPECT_TRUE(fine(tokenizer().encode(text, {.add_begin = begins}, ids)));
  return {ids.begin(), ids.end()};
}

std::string line(const std::string& prompt, const std::string& completion) {
  return R"({"prompt": ")" + prompt + R"(", "completion": ")" + completion + "\"}\n";
}

Result<JsonSamples> open(const Directory& directory, const std::string& text,
                         JsonSampleOptions options) {
  spill(directory / "a.jsonl", text);
  options.vocabulary = options.vocabulary ? options.vocabulary : 520;
  options.length = options.length ? options.length : 40;
  return JsonSamples::open(directory / "a.jsonl", tokenizer(), options);
}

TEST(JsonSamples, OnlyCompletionsAreTargets) {
  const Directory directory;
  auto samples = open(directory, "\n" + line("Who is it?", " It is I."), {.end = 2});
  ASSERT_TRUE(fine(samples.status()));
  Row tokens(40, -7), targets(40, -7);
  ASSERT_TRUE(fine(samples.value().training(0, 0, 0, tokens.data(), targets.data())));
  Row sample = ids_of("Who is it?", true);
  const size_t answer = sample.size();
  EXPECT_EQ(sample.front(), 1);
  for (const int32_t id : ids_of(" It is I.", false)) sample.push_back(id);
  sample.push_back(2);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(tokens[i], i + 1 < sample.size() ? sample[i] : 0) << i;
    EXPECT_EQ(targets[i], i + 1 >= answer && i + 1 < sample.size() ? sample[i + 1] : -1) << i;
  }
}

TEST(JsonSamples, HeldOutOnesAreAtTheEndAndNeverDrawn) {
  const Directory directory;
  std::string text;
  for (int i = 0; i < 10; ++i) text += line("n", std::string(1, static_cast<char>('0' + i)));
  auto samples = open(directory, text, {.held_out = 0.3});
  ASSERT_TRUE(fine(samples.status()));
  ASSERT_EQ(samples.value().evaluations(), 3);
  const auto shown = [&](const Status& status, const Row& tokens, const Row& targets) {
    EXPECT_TRUE(fine(status));
    return std::pair(tokens, targets);
  };
  std::set<std::pair<Row, Row>> held, drawn;
  Row tokens(40), targets(40);
  for (int64_t i = 0; i < 3; ++i)
    held.insert(
        shown(samples.value().evaluation(i, tokens.data(), targets.data()), tokens, targets));
  for (uint64_t step = 0; step < 40; ++step)
    for (uint64_t j = 0; j < 4; ++j)
      drawn.insert(shown(samples.value().training(5, step, j, tokens.data(), targets.data()),
                         tokens, targets));
  EXPECT_EQ(held.size(), 3u);
  EXPECT_EQ(drawn.size(), 7u);
  for (const auto& sample : held) EXPECT_FALSE(drawn.contains(sample));
  EXPECT_FALSE(samples.value().evaluation(3, tokens.data(), targets.data()).ok());
}

TEST(JsonSamples, RefusesWhatIsNoSample) {
  const Directory directory;
  const auto refused = [&](const std::string& text, std::initializer_list<std::string_view> parts,
                           JsonSampleOptions options = {}) {
    const Status status = open(directory, text, options).status();
    EXPECT_TRUE(says(status, {"a.jsonl"}));
    EXPECT_TRUE(says(status, parts));
  };
  const std::string good = line("a", "b");
  refused(good + "{\n", {"line 2"});
  refused(good + "\n" + R"({"prompt": "a"})", {"line 3", "'completion'"});
  refused(R"({"prompt": 1, "completion": "b"})", {"line 1", "'prompt'"});
  refused(R"({"prompt": "a", "completion": "b", "weight": 2})", {"line 1", "'weight'"});
  refused(line("a", ""), {"line 1", "'completion' has no tokens"});
  refused(line("a", ""), {"line 1", "'completion' has no tokens"}, {.end = 2});
  refused(good, {"line 1", "the model has a vocabulary of 10"}, {.vocabulary = 10});
  refused(good + line("a", std::string(60, 'x')) + line("a", std::string(90, 'x')),
          {"sample 2 has", "expected at most 9 for sequences of 8", "2 of 3 samples are longer"},
          {.length = 8});
  refused("", {"has 0 samples"});
  refused(good, {"1 held out"}, {.held_out = 0.5});
  EXPECT_TRUE(
      says(JsonSamples::open(directory / "none.jsonl", tokenizer(), {.vocabulary = 9, .length = 1})
               .status(),
           {"none.jsonl"}));
}

}  // namespace
}  // namespace weft
