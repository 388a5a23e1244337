// Samples of NAME.jsonl: what is learned of them, how they are drawn, and files that are refused.
#include "io/json_samples.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "files.h"
#include "io/tokenizer_json.h"
#include "test_data.h"

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

const Result<ChatSource>& chat() {
  static const Result<ChatSource> opened = open_chat(WEFT_TEST_DATA "/tokenizers/byte_fallback");
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
  return JsonSamples::open(directory / "a.jsonl", tokenizer(), chat(), options);
}

// The ids are those of PreTrainedTokenizerFast of Transformers for the prompt and for the prompt
// with the completion.
TEST(JsonSamples, OnlyCompletionsAreTargets) {
  const Directory directory;
  const auto check = [&](const std::string& prompt, const std::string& completion, size_t first,
                         const Row& sample) {
    auto samples = open(directory, "\n" + line(prompt, completion), {.end = 2});
    ASSERT_TRUE(fine(samples.status()));
    Row tokens(40, -7), targets(40, -7);
    const int64_t window = samples.value().training(0, 0, 0, 1);
    ASSERT_TRUE(fine(samples.value().read(window, tokens.data(), targets.data())));
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(tokens[i], i + 1 < sample.size() ? sample[i] : 0) << completion << i;
      EXPECT_EQ(targets[i], i + 1 >= first && i + 1 < sample.size() ? sample[i + 1] : -1)
          << completion << i;
    }
  };
  const Row sample = {1, 352, 313, 329, 393, 387, 330, 341, 290, 352, 388, 387, 299, 273, 2};
  check("Who is it?", " It is I.", 9, sample);
  check("Who is it?", " It is I.</s>", 9, sample);  // the end is not added again
  // A space at the end of the prompt has the same ids.
  check("Who is it? ", "It is I.", 10, sample);
  check("a", "b", 3, {1, 352, 322, 323, 2});  // the tokenizer puts a space before a text
  // The token "tion" of the text is not one of the prompt, whose last token is "t".
  check("The opt", "ion", 4, {1, 352, 417, 460, 421, 2});
}

TEST(JsonSamples, TheEndIsNotAddedAfterAnotherEnd) {
  const Directory directory;
  const auto last_of = [&](const std::string& sample) {
    auto samples = open(directory, sample, {.end = 2, .ends = {0, 2}});
    EXPECT_TRUE(fine(samples.status()));
    Row tokens(40), targets(40);
    EXPECT_TRUE(fine(samples.value().read(0, tokens.data(), targets.data())));
    const auto end =
        std::find_if(targets.rbegin(), targets.rend(), [](int32_t t) { return t != -1; });
    return Row(end, end + 2);
  };
  EXPECT_EQ(last_of(line("a", "b")), (Row{2, 323}));
  EXPECT_EQ(last_of(line("a", "b</s>")), (Row{2, 323}));
  EXPECT_EQ(last_of(line("a", "b<unk>")), (Row{0, 323}));
  EXPECT_EQ(last_of(R"({"text": "ab<unk>"})"), (Row{0, 323}));
}

TEST(JsonSamples, OfATextAllTokensAreTargets) {
  const Directory directory;
  const Row begin = ids_of("Who is it?", true);
  const auto check = [&](const std::string& text, int32_t end_token, Row sample) {
    auto samples =
        open(directory, R"({"text": ")" + text + "\"}", {.length = 20, .end = end_token});
    ASSERT_TRUE(fine(samples.status()));
    Row tokens(20), targets(20);
    ASSERT_TRUE(fine(samples.value().read(0, tokens.data(), targets.data())));
    Row expected(sample.begin() + 1, sample.end());
    sample.pop_back();
    sample.resize(20, 0);
    expected.resize(20, -1);
    EXPECT_EQ(tokens, sample) << text;
    EXPECT_EQ(targets, expected) << text;
  };
  Row ended = begin;
  ended.push_back(2);
  EXPECT_EQ(begin.front(), 1);
  check("Who is it?", -1, begin);
  check("Who is it?", 2, ended);
  check("Who is it?</s>", 2, ended);  // the end is not added again
}

