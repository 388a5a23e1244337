#include "io/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/fault.h"
#include "base/text.h"
#include "io/file.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr const char *kMapFile = "special_tokens_map.json", *kDecoder = "added_tokens_decoder",
                     *kAdditional = "additional_special_tokens", *kExtra = "extra_special_tokens",
                     *kPrefix = "add_prefix_space";
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostValues = size_t{1} << 20;  // some for each added token
constexpr size_t kDepth = 32;

// A class of Transformers, by its name without "Tokenizer" and "Fast", with the defaults of its
// tokens; null: none. It may replace the post-processor of the file.
struct TokenizerClass {
  const char *name, *bos, *eos, *unk, *pad;
  bool has_template, adds_bos;
};
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr TokenizerClass kClasses[] = {
    {"CodeLlama", "<s>", "</s>", "<unk>", nullptr, true, true},
    {"Cohere", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", nullptr, true, true},
    {"GPT2", kEndOfText, kEndOfText, kEndOfText, nullptr, false, false},
    {"GPTNeoX", kEndOfText, kEndOfText, kEndOfText, nullptr, true, false},
    {"Gemma", "<bos>", "<eos>", "<unk>", "<pad>", true, true},
    {"Llama", "<s>", "</s>", "<unk>", nullptr, true, true},
    {"Qwen2", nullptr, kEndOfText, kEndOfText, kEndOfText, false, false},
};
// Another one reads the file as it is.
constexpr TokenizerClass kOther = {"", nullptr, nullptr, nullptr, nullptr, false, false};

const Json* find(const Json& object, const char* key) {
  const auto at = object.members().find(key);
  return at == object.members().end() ? nullptr : &at->second;
}

Status unexpected(const std::string& where, const Json& value, const char* expected) {
  return fault(cat(where, " is ", value.type_name(), ", expected ", expected));
}

// `missing`: the value without the key; null is false.
Result<bool> flag(const Json& config, const char* key, bool missing) {
  const Json* value = find(config, key);
  if (!value) return missing;
  if (value->is_null()) return false;
  if (!value->is_boolean()) return unexpected(shown(key), *value, "true or false");
  return value->boolean();
}

Result<TokenizerClass> class_of(const Json& config) {
  const Json* value = find(config, "tokenizer_class");
  if (!value || value->is_null()) return kOther;
  if (!value->is_string()) return unexpected("'tokenizer_class'", *value, "a string");
  std::string_view name = value->text();
  for (const std::string_view end : {"Fast", "Tokenizer"})
    if (name.ends_with(end)) name.remove_suffix(end.size());
  const auto at = std::find_if(std::begin(kClasses), std::end(kClasses),
                               [name](const TokenizerClass& of) { return of.name == name; });
  return at == std::end(kClasses) ? kOther : *at;
}

// A text, or an object.
Result<AddedToken> token_of(const Json& json, const std::string& where) {
  AddedToken out;
  if (json.is_string()) {
    out.content = json.text();
    return out;
  }
  const Json* content = json.is_object() ? find(json, "content") : nullptr;
  if (!content || !content->is_string())
    return unexpected(where, json, "a string, or an object with the string 'content'");
  out.content = content->text();
  WEFT_TRY_ASSIGN(out.special, flag(json, "special", true));
  // A token that is not special is found in the normalized text.
  WEFT_TRY_ASSIGN(out.normalized, flag(json, "normalized", !out.special));
  WEFT_TRY_ASSIGN(out.single_word, flag(json, "single_word", false));
  WEFT_TRY_ASSIGN(out.left_strip, flag(json, "lstrip", false));
  WEFT_TRY_ASSIGN(out.right_strip, flag(json, "rstrip", false));
  return out;
}

// bos_token and others, as the file or the class has them.
Result<std::optional<AddedToken>> named_token(const Json& config, const char* key,
                                              const char* of_class) {
  const Json* value = find(config, key);
  if (value && value->is_null()) return std::optional<AddedToken>();
  if (!value && !of_class) return std::optional<AddedToken>();
  WEFT_TRY_ASSIGN(AddedToken out, token_of(value ? *value : Json(of_class), shown(key)));
  out.special = true;
  return std::optional(std::move(out));
}

// The tokens of a tokenizer.json, to which others are added.
class Tokens {
 public:
  Tokens(const Vocabulary& vocabulary, std::vector<AddedToken>& added)
      : vocabulary_(vocabulary), added_(added) {
    for (size_t i = 0; i < added.size(); ++i) {
      places_[added[i].content] = i;
      end_ = std::max<uint64_t>(end_, uint64_t{added[i].id} + 1);
    }
  }

  bool has(const std::string& content) const { return places_.contains(content); }
  // Replaces a token with the same text, whose id it gets.
  void put(AddedToken token) {
    if (token.content.empty()) return;
    if (const auto at = places_.find(token.content); at != places_.end()) {
      token.id = added_[at->second].id;
      added_[at->second] = std::move(token);
      return;
    }
    const uint64_t next = std::max<uint64_t>(end_, vocabulary_.size());
    token.id = vocabulary_.id(token.content).value_or(static_cast<uint32_t>(next));
    end_ = std::max<uint64_t>(end_, uint64_t{token.id} + 1);
    places_[token.content] = added_.size();
    added_.push_back(std::move(token));
  }

 private:
  const Vocabulary& vocabulary_;
  std::vector<AddedToken>& added_;
  std::map<std::string, size_t> places_;
  uint64_t end_ = 0;
};

// "added_tokens_decoder": {ID: TOKEN, ...}. The ids only order them.
Status put_decoder(const Json& config, Tokens& tokens) {
  const Json* decoder = find(config, kDecoder);
  if (!decoder || decoder->is_null()) return {};
  if (!decoder->is_object()) return unexpected(shown(kDecoder), *decoder, "an object");
  std::map<uint32_t, const Json*> ordered;
  for (const auto& [key, value] : decoder->members()) {
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      return fault(cat(shown(kDecoder), " has the key ", shown(key), ", expected an id"));
    ordered[id] = &value;
  }
  for (const auto& [id, value] : ordered) {
    WEFT_TRY_ASSIGN(AddedToken token, token_of(*value, cat(shown(kDecoder), ": ", id)));
    tokens.put(std::move(token));
  }
  return {};
}

// Special tokens of a list, or of an object that names them. Objects replace what is known of a
// token, texts do not.
Status put_special(const Json& config, const char* key, Tokens& tokens) {
  const Json* list = find(config, key);
  if (!list || list->is_null()) return {};
  if (!list->is_array() && !list->is_object())
    return unexpected(shown(key), *list, "a list of tokens");
  std::vector<const Json*> items;
  if (list->is_array()) {
    for (const Json& item : list->items()) items.push_back(&item);
  } else {
    for (const auto& [name, item] : list->members()) items.push_back(&item);
  }
  int added = 0;
  for (const Json* item : items) {
    WEFT_TRY_ASSIGN(AddedToken token, token_of(*item, shown(key)));
    token.special = true;
    added += !tokens.has(token.content);
    if (list->is_object() && added > 1)  // they get ids in the order of the file
      return Status(Code::unsupported, cat(shown(key), " adds ", shown(token.content),
                                           " and another token by name, expected one"));
    if (item->is_object() || !tokens.has(token.content)) tokens.put(std::move(token));
  }
  return {};
}

// The id of a token that a template puts around a text.
Status add_id(const Json& config, const char* switch_key, const char* key, const char* of_class,
              const TokenizerParts& parts, std::vector<uint32_t>& out) {
  WEFT_TRY_ASSIGN(const auto token, named_token(config, key, of_class));
  if (!token)
    return fault(cat(shown(switch_key), " is true, but ", shown(key), " is null or missing"));
  const AddedToken* added = parts.added.token(token->content);
  if (!added) return fault(cat(shown(key), " is empty, but ", shown(switch_key), " is true"));
  out.push_back(added->id);
  return {};
}

Status apply_template(const Json& config, const TokenizerClass& of, TokenizerParts& parts) {
  if (!of.has_template) return {};
  WEFT_TRY_ASSIGN(const bool bos, flag(config, "add_bos_token", of.adds_bos));
  WEFT_TRY_ASSIGN(const bool eos, flag(config, "add_eos_token", false));
  parts.before.clear();
  parts.after.clear();
  if (bos) WEFT_TRY(add_id(config, "add_bos_token", "bos_token", of.bos, parts, parts.before));
  if (eos) WEFT_TRY(add_id(config, "add_eos_token", "eos_token", of.eos, parts, parts.after));
  return {};
}

bool has_prefix(const TokenizerParts& parts) {
  return std::any_of(
             parts.normalizers.begin(), parts.normalizers.end(),
             [](const Normalizer& stage) { return stage.kind == Normalizer::Kind::prepend; }) ||
         std::any_of(
             parts.pre_tokenizers.begin(), parts.pre_tokenizers.end(),
             [](const PreTokenizer& stage) { return stage.prefix != PreTokenizer::Prefix::never; });
}

// Transformers sets it in a pre-tokenizer ByteLevel that is no part of a sequence. For Llama it
// makes the tokenizer anew from tokenizer.model, which weft does not read.
Status apply_prefix(const Json& config, const TokenizerClass& of, const Json* pre_tokenizer,
                    TokenizerParts& parts) {
  const Json* value = find(config, kPrefix);
  const bool is_llama = std::string_view(of.name) == "Llama";
  if (value ? value->is_null() : is_llama) return {};
  WEFT_TRY_ASSIGN(const bool prefix, flag(config, kPrefix, false));
  if (is_llama && prefix != has_prefix(parts))
    return Status(Code::unsupported,
                  cat(shown(kPrefix), " is ", prefix ? "true" : "false", ", but tokenizer.json ",
                      prefix ? "puts no space" : "puts a space", " before a text"));
  const Json* type = pre_tokenizer ? find(*pre_tokenizer, "type") : nullptr;
  if (type && type->is_string() && type->text() == "ByteLevel")
    parts.pre_tokenizers.front().prefix =
        prefix ? PreTokenizer::Prefix::always : PreTokenizer::Prefix::never;
  return {};
}

Result<Json> read_object(const std::string& path) {
  if (!path_exists(path)) return Json::object();
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  const JsonLimits limits{.fractions = Fractions::allow, .depth = kDepth, .values = kMostValues};
  return read_json(text, limits).within(path);
}

}  // namespace

