#include "io/tokenizer_json.h"

#include <algorithm>
#include <filesystem>

#include "base/fault.h"
#include "base/text.h"
#include "io/file.h"
#include "io/tokenizer_config.h"
#include "io/tokenizer_stages.h"

namespace weft {

namespace {

constexpr size_t kMostBytes = size_t{256} << 20;
constexpr size_t kMostValues = size_t{1} << 20;  // besides the vocabulary and the merges

// "vocab": {TOKEN: ID, ...}
class VocabularyPart : public JsonPart {
 public:
  Vocabulary vocabulary;

  Status open() override { return fault("'vocab' expects ids, found a list or an object"); }
  Status close() override { return {}; }
  Status value(const std::string& key, const Json& value) override {
    if (!value.is_number_unsigned())
      return fault(cat("'vocab': token ", shown(key), " expects an id from 0, found ",
                       value.is_number() ? value.dump() : value.type_name()));
    return vocabulary.add(key, value.whole());
  }
};

// "merges": ["LEFT RIGHT", ...] or [["LEFT", "RIGHT"], ...]
class MergesPart : public JsonPart {
 public:
  std::vector<std::pair<std::string, std::string>> merges;

  Status open() override {
    if (inside_) return refuse("a list in a list");
    inside_ = true;
    return {};
  }
  Status close() override {
    inside_ = false;
    if (pair_.size() != 2) return refuse(cat("a list of ", pair_.size()));
    merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    pair_.clear();
    return {};
  }
  Status value(const std::string&, const Json& value) override {
    if (!value.is_string()) return refuse(value.type_name());
    const std::string& text = value.text();
    if (inside_) {
      if (pair_.size() == 2) return refuse("a list of 3");
      pair_.push_back(text);
      return {};
    }
    if (text.starts_with("#version")) return {};
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return refuse(shown(text));
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return {};
  }