TEST(JsonSamples, OtherKeysDescribeASample) {
  const Directory directory;
  const auto tokens_of = [&](const std::string& text) {
    auto samples = open(directory, text, {.length = 100});
    EXPECT_TRUE(fine(samples.status())) << text;
    Row tokens(100), targets(100);
    EXPECT_TRUE(fine(samples.value().read(0, tokens.data(), targets.data())));
    tokens.insert(tokens.end(), targets.begin(), targets.end());
    return tokens;
  };
  const auto has_no_effect = [&](std::string sample, const std::string& more) {
    const Row expected = tokens_of(sample);
    sample.insert(sample.rfind('}'), more);
    EXPECT_EQ(tokens_of(sample), expected) << sample;
  };
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})";
  has_no_effect(line("a", "b"), R"(, "id": 7, "score": 0.5, "tools": null, "text": null)");
  has_no_effect(R"({"text": "a b"})", R"(, "meta": {"a": [[[[{"b": [1]}]]]]}, "prompt": null)");
  has_no_effect(chat, R"(, "prompt": "Hi", "tools": [])");
  std::string parts = chat;
  parts.replace(
      parts.find("\"Ho\"}"), 5,
      R"([{"type": "text", "text": "H"}, {"type": "text", "text": "o", "image": null}], "name": null})");
  EXPECT_EQ(tokens_of(parts), tokens_of(chat));
  EXPECT_EQ(tokens_of("\xef\xbb\xbf" + chat), tokens_of(chat));
}

// The template of the tokenizer: <s>[user] ..</s>, and a line [assistant] ..</s>.
TEST(JsonSamples, OnlyAnswersOfAConversationAreTargets) {
  const Directory directory;
  const auto message = [](const char* role, const std::string& content) {
    return R"({"role": ")" + std::string(role) + R"(", "content": ")" + content + "\"}";
  };
  const std::string text = R"({"messages": [)" + message("user", "Hi") + ", " +
                           message("assistant", "Ho") + ", " + message("user", "So") + ", " +
                           message("assistant", "") + "]}";
  auto samples = open(directory, text, {.length = 200, .end = 5});
  ASSERT_TRUE(fine(samples.status()));
  Row tokens(200), targets(200);
  ASSERT_TRUE(fine(samples.value().read(0, tokens.data(), targets.data())));
  const Row all =
      ids_of("<s>[user] Hi</s>\n[assistant] Ho</s>\n[user] So</s>\n[assistant] </s>\n", false);
  EXPECT_EQ(all[0], 1);
  EXPECT_TRUE(std::equal(all.begin(), all.end() - 1, tokens.begin()));
  Row learned;
  for (const int32_t target : targets)
    if (target != -1) learned.push_back(target);
  const Row first = ids_of("<s>[user] Hi</s>\n[assistant] ", false),
            second = ids_of("<s>[user] Hi</s>\n[assistant] Ho</s>\n", false);
  Row expected(second.begin() + static_cast<std::ptrdiff_t>(first.size()), second.end());
  EXPECT_EQ(learned[0], expected[0]);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), learned.begin()));
  EXPECT_GT(learned.size(), expected.size());  // the end of the empty answer
  EXPECT_LT(learned.size(), 2 * expected.size());
}