Result<Json> read_tokenizer_config(const std::string& directory) {
  return read_object(join_path(directory, kTokenizerConfigFile));
}

Result<Json> read_tokenizer_settings(const std::string& directory) {
  WEFT_TRY_ASSIGN(Json config, read_tokenizer_config(directory));
  if (config.members().empty() || find(config, kDecoder)) return config;
  WEFT_TRY_ASSIGN(const Json map, read_object(join_path(directory, kMapFile)));
  for (const auto& [key, value] : map.members()) {
    const Json* const known = find(config, key.c_str());
    if (key != kAdditional || !known || !known->is_array() || !value.is_array())
      config[key] = value;
    else
      for (const Json& token : value.items()) config[key].push_back(token);
  }
  return config;
}

Status apply_tokens(const Json& config, const Vocabulary& vocabulary,
                    std::vector<AddedToken>& added) {
  WEFT_TRY_ASSIGN(const TokenizerClass of, class_of(config));
  Tokens tokens(vocabulary, added);
  WEFT_TRY(put_decoder(config, tokens));
  const std::pair<const char*, const char*> named[] = {
      {"bos_token", of.bos}, {"eos_token", of.eos},  {"unk_token", of.unk},  {"sep_token", nullptr},
      {"pad_token", of.pad}, {"cls_token", nullptr}, {"mask_token", nullptr}};
  for (const auto& [key, of_class] : named) {
    WEFT_TRY_ASSIGN(auto token, named_token(config, key, of_class));
    if (token && !tokens.has(token->content)) tokens.put(std::move(*token));
  }
  WEFT_TRY(put_special(config, kAdditional, tokens));
  return put_special(config, kExtra, tokens);
}

Status apply_settings(const Json& config, const Json* pre_tokenizer, TokenizerParts& parts) {
  WEFT_TRY_ASSIGN(const TokenizerClass of, class_of(config));
  WEFT_TRY_ASSIGN(const bool splits, flag(config, "split_special_tokens", false));
  if (splits) return Status(Code::unsupported, "'split_special_tokens' is true, expected false");
  WEFT_TRY_ASSIGN(const auto end, named_token(config, "eos_token", of.eos));
  if (const AddedToken* added = end ? parts.added.token(end->content) : nullptr)
    parts.end_token = added->id;
  WEFT_TRY(apply_prefix(config, of, pre_tokenizer, parts));
  return apply_template(config, of, parts);
}

}  // namespace weft
