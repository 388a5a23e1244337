// Where the chat template of a directory is found, and what is refused.
#include "io/chat_source.h"

#include "files.h"

namespace weft {
namespace {

using test::Directory;
using test::spill;

std::string rendered(const ChatSource& source) {
  ChatVariables variables;
  variables.texts = source.tokens;
  const std::vector<ChatMessage> messages = {{"user", "hi"}};
  return source.chat.render(messages, variables, false).take();
}

std::string fault(const std::string& path) {
  const auto out = open_chat(path);
  return out.ok() ? "no fault" : out.status().text();
}

// The fault of a tokenizer_config.json, without its path.
std::string fault_of(const std::string& config) {
  const Directory dir;
  spill(dir / "tokenizer_config.json", config);
  const std::string text = fault(dir.path()), path = dir / "tokenizer_config.json";
  return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
}

TEST(ChatSource, IsATextOfTheConfiguration) {
  const Directory dir;
  spill(dir / "tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            "bos_token": "<s>", "pad_token": null, "model_max_length": 1e30,
            "eos_token": {"content": "</s>", "special": true, "lstrip": false}})");
  const ChatSource source = open_chat(dir.path()).take();
  EXPECT_EQ(rendered(source), "<s>hi</s>");
  EXPECT_EQ(source.tokens,
            (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

TEST(ChatSource, IsTheDefaultOfNamedTemplates) {
  const Directory dir;
  spill(dir / "tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "{% nothing %}"},
                              {"name": "default", "template": "named"}]})");
  EXPECT_EQ(rendered(open_chat(dir.path()).take()), "named");
}

TEST(ChatSource, AFileOfItsOwnComesFirst) {
  const Directory dir;
  spill(dir / "chat_template.jinja", "{{ bos_token }}file\r\n");
  spill(dir / "tokenizer_config.json", R"({"chat_template": "text", "bos_token": "<s>"})");
  EXPECT_EQ(rendered(open_chat(dir.path()).take()), "<s>file");
  spill(dir / "tokenizer.json", "{}");
  EXPECT_EQ(rendered(open_chat(dir / "tokenizer.json").take()), "<s>file");
  std::filesystem::remove(dir / "tokenizer_config.json");
  EXPECT_EQ(rendered(open_chat(dir.path()).take()), "file");
}

TEST(ChatSource, AFaultNamesTheFile) {
  const Directory dir;
  const std::string none =
      ": has no chat template, expected chat_template.jinja, or "
      "'chat_template' in tokenizer_config.json";
  EXPECT_EQ(open_chat(dir.path()).status().code(), Code::not_found);
  EXPECT_EQ(fault(dir.path()), dir.path() + none);
  spill(dir / "tokenizer_config.json", "{}");
  EXPECT_EQ(fault(dir.path()), dir.path() + none);
  spill(dir / "chat_template.jinja", "a\n{% nothing %}");
  EXPECT_EQ(fault(dir.path()),
            (dir / "chat_template.jinja") + ": line 2: the tag 'nothing' is not supported here");
  spill(dir / "chat_template.jinja", "{{ raise_exception('no') }}");
  const auto refused = open_chat(dir.path()).take().chat.render({}, {}, true);
  EXPECT_EQ(refused.status().text(),
            (dir / "chat_template.jinja") + ": the template refuses the messages: no");
}

TEST(ChatSource, AConfigurationThatIsNotValidIsRefused) {
  EXPECT_EQ(fault_of("{"), "is not valid JSON near byte 2");
  EXPECT_EQ(fault_of(R"({"chat_template": 1})"),
            "'chat_template' is number, expected a string or a list of named templates");
  EXPECT_EQ(fault_of(R"({"chat_template": [{"name": "a"}]})"),
            "'chat_template': expected objects with the strings 'name' and 'template'");
  EXPECT_EQ(fault_of(R"({"chat_template": [{"name": "a", "template": ""}]})"),
            "'chat_template' has 1 templates, but none has the name 'default'");
  EXPECT_EQ(fault_of(R"({"bos_token": [], "chat_template": ""})"),
            "'bos_token' is array, expected a string, or an object with the string 'content'");
  EXPECT_EQ(fault_of(R"({"chat_template": "{{ x | nothing }}"})"),
            "'chat_template': line 1: the filter 'nothing' is not supported");
}

}  // namespace
}  // namespace weft