TEST(JsonSamples, HeldOutOnesAreAtTheEndAndNeverDrawn) {
  const Directory directory;
  std::string text;
  for (int i = 0; i < 10; ++i) text += line("n", std::string(1, static_cast<char>('0' + i)));
  auto samples = open(directory, text, {.held_out = 0.3});
  ASSERT_TRUE(fine(samples.status()));
  ASSERT_EQ(samples.value().trainings(), 7);
  ASSERT_EQ(samples.value().evaluations(), 3);
  const auto at = [&](int64_t window) {
    Row tokens(40), targets(40);
    EXPECT_TRUE(fine(samples.value().read(window, tokens.data(), targets.data())));
    return std::pair(tokens, targets);
  };
  std::set<std::pair<Row, Row>> held, drawn;
  for (int64_t i = 0; i < 3; ++i) held.insert(at(samples.value().evaluation(i)));
  for (uint64_t step = 0; step < 7; ++step)
    for (int64_t j = 0; j < 4; ++j) drawn.insert(at(samples.value().training(5, step, j, 4)));
  EXPECT_EQ(held.size(), 3u);
  EXPECT_EQ(drawn.size(), 7u);
  for (const auto& sample : held) EXPECT_FALSE(drawn.contains(sample));
}

TEST(JsonSamples, EachIsDrawnOnceBeforeAnyIsDrawnAgain) {
  const Directory directory;
  std::string text;
  for (int i = 0; i < 6; ++i) text += line("n", std::string(1, static_cast<char>('0' + i)));
  auto samples = open(directory, text, {});
  ASSERT_TRUE(fine(samples.status()));
  std::vector<int64_t> drawn;
  for (uint64_t step = 0; step < 9; ++step)
    for (int64_t j = 0; j < 2; ++j) drawn.push_back(samples.value().training(5, step, j, 2));
  std::set<std::vector<int64_t>> orders;
  for (auto pass = drawn.begin(); pass != drawn.end(); pass += 6) {
    orders.insert({pass, pass + 6});
    EXPECT_EQ(std::set<int64_t>(pass, pass + 6).size(), 6u);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(JsonSamples, ShareWindowsIfTheyArePacked) {
  const Directory directory;
  std::string text;
  const auto length = [](uint64_t i) { return 1 + Stream::data(1, 2).below(i, 30); };
  for (uint64_t i = 0; i < 100; ++i) text += line("n", std::string(length(i), 'x'));
  auto alone = open(directory, text, {.end = 2});
  auto packed = open(directory, text, {.end = 2, .packed = true, .held_out = 0.2});
  ASSERT_TRUE(fine(alone.status()));
  ASSERT_TRUE(fine(packed.status()));
  std::multiset<std::pair<Row, Row>> wanted, found;
  for (int64_t window = 0; window < 100; ++window) {
    Row tokens(40), targets(40);
    ASSERT_TRUE(fine(alone.value().read(window, tokens.data(), targets.data())));
    wanted.emplace(std::move(tokens), std::move(targets));
  }
  int64_t windows = 0;
  const auto take = [&](int64_t window) {
    ++windows;
    Row tokens(40), targets(40), positions(40, -7);
    ASSERT_TRUE(fine(packed.value().read(window, tokens.data(), targets.data())));
    packed.value().positions(window, positions.data());
    for (size_t i = 0; i < 40;) {
      ASSERT_EQ(positions[i], 0);
      Row sample(40, 0), answer(40, -1);
      for (int32_t t = 0; i < 40 && positions[i] == t; ++t, ++i) {
        sample[static_cast<size_t>(t)] = tokens[i];
        answer[static_cast<size_t>(t)] = targets[i];
      }
      if (answer != Row(40, -1)) found.emplace(std::move(sample), std::move(answer));
    }
  };
  const int64_t held = packed.value().evaluations();
  for (int64_t i = 0; i < held; ++i) take(packed.value().evaluation(i));
  for (int64_t i = 0; i < packed.value().evaluation(0); ++i) take(i);
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(windows, packed.value().trainings() + held);
  EXPECT_LT(windows, 60);
}

// A short sample, a long answer, a long prompt, and another short sample.
std::string two_are_long() {
  return line("a", "b") + line("a", std::string(60, 'x')) + line(std::string(60, 'x'), "b") +
         line("a", "c");
}

TEST(JsonSamples, LongOnesAreCutWhereTheyHaveATarget) {
  const Directory directory;
  auto samples = open(directory, two_are_long(),
                      {.length = 8, .end = 2, .long_samples = LongSamples::cut, .held_out = 0.5});
  ASSERT_TRUE(fine(samples.status()));
  EXPECT_EQ(samples.value().cut(), 1);
  EXPECT_EQ(samples.value().skipped(), 1);
  EXPECT_EQ(samples.value().trainings(), 2);  // of the three that are used, one is held out
  EXPECT_EQ(samples.value().evaluations(), 1);
  const size_t prompt = ids_of("a", true).size();
  const Row whole = ids_of("a" + std::string(60, 'x'), true);
  ASSERT_GT(whole.size(), 9u);
  Row tokens(8), targets(8), answer(whole.begin() + 1, whole.begin() + 9);
  std::fill_n(answer.begin(), prompt - 1, -1);
  ASSERT_TRUE(fine(samples.value().read(1, tokens.data(), targets.data())));
  EXPECT_EQ(tokens, Row(whole.begin(), whole.begin() + 8));
  EXPECT_EQ(targets, answer);
}

TEST(JsonSamples, LongOnesAreSkipped) {
  const Directory directory;
  const JsonSampleOptions skip{.length = 8, .long_samples = LongSamples::skip};
  auto samples = open(directory, two_are_long(), skip);
  ASSERT_TRUE(fine(samples.status()));
  EXPECT_EQ(samples.value().cut(), 0);
  EXPECT_EQ(samples.value().skipped(), 2);
  auto without = open(directory, line("a", "b") + line("a", "c"), skip);
  ASSERT_TRUE(fine(without.status()));
  ASSERT_EQ(samples.value().trainings(), 2);
  for (int64_t window = 0; window < 2; ++window) {
    Row tokens(8), targets(8), other_tokens(8), other_targets(8);
    ASSERT_TRUE(fine(samples.value().read(window, tokens.data(), targets.data())));
    ASSERT_TRUE(fine(without.value().read(window, other_tokens.data(), other_targets.data())));
    EXPECT_EQ(tokens, other_tokens);
    EXPECT_EQ(targets, other_targets);
  }
  EXPECT_TRUE(says(open(directory, line("a", std::string(60, 'x')), skip).status(),
                   {"has 0 samples (and 1 with more than 9 tokens), of which 0"}));
  EXPECT_TRUE(says(open(directory, line(std::string(60, 'x'), "b"),
                        {.length = 8, .long_samples = LongSamples::cut})
                       .status(),
                   {"(and 1 without a target in the first 9 tokens)"}));
}

// A cut between two turns leaves nothing of the second one, whose answer it hides.
TEST(JsonSamples, ACutOneEndsWithItsLastTarget) {
  const Directory directory;
  const std::string two =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"},)"
      R"( {"role": "user", "content": "So"}, {"role": "assistant", "content": "No"}]})";
  const auto targets_of = [&](int64_t length) {
    auto samples = open(directory, two, {.length = length, .long_samples = LongSamples::cut});
    EXPECT_TRUE(fine(samples.status()));
    Row tokens(static_cast<size_t>(length)), targets(tokens.size());
    EXPECT_TRUE(fine(samples.value().read(0, tokens.data(), targets.data())));
    return std::pair(tokens, targets);
  };
  const Row whole = targets_of(200).second;
  const auto is_target = [](int32_t target) { return target != -1; };
  const auto begin = std::find_if(whole.begin(), whole.end(), is_target);
  const auto end = std::find(begin, whole.end(), -1);  // of the first answer
  const auto second = std::find_if(end, whole.end(), is_target);
  ASSERT_NE(second, whole.end());
  ASSERT_GT(second - end, 2);
  const auto [tokens, targets] = targets_of(second - whole.begin());
  EXPECT_EQ(targets, Row(whole.begin(), second));
  EXPECT_EQ(tokens[static_cast<size_t>(end - whole.begin()) - 1], *(end - 2));
  EXPECT_EQ(Row(tokens.begin() + (end - whole.begin()), tokens.end()),
            Row(static_cast<size_t>(second - end), 0));  // padding
}

TEST(JsonSamples, OneThatJustFitsIsNotLong) {
  const Directory directory;
  const auto tokens = static_cast<int64_t>(ids_of("ab", true).size());
  for (const auto what : {LongSamples::refuse, LongSamples::cut, LongSamples::skip}) {
    auto samples = open(directory, line("a", "b"), {.length = tokens - 1, .long_samples = what});
    ASSERT_TRUE(fine(samples.status()));
    EXPECT_EQ(samples.value().cut() + samples.value().skipped(), 0);
  }
  // The end is one too many.
  auto cut = open(directory, line("a", "b"),
                  {.length = tokens - 1, .end = 2, .long_samples = LongSamples::cut});
  ASSERT_TRUE(fine(cut.status()));
  EXPECT_EQ(cut.value().cut(), 1);
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
  const std::string_view expected =
      "expected 'prompt' and 'completion', 'text', or 'messages' with 'role' and 'content', found ";
  refused(R"({"conversations": []})", {"line 1", expected, "found 'conversations'"});
  refused(R"({"instruction": "a", "input": "", "output": "b"})",
          {expected, "found 'input', 'instruction', 'output'"});
  refused("{}", {expected, "found no keys"});
  refused(good + R"({"text": 3})", {"line 2", "'text' expects a string, found 3"});
  refused(good + R"({"text": ""})", {"line 2", "'text' is empty"}, {.end = 2});
  refused(R"({"text": "a", "completion": "b"})", {"line 1", "has more than one of 'completion'"});
  refused(R"({"text": "a", "prompt": "b"})", {"line 1", "or 'prompt' with 'text'"});
  refused(R"({"prompt": "a", "completion": "b", "weight": 2})",
          {"line 1", "'weight' is not supported"});
  refused(R"({"text": "a", "tools": [{"name": "f"}]})", {"line 1", "'tools' is not supported"});
  refused(R"({"text": "a", "system": "s"})", {"line 1", "'system' is not supported"});
  refused(line("a", ""), {"line 1", "'completion' has no tokens"});
  refused(line("a", ""), {"line 1", "'completion' has no tokens"}, {.end = 2});
  refused(good,
          {"line 1",
           "the model has a vocabulary of 10; expected the tokenizer of the model, or a model with "
           "at least 522 tokens"},
          {.vocabulary = 10});
  refused(good + line("a", std::string(60, 'x')) + line("a", std::string(90, 'x')),
          {"sample 2 has", "expected at most 9 for sequences of 8", "2 of 3 samples are longer"},
          {.length = 8});
  refused(R"({"messages": [{"role": "user", "content": "a"}]})", {"line 1", "has no answer"});
  refused(R"({"messages": [{"role": "user", "content": 3}]})",
          {"messages[0]: 'content' expects a string"});
  refused(R"({"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]})",
          {"messages[0]: 'tool_calls' is not supported"});
  refused(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [1]}]})",
          {"messages[0]: 'tool_calls' is not supported"});
  refused(R"({"messages": [{"role": "assistant", "content": "a", "train": false}]})",
          {"messages[0]: 'train' is not supported"});
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
          {"messages[0]: 'content' has a part of type 'image'"});
  refused(R"({"messages": [], "text": "a"})", {"line 1", "has more than one of"});
  refused(R"({"messages": "a"})", {"line 1", "'messages' expects an array, found string"});
  refused(R"({"messages": [{"role": "tool", "content": "a"}]})", {"line 1", "unknown role tool"});
  refused("", {"has 0 samples"});
  refused(good, {"1 held out"}, {.held_out = 0.5});
  EXPECT_TRUE(says(JsonSamples::open(directory / "none.jsonl", tokenizer(), chat(),
                                     {.vocabulary = 9, .length = 1})
                       .status(),
                   {"none.jsonl"}));
}

}  // namespace
}  // namespace weft
