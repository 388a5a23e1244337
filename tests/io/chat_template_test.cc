// Chat templates against Jinja2 (tests/data/make_chat_templates.py), what is refused, and limits.
#include "jinja/chat_template.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"
#include "test_data.h"

namespace weft {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(WEFT_TEST_DATA) + "/chat_templates/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const nlohmann::json& expected() {
  static const auto all = nlohmann::json::parse(read("expected.json"));
  return all;
}

Result<std::string> rendered(const std::string& source,
                             const std::vector<ChatMessage>& messages = {},
                             const ChatVariables& variables = {}, bool prompt = false) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed.value().render(messages, variables, prompt);
}

std::string fault(const std::string& source, const std::vector<ChatMessage>& messages = {}) {
  const auto out = rendered(source, messages);
  return out.ok() ? "no fault: " + out.value() : out.status().text();
}

// The text, or null for a failure.
nlohmann::json outcome(const Result<std::string>& text) {
  return text.ok() ? nlohmann::json(text.value()) : nlohmann::json();
}

TEST(ChatTemplate, ConversationsAreThoseOfJinja) {
  ASSERT_GT(expected()["chats"].size(), 80u);
  for (const auto& row : expected()["chats"]) {
    std::vector<ChatMessage> messages;
    for (const auto& message : row["messages"]) messages.push_back({message[0], message[1]});
    ChatVariables variables;
    variables.texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    if (row.contains("now")) variables.now = row["now"].get<int64_t>();
    if (row.contains("enable_thinking"))
      variables.flags["enable_thinking"] = row["enable_thinking"].get<bool>();
    const std::string source = read(row["template"]);
    const bool prompt = row["prompt"];
    const auto text = rendered(source, messages, variables, prompt);
    EXPECT_EQ(outcome(text), row["text"])
        << row.dump() << (text.ok() ? "" : "\n" + text.status().text());
    if (prompt || !text.ok() || source.find("endgeneration") == source.npos) continue;
    const RenderedChat chat =
        ChatTemplate::parse(source).take().render_answers(messages, variables).take();
    EXPECT_EQ(chat.text, row["text"].get<std::string>());
    EXPECT_EQ(nlohmann::json(chat.answers), row["answers"]) << row.dump();
  }
}

TEST(ChatTemplate, ConstructsAreThoseOfJinja) {
  ASSERT_GT(expected()["snippets"].size(), 120u);
  ChatVariables variables;
  variables.now = 1721984461;
  for (const auto& row : expected()["snippets"]) {
    const auto text = rendered(row["template"], {{"user", "u"}, {"tool", "t"}}, variables);
    EXPECT_EQ(outcome(text), row["text"])
        << row["template"] << (text.ok() ? "" : "\n" + text.status().text());
  }
}

TEST(ChatTemplate, AnErrorNamesTheLineAndTheConstruct) {
  EXPECT_EQ(fault("a\n{% include 'x' %}"),
            "chat template: line 2: the tag 'include' is not supported here");
  EXPECT_EQ(fault("\n\n{{ x | wordwrap(3) }}"),
            "chat template: line 3: the filter 'wordwrap' is not supported");
  EXPECT_EQ(fault("{{ x is filter }}"),
            "chat template: line 1: the test 'filter' is not supported");
  EXPECT_EQ(fault("{{ 2 ** 3 }}"), "chat template: line 1: the operator '**' is not supported");
  EXPECT_EQ(fault("{{ ''.__class__ }}"),
            "chat template: line 1: the attribute '__class__' is not allowed");
  EXPECT_EQ(fault("{% for a in b recursive %}{% endfor %}"),
            "chat template: line 1: a recursive loop is not supported");
  EXPECT_EQ(fault("{% generation %}{% generation %}"),
            "chat template: line 1: 'generation' inside of 'generation' is not supported");
  EXPECT_EQ(fault("{% if a %}\n{{ b }}"),
            "chat template: line 2: expected the tag 'endif', found the end of the template");
  EXPECT_EQ(fault("{{ 'a'.zfill(3) }}"),
            "chat template: line 1: the method 'zfill' of a text is not supported");
  EXPECT_EQ(fault("\n{{ lipsum() }}"), "chat template: line 2: the name 'lipsum' is not supported");
  EXPECT_EQ(fault("{{ 'a' + message.x }}"), "chat template: line 1: 'message' is undefined");
  EXPECT_EQ(fault("{{ strftime_now('%d') }}"),
            "chat template: line 1: the function 'strftime_now' is undefined");
  EXPECT_EQ(fault("{{ '\\x\x11"
                  "4' }}"),
            "chat template: line 1: the escape '\\x' expects 2 hexadecimal digits of a character");
  EXPECT_EQ(fault("\xff"), "chat template: is not UTF-8");
  EXPECT_EQ(fault("{{ 1 }}", {{"user", "\xff"}}), "message 0: the content is not UTF-8");
}