 private:
  Status refuse(std::string_view found) const {
    return fault(cat("'merges': merge ", merges.size(), " expects two tokens, found ", found));
  }
  std::vector<std::string> pair_;
  bool inside_ = false;
};

// A field that must be null or, as older files have it, empty.
Status expect_none(Fields& fields, const char* key, const std::string& where) {
  if (fields.absent(key)) return {};
  std::string text;
  WEFT_TRY(fields.text(key, text));
  return text.empty() ? Status()
                      : fault(cat(where, shown(key), " is ", shown(text), ", expected null"));
}

Result<Bpe> read_model(const Json& json, VocabularyPart& vocabulary, MergesPart& merges) {
  Fields fields(json, "model: ");
  std::string type = "BPE";
  if (fields.has("type")) WEFT_TRY(fields.text("type", type));
  if (type != "BPE")
    return fault(cat("model: 'type' is ", shown(type), ", this version of weft knows BPE"));
  BpeOptions options;
  double dropout = 0;
  if (!fields.absent("dropout")) WEFT_TRY(fields.real("dropout", dropout));
  if (dropout != 0) return fault(cat("model: 'dropout' is ", dropout, ", expected null or 0"));
  if (!fields.absent("unk_token")) WEFT_TRY(fields.text("unk_token", options.unknown.emplace()));
  WEFT_TRY(expect_none(fields, "continuing_subword_prefix", "model: "));
  WEFT_TRY(expect_none(fields, "end_of_word_suffix", "model: "));
  const std::pair<const char*, bool*> booleans[] = {{"fuse_unk", &options.fuse_unknown},
                                                    {"byte_fallback", &options.byte_fallback},
                                                    {"ignore_merges", &options.ignore_merges}};
  for (const auto& [key, value] : booleans)
    if (!fields.absent(key)) WEFT_TRY(fields.boolean(key, *value));
  WEFT_TRY(fields.object("vocab").status());
  WEFT_TRY(fields.list("merges").status());
  WEFT_TRY(fields.finish());
  WEFT_TRY_ASSIGN(Bpe out, Bpe::make(std::move(vocabulary.vocabulary), std::move(options)));
  for (const auto& [left, right] : merges.merges) WEFT_TRY(out.add_merge(left, right));
  return out;
}

Status read_added_tokens(const Json& list, std::vector<AddedToken>& out) {
  size_t i = 0;
  for (const Json& item : list.items()) {
    const std::string where = cat("'added_tokens' ", i++, ": ");
    if (!item.is_object()) return fault(cat(where, "expected an object, found ", item.type_name()));
    Fields fields(item, where);
    AddedToken token;
    uint64_t id = 0;
    WEFT_TRY(fields.number("id", id));
    if (id >= Vocabulary::kMostIds)
      return fault(cat(where, "'id' is ", id, ", expected at most ", Vocabulary::kMostIds - 1));
    token.id = static_cast<uint32_t>(id);
    WEFT_TRY(fields.text("content", token.content));
    WEFT_TRY(fields.boolean("single_word", token.single_word));
    WEFT_TRY(fields.boolean("lstrip", token.left_strip));
    WEFT_TRY(fields.boolean("rstrip", token.right_strip));
    WEFT_TRY(fields.boolean("normalized", token.normalized));
    WEFT_TRY(fields.boolean("special", token.special));
    WEFT_TRY(fields.finish());
    out.push_back(std::move(token));
  }
  return {};
}

// `config`: of tokenizer_config.json; empty if there is none.
Result<Tokenizer> build(const Json& json, const Json& config, VocabularyPart& vocabulary,
                        MergesPart& merges) {
  Fields fields(json, "");
  TokenizerParts parts;
  if (fields.has("version")) {
    std::string version;
    WEFT_TRY(fields.text("version", version));
    if (version != "1.0")
      return fault(cat("'version' is ", shown(version), ", this version of weft knows 1.0"));
  }
  // Those of the program that wrote the file. Transformers resets them, too.
  for (const char* key : {"truncation", "padding"})
    if (!fields.absent(key)) WEFT_TRY(fields.object(key).status());
  WEFT_TRY_ASSIGN(const Json* model, fields.object("model"));
  WEFT_TRY_ASSIGN(parts.model, read_model(*model, vocabulary, merges));
  const auto stage = [&](const char* key, auto&& read, auto& out) -> Status {
    if (fields.absent(key)) return {};
    WEFT_TRY_ASSIGN(const Json* value, fields.object(key));
    return read(*value, key, out);
  };
  WEFT_TRY(stage("normalizer", read_normalizer, parts.normalizers));
  WEFT_TRY(stage("pre_tokenizer", read_pre_tokenizer, parts.pre_tokenizers));
  WEFT_TRY(stage("post_processor", read_post_processor, parts));
  parts.decodes = !fields.absent("decoder");
  WEFT_TRY(stage("decoder", read_decoder, parts.decoders));
  std::vector<AddedToken> added;
  if (!fields.absent("added_tokens")) {
    WEFT_TRY_ASSIGN(const Json* list, fields.list("added_tokens"));
    WEFT_TRY(read_added_tokens(*list, added));
  }
  WEFT_TRY(fields.finish());
  const bool has_config = !config.members().empty();
  if (has_config)
    WEFT_TRY(apply_tokens(config, parts.model.vocabulary(), added).within(kTokenizerConfigFile));
  for (AddedToken& token : added)
    WEFT_TRY(parts.added.add(std::move(token), parts.model.vocabulary(), parts.normalizers));
  if (has_config) {
    const Json* const words =
        fields.absent("pre_tokenizer") ? nullptr : &json.members().at("pre_tokenizer");
    WEFT_TRY(apply_settings(config, words, parts).within(kTokenizerConfigFile));
  }
  return Tokenizer(std::move(parts));
}

}  // namespace

Result<Tokenizer> parse_tokenizer(std::string_view json, const Json& config) {
  VocabularyPart vocabulary;
  MergesPart merges;
  JsonLimits limits{
      Fractions::allow, 10, kMostValues, "model", {{"vocab", &vocabulary}, {"merges", &merges}}};
  WEFT_TRY_ASSIGN(const Json root, read_json(json, limits));
  return build(root, config, vocabulary, merges);
}

std::string print_tokenizer(const TrainedBpe& bpe, size_t specials) {
  const auto text = [](const std::string& token) { return Json(token).dump(); };
  // The prefix has no effect on a decoder; this is what the library writes.
  const auto stage = [](const char* prefix) {
    return cat(R"({"type": "ByteLevel", "add_prefix_space": )", prefix,
               R"(, "trim_offsets": true, "use_regex": true})");
  };
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [";
  for (size_t i = 0; i < specials; ++i)
    append(out, i > 0 ? ",\n" : "\n", "    {\"id\": ", i, ", \"content\": ", text(bpe.tokens[i]),
           R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, )",
           R"("special": true})");
  append(out, specials > 0 ? "\n  " : "",
         "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ", stage("false"),
         ",\n  \"post_processor\": null,\n  \"decoder\": ", stage("true"),
         ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": "
         "null,\n",
         "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n",
         "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n",
         "    \"vocab\": {");
  for (size_t i = 0; i < bpe.tokens.size(); ++i)
    append(out, i > 0 ? ",\n" : "\n", "      ", text(bpe.tokens[i]), ": ", i);
  out += "\n    },\n    \"merges\": [";
  bool first = true;
  for (const auto& [left, right] : bpe.merges) {
    append(out, first ? "\n" : ",\n", "      [", text(left), ", ", text(right), "]");
    first = false;
  }
  append(out, first ? "" : "\n    ", "]\n  }\n}\n");
  return out;
}

Result<Tokenizer> open_tokenizer(const std::string& path) {
  constexpr const char* kFile = "tokenizer.json";
  const std::string directory = directory_of(path),
                    file = is_directory(path) ? join_path(path, kFile) : path;
  WEFT_TRY_ASSIGN(const std::string text, read_text(file, kMostBytes));
  Json config = Json::object();
  // Beside a file of another name, it is that of another tokenizer.
  if (std::filesystem::path(file).filename() == kFile) {
    WEFT_TRY_ASSIGN(config, read_tokenizer_settings(directory));
  }
  return parse_tokenizer(text, config).within(file);
}

}  // namespace weft
