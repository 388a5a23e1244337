#include "io/chat_source.h"

#include <optional>

#include "base/fault.h"
#include "base/text.h"
#include "io/file.h"
#include "io/tokenizer_config.h"

namespace weft {

namespace {

constexpr const char *kTemplateFile = "chat_template.jinja", *kTemplateKey = "chat_template";
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};

const Json* member(const Json& object, const std::string& key) {
  const auto at = object.members().find(key);
  return at == object.members().end() || at->second.is_null() ? nullptr : &at->second;
}

// A text, or an object whose "content" is the text.
Status read_token(const Json& config, const char* key, std::map<std::string, std::string>& out) {
  const Json* value = member(config, key);
  if (value == nullptr) return {};
  const Json* text = value->is_object() ? member(*value, "content") : value;
  if (text == nullptr || !text->is_string())
    return fault(cat(shown(key), " is ", value->type_name(),
                     ", expected a string, or an object with the string 'content'"));
  out[key] = text->text();
  return {};
}

// The source of the template, if there is one.
Result<std::optional<std::string>> read_template(const Json& config) {
  const Json* value = member(config, kTemplateKey);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional(value->text());
  if (!value->is_array())
    return fault(cat(shown(kTemplateKey), " is ", value->type_name(),
                     ", expected a string or a list of named templates"));
  for (const Json& item : value->items()) {
    const Json* name = item.is_object() ? member(item, "name") : nullptr;
    const Json* source = item.is_object() ? member(item, "template") : nullptr;
    if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string())
      return fault(
          cat(shown(kTemplateKey), ": expected objects with the strings 'name' and 'template'"));
    if (name->text() == "default") return std::optional(source->text());
  }
  return fault(cat(shown(kTemplateKey), " has ", value->items().size(),
                   " templates, but none has the name 'default'"));
}

}  // namespace

Result<ChatSource> open_chat(const std::string& tokenizer) {
  const std::string directory = directory_of(tokenizer);
  const std::string file = join_path(directory, kTemplateFile),
                    config_file = join_path(directory, kTokenizerConfigFile);
  WEFT_TRY_ASSIGN(const Json config, read_tokenizer_config(directory));
  std::map<std::string, std::string> tokens;
  for (const char* key : kTokens)
    if (const Status status = read_token(config, key, tokens); !status.ok())
      return status.within(config_file);
  std::string source, name = file;
  if (path_exists(file)) {
    WEFT_TRY_ASSIGN(source, read_text(file, kMostBytes));
  } else {
    WEFT_TRY_ASSIGN(const auto found, read_template(config).within(config_file));
    if (!found)
      return Status(Code::not_found,
                    cat(directory, ": has no chat template, expected ", kTemplateFile, ", or ",
                        shown(kTemplateKey), " in ", kTokenizerConfigFile));
    source = *found;
    name = cat(config_file, ": ", shown(kTemplateKey));
  }
  WEFT_TRY_ASSIGN(ChatTemplate chat, ChatTemplate::parse(source, std::move(name)));
  return ChatSource{std::move(chat), std::move(tokens)};
}

}  // namespace weft