TEST(ChatTemplate, ARefusalOfTheMessagesIsAnInvalidArgument) {
  const auto out = rendered("{{ raise_exception('Roles must alternate') }}");
  EXPECT_EQ(out.status().code(), Code::invalid);
  EXPECT_EQ(out.status().text(),
            "chat template: the template refuses the messages: Roles must alternate");
}

std::string times(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Names or keys: BEFORE0AFTERBEFORE1AFTER...
std::string numbered(std::string_view before, std::string_view after, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) append(out, before, i, after);
  return out;
}

TEST(ChatTemplate, AHostileTemplateEndsWithAnError) {
  const std::string kSteps = "line 1: the template takes too many steps",
                    kBytes = "line 1: the template makes too much text",
                    kLevels = "nested more than ";
  const std::string kLong = "{% set x = (' ' * 9999) * 999 %}";
  const std::string kTwins =
      "{% set m = namespace(a=(1, 2), b=(1, 3)) %}{% for i in range(17) %}"
      "{% set m.b = m.a + m.b %}{% set m.a = m.a + m.a %}{% endfor %}{% set d = {m.a: 1} %}";
  const std::pair<std::string, std::string> hostile[] = {
      {"{% set l = range(9999) | list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
       kSteps},
      {"{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor "
       "%}",
       kBytes},
      {"{{ 'x' * 999999999999 }}", kBytes},
      {"{{ range(100001) | list }}", "the limit is 100000"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", kLevels},
      {"{{ " + times("(", 1000) + "1" + times(")", 1000) + " }}", kLevels},
      {"{{ " + times("[", 1000) + "1" + times("]", 1000) + " }}", kLevels},
      {"{{ " + times("not ", 1000) + "1 }}", kLevels},
      {"{{ " + times("-", 1000) + "1 }}", kLevels},
      {"{{ 1" + times(" + 1", 1000) + " }}", "an expression has more than 100 levels"},
      {"{{ 'a'" + times(" | trim", 1000) + " }}", "an expression has more than 100 levels"},
      {"{{ a" + times(".a", 1000) + " }}", "an expression has more than 100 levels"},
      {times("{% if 1 %}", 1000) + times("{% endif %}", 1000), kLevels},
      {"{% set n = namespace(a=[]) %}{% for i in range(99) %}{% set n.a = [n.a] %}{% endfor %}",
       "more than 64 levels"},
      {"{% set n = namespace(a=range(99999)|list) %}{% for i in range(60) %}{% set n.a = [n.a] %}"
       "{% endfor %}{{ n.a | tojson(indent=64) }}",
       kBytes},
      // Two tuples of 2^18 values that differ in the last one.
      {kTwins + "{% for i in range(99) %}{{ d[m.b] }}{% endfor %}", kBytes},
      {kTwins + "{% for i in range(99) %}{{ m.b in d }}{% endfor %}", kBytes},
      {kTwins + "{% for i in range(99) %}{{ d.get(m.b) }}{% endfor %}", kBytes},
      {"{% set p = 'x' * 9999 %}{% set q = p ~ 'y' %}{% set t = (" + times("p, ", 9999) +
           ") %}{% for i in range(99) %}{{ q.endswith(t) }}{% endfor %}",
       kBytes},
      {"{{ 'a' | map(" + times("'map', ", 100000) + "'list') | list }}", "'map' expects"},
      // Each iteration reads or makes much that is not printed.
      {kLong + "{% for i in range(99) %}{% set y = x | int %}{% endfor %}", kBytes},
      {kLong + "{% for i in range(99) %}{% set y = x | default(1) %}{% endfor %}", kBytes},
      {kLong + "{% for i in range(99) %}{% set y = {}[x] %}{% endfor %}", kBytes},
      {kLong + "{% for i in range(99) %}{% set y = loop[x] %}{% endfor %}", kBytes},
      {kLong + "{{ range(99) | map(attribute=x) | list }}", kBytes},
      {kLong + "{% for i in range(99) %}{% set y = ''.strip(chars=x) %}{% endfor %}", kBytes},
      {"{% set d = {" + numbered("'k", "': 0, ", 999) +
           "} %}{% for i in range(999) %}{% set n = namespace(d) %}{% endfor %}",
       kBytes},
      {"{% macro f(" + numbered("a", ", ", 9999) +
           "b) %}{% endmacro %}{% for i in range(999) %}{% set y = f() %}{% endfor %}",
       kBytes},
      {"{% macro f(" + numbered("a", ", ", 9999) + "b) %}{% endmacro %}{{ f(" +
           numbered("a", "=1, ", 9999) + "b=1) }}",
       kBytes},
      {"{% set t = range(9999) | list %}{% for i in range(999) %}{% set " +
           numbered("a", ", ", 9998) + "b = t %}{% endfor %}",
       kBytes},
      {"{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
       "{% endfor %}{{ raise_exception(n.a) }}",
       kBytes},
      {"{{ " + times("a", 257) + " }}", "a name has 257 bytes, expected at most 256"},
  };
  for (const auto& [source, expected] : hostile)
    EXPECT_NE(fault(source).find(expected), std::string::npos)
        << source.substr(0, 80) << ": " << fault(source).substr(0, 200);
}

TEST(ChatTemplate, DatesAreLimitedAsOtherTextIs) {
  ChatVariables variables;
  variables.now = 0;
  const auto text = rendered(
      "{% set x = ('%A' * 999) * 999 %}{% for i in range(99) %}{% set y = strftime_now(x) %}{% "
      "endfor "
      "%}",
      {}, variables);
  EXPECT_EQ(text.status().text(), "chat template: line 1: the template makes too much text");
}

// A visit of all parts of the tuple would not end.
TEST(ChatTemplate, ATupleOfSharedPartsIsAKey) {
  const std::string tuple =
      "{% set n = namespace(a=(1,), b=([],)) %}{% for i in range(60) %}{% set n.a = (n.a, n.a) %}"
      "{% set n.b = (n.b, n.b) %}{% endfor %}";
  EXPECT_EQ(rendered(tuple + "{{ n.a in {} }}").take(), "False");
  EXPECT_EQ(fault(tuple + "{{ n.b in {} }}"),
            "chat template: line 1: expected a key of a dict, found a tuple");
}

// Calls `work` on a thread with a stack of this size.
void on_stack(size_t size, std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_t thread;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size), 0);
  const auto run = [](void* arg) -> void* {
    (*static_cast<std::function<void()>*>(arg))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(ChatTemplate, NestedTemplatesFitOnASmallStack) {
#ifdef WEFT_SANITIZED
  constexpr size_t kStack = 2 << 20;
#else
  constexpr size_t kStack = 256 << 10;
#endif
  on_stack(kStack, [] {
    for (const char* of : {"{{ f() }}", "{% for i in [1] if f() %}{% endfor %}",
                           "{{ n | default(f() | default(f())) }}", "{% set n = [[[f()]]] %}"})
      EXPECT_EQ(fault(cat("{% macro f() %}", of, "{% endmacro %}{{ f() }}")),
                "chat template: line 1: macros, blocks and expressions are nested more than 128 "
                "levels");
    for (const auto& [open, close] :
         {std::pair("(", ")"), std::pair("[", "]"), std::pair("f(", ")")})
      EXPECT_EQ(fault("{{ " + times(open, 1000) + "1" + times(close, 1000) + " }}"),
                "chat template: line 1: expressions and blocks are nested more than 100 levels");
  });
}

// The levels of the longest expression and those around it are not too many.
TEST(ChatTemplate, ALongExpressionCanBeNested) {
  const std::string sum = "{{ 1" + times(" + 1", 98) + " }}";
  EXPECT_EQ(rendered("{% macro f() %}" + times("{% if 1 %}", 20) + sum + times("{% endif %}", 20) +
                     "{% endmacro %}{{ f() }}")
                .take(),
            "99");
}

using Ranges = std::vector<TextRange>;

// A search that takes the product of both lengths would need minutes.
TEST(ChatTemplate, TextIsFoundInATimeLikeItsLength) {
  for (const char* use : {"{{ b in a }}", "{{ a.replace(b, '') | length == 0 }}"}) {
    const auto text =
        rendered(cat("{% set a = 'a' * 5000000 %}{% set b = ('a' * 2500000) ~ 'b' %}", use));
    ASSERT_TRUE(text.ok()) << text.status().text();
    EXPECT_EQ(text.value(), "False") << use;
  }
  EXPECT_EQ(rendered("{{ 'a-b--c'.split('-') | join('.') }}").take(), "a.b..c");
}

TEST(ChatTemplate, AnswersWithoutGenerationBlocksAreWhatMessagesAdd) {
  const auto chat = ChatTemplate::parse(read("chatml.jinja")).take();
  const std::vector<ChatMessage> messages = {
      {"system", "s"}, {"user", "a"}, {"assistant", "bc"}, {"user", "d"}, {"assistant", ""}};
  const RenderedChat out = chat.render_answers(messages, {}).take();
  EXPECT_EQ(out.text, chat.render(messages, {}, false).take());
  std::vector<std::string> answers;
  for (const auto& [begin, end] : out.answers)
    answers.push_back(out.text.substr(begin, end - begin));
  EXPECT_EQ(answers, (std::vector<std::string>{"bc<|im_end|>\n", "<|im_end|>\n"}));
}

TEST(ChatTemplate, AnswersAreRefusedIfAMessageChangesEarlierText) {
  // The reasoning of an answer is removed when a question follows.
  const auto chat = ChatTemplate::parse(read("qwen3.jinja")).take();
  const std::vector<ChatMessage> messages = {
      {"user", "a"}, {"assistant", "<think>x</think>b"}, {"user", "c"}, {"assistant", "d"}};
  const auto out = chat.render_answers(messages, {});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), Code::unsupported);
  EXPECT_EQ(out.status().text(),
            "chat template: message 2 changes the text of earlier messages, so that the place of "
            "an answer is not known; a template with generation blocks is required");
  EXPECT_EQ(chat.render_answers(std::span(messages).first(2), {}).take().answers.size(), 1u);
}

// An empty reasoning is put before the last answer only.
TEST(ChatTemplate, AnswersBeforeTheLastOneMayLackItsReasoning) {
  const auto chat = ChatTemplate::parse(read("qwen3.jinja")).take();
  const std::vector<ChatMessage> messages = {{"user", "a weft"},
                                             {"assistant", " weft b"},
                                             {"user", "c"},
                                             {"assistant", "d"},
                                             {"user", "e"}};
  for (const size_t count : {3u, 4u, 5u}) {
    const auto rendered = chat.render_answers(std::span(messages).first(count), {});
    ASSERT_TRUE(rendered.ok()) << rendered.status().text();
    const RenderedChat& out = rendered.value();
    EXPECT_EQ(out.text, chat.render(std::span(messages).first(count), {}, false).take());
    std::vector<std::string> answers;
    for (const auto& [begin, end] : out.answers)
      answers.push_back(out.text.substr(begin, end - begin));
    std::vector<std::string> expected = {" weft b<|im_end|>\n"};
    if (count == 4) expected.push_back("<think>\n\n</think>\n\nd<|im_end|>\n");
    if (count == 5) expected.push_back("d<|im_end|>\n");
    EXPECT_EQ(answers, expected);
  }
}

std::vector<std::string> answers_of(const char* file, const std::vector<ChatMessage>& messages) {
  ChatVariables variables;
  variables.texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto chat = ChatTemplate::parse(read(file)).take();
  const auto rendered = chat.render_answers(messages, variables);
  if (!rendered.ok()) return {rendered.status().text()};
  const RenderedChat& out = rendered.value();
  EXPECT_EQ(out.text, chat.render(messages, variables, false).take());
  std::vector<std::string> answers;
  for (const auto& [begin, end] : out.answers)
    answers.push_back(out.text.substr(begin, end - begin));
  return answers;
}

// Phi-3 ends the text of a conversation with eos_token.
TEST(ChatTemplate, AnswersBeforeTheLastOneMayLackTheEndOfTheText) {
  EXPECT_EQ(answers_of("phi3.jinja",
                       {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}}),
            (std::vector<std::string>{"b<|end|>\n", "d<|end|>\n</s>"}));
}

// The generation prompt of DeepSeek R1 begins a reasoning, which the text of answers lacks.
TEST(ChatTemplate, AnswersMayLackTheEndOfTheGenerationPrompt) {
  EXPECT_EQ(answers_of("deepseek_r1.jinja",
                       {{"user", "a"}, {"assistant", "<b>"}, {"user", "c"}, {"assistant", "d"}}),
            (std::vector<std::string>{"<b><|end|>", "d<|end|>"}));
  // The template removes the reasoning of answers.
  EXPECT_EQ(
      answers_of("deepseek_r1.jinja", {{"user", "a"}, {"assistant", "<think>x</think>b"}}),
      std::vector<std::string>{
          "chat template: the text of message 1 is not the begin of the generation prompt and "
          "then its content, so that the place of the answer is not known; a template with "
          "generation blocks is required"});
}

// The text that stands in for an answer is a repetition that the others do not contain. A search
// that takes the product of both lengths would need 45 s.
TEST(ChatTemplate, AnswersOfRepeatedTextAreFound) {
  const auto chat = ChatTemplate::parse(read("qwen3.jinja")).take();
  const std::string answer = times("weft", 1000000);
  const std::vector<ChatMessage> messages = {
      {"user", answer}, {"assistant", answer}, {"user", "c"}, {"assistant", "d"}};
  const auto out = chat.render_answers(messages, {});
  ASSERT_TRUE(out.ok()) << out.status().text();
  const auto [begin, end] = out.value().answers.front();
  EXPECT_TRUE(out.value().text.substr(begin, end - begin) == answer + "<|im_end|>\n");
}

TEST(ChatTemplate, AConversationWithoutAnswersHasNone) {
  const auto chat = ChatTemplate::parse(read("smollm3.jinja")).take();
  const std::vector<ChatMessage> messages = {{"user", "a"}};
  EXPECT_EQ(chat.render_answers(messages, {}).take().answers, Ranges());
}

}  // namespace
}  // namespace weft
