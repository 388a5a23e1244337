#include "io/tokenizer_stages.h"

#include <algorithm>

#include "base/fault.h"
#include "base/text.h"
#include "text/oniguruma.h"

namespace weft {

namespace {

constexpr size_t kMostStages = 64;

// Reads the object of one stage, whose key "type" names its kind.
struct Stage {
  Stage(const Json& json, std::string of) : where(std::move(of)), fields(json, where + ": ") {}

  static Result<std::string> type_of(const Json& json, const std::string& where) {
    if (!json.is_object()) return fault(cat(where, " expects an object, found ", json.type_name()));
    std::string type;
    WEFT_TRY(Fields(json, where + ": ").text("type", type));
    return type;
  }
  Status take_type() {
    std::string type;
    return fields.text("type", type);
  }
  Status boolean(const char* key, bool& out) {
    return fields.absent(key) ? Status() : fields.boolean(key, out);
  }
  Status character(const char* key, char32_t& out) {
    std::string text;
    WEFT_TRY(fields.text(key, text));
    std::string_view rest = text;
    if (!text.empty()) out = take_code_point(rest);
    if (text.empty() || !rest.empty())
      return fault(cat(where, ": ", shown(key), " is ", shown(text), ", expected one character"));
    return {};
  }
  // {"String": TEXT} or {"Regex": EXPRESSION}.
  Status pattern(Regex& out) {
    WEFT_TRY_ASSIGN(const Json* json, fields.object("pattern"));
    Fields inside(*json, where + ": 'pattern': ");
    const bool literal = inside.has("String");
    std::string text;
    WEFT_TRY(inside.text(literal ? "String" : "Regex", text));
    WEFT_TRY(inside.finish());
    if (literal && text.empty()) return fault(cat(where, ": 'pattern' is empty"));
    WEFT_TRY_ASSIGN(out, Regex::make(literal ? escape_regex(text) : text).within(where));
    return {};
  }
  Status behavior(Behavior& out) {
    std::string name;
    WEFT_TRY(fields.text("behavior", name));
    constexpr const char* kNames[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (name != kNames[i]) continue;
      out = static_cast<Behavior>(i);
      return {};
    }
    return fault(
        cat(where, ": 'behavior' is ", shown(name),
            ", expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous"));
  }
  Status unknown(const std::string& type, const char* known) const {
    return fault(cat(where, ": 'type' is ", shown(type), ", this version of weft knows ", known));
  }

  const std::string where;
  Fields fields;
};

// The stages of a Sequence, or the stage itself.
template <typename Read>
Status read_each(const Json& json, const std::string& where, const char* key, Read&& read) {
  WEFT_TRY_ASSIGN(const std::string type, Stage::type_of(json, where));
  if (type != "Sequence") return read(json, where, type);
  Stage stage(json, where);
  WEFT_TRY(stage.take_type());
  WEFT_TRY_ASSIGN(const Json* list, stage.fields.list(key));
  WEFT_TRY(stage.fields.finish());
  size_t i = 0;
  for (const Json& item : list->items()) WEFT_TRY(read_each(item, cat(where, " ", i++), key, read));
  return {};
}

template <typename T>
Status append_stage(std::vector<T>& out, T stage, const std::string& where) {
  if (out.size() == kMostStages) return fault(cat(where, ": more than ", kMostStages, " stages"));
  out.push_back(std::move(stage));
  out.back().where = where;
  return {};
}

Status read_one_normalizer(Stage& stage, const std::string& type, Normalizer& out) {
  using Kind = Normalizer::Kind;
  WEFT_TRY(stage.take_type());
  const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::c},
                                                      {"NFD", NormalForm::d},
                                                      {"NFKC", NormalForm::kc},
                                                      {"NFKD", NormalForm::kd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    out.form = form;
    return {};
  }
  if (type == "Lowercase") {
    out.kind = Kind::lowercase;
  } else if (type == "ByteLevel") {
    out.kind = Kind::byte_level;
  } else if (type == "Strip") {
    out.kind = Kind::strip;
    WEFT_TRY(stage.fields.boolean("strip_left", out.left));
    WEFT_TRY(stage.fields.boolean("strip_right", out.right));
  } else if (type == "Prepend") {
    out.kind = Kind::prepend;
    WEFT_TRY(stage.fields.text("prepend", out.content));
  } else if (type == "Replace") {
    out.kind = Kind::replace;
    WEFT_TRY(stage.pattern(out.pattern));
    WEFT_TRY(stage.fields.text("content", out.content));
  } else {
    return stage.unknown(
        type, "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence and Strip");
  }
  return {};
}

Status read_byte_level(Stage& stage, PreTokenizer& out) {
  bool prefix = false, trims = false;
  WEFT_TRY(stage.fields.boolean("add_prefix_space", prefix));
  WEFT_TRY(stage.boolean("trim_offsets", trims));  // affects places in the text only
  out.uses_pattern = true;
  WEFT_TRY(stage.boolean("use_regex", out.uses_pattern));
  out.kind = PreTokenizer::Kind::byte_level;
  out.prefix = prefix ? PreTokenizer::Prefix::always : PreTokenizer::Prefix::never;
  if (!out.uses_pattern) return {};
  WEFT_TRY_ASSIGN(out.pattern, byte_level_pattern());
  return {};
}

// Of a pre-tokenizer or decoder. Older files have only add_prefix_space.
Status read_metaspace(Stage& stage, PreTokenizer& out) {
  using Prefix = PreTokenizer::Prefix;
  out.kind = PreTokenizer::Kind::metaspace;
  WEFT_TRY(stage.character("replacement", out.separator));
  WEFT_TRY(stage.boolean("split", out.splits));
  bool prefix = true;
  WEFT_TRY(stage.boolean("add_prefix_space", prefix));
  std::string unused, scheme = prefix ? "always" : "never";
  if (!stage.fields.absent("str_rep")) WEFT_TRY(stage.fields.text("str_rep", unused));
  if (!stage.fields.absent("prepend_scheme")) WEFT_TRY(stage.fields.text("prepend_scheme", scheme));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return fault(cat(stage.where, ": 'prepend_scheme' is ", shown(scheme),
                     ", expected always, first or never"));
  if (!prefix && scheme != "never")
    return fault(
        cat(stage.where, ": 'add_prefix_space' is false, but 'prepend_scheme' is ", shown(scheme)));
  out.prefix = scheme == "always"  ? Prefix::always
               : scheme == "first" ? Prefix::first
                                   : Prefix::never;
  return {};
}

Status read_one_pre_tokenizer(Stage& stage, const std::string& type, PreTokenizer& out) {
  using Kind = PreTokenizer::Kind;
  WEFT_TRY(stage.take_type());
  if (type == "ByteLevel") return read_byte_level(stage, out);
  if (type == "Metaspace") return read_metaspace(stage, out);
  if (type == "Split") {
    out.uses_pattern = true;
    WEFT_TRY(stage.pattern(out.pattern));
    WEFT_TRY(stage.behavior(out.behavior));
    return stage.fields.boolean("invert", out.invert);
  }
  if (type == "Digits") {
    out.kind = Kind::digits;
    bool individual = false;
    WEFT_TRY(stage.fields.boolean("individual_digits", individual));
    out.behavior = individual ? Behavior::isolated : Behavior::contiguous;
  } else if (type == "Punctuation") {
    out.kind = Kind::punctuation;
    if (!stage.fields.absent("behavior")) WEFT_TRY(stage.behavior(out.behavior));
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    out.kind = Kind::delimiter;
    WEFT_TRY(stage.character("delimiter", out.separator));
  } else if (type == "Whitespace") {
    out.kind = Kind::whitespace;
  } else if (type == "WhitespaceSplit") {
    out.kind = Kind::whitespace_split;
  } else {
    return stage.unknown(type,
                         "ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, "
                         "Split, Whitespace and WhitespaceSplit");
  }
  return {};
}

Status read_one_decoder(Stage& stage, const std::string& type, Decoder& out) {
  using Kind = Decoder::Kind;
  WEFT_TRY(stage.take_type());
  if (type == "ByteLevel") {
    PreTokenizer unused;
    out.kind = Kind::byte_level;
    return read_byte_level(stage, unused);
  }
  if (type == "Metaspace") {
    PreTokenizer same;
    WEFT_TRY(read_metaspace(stage, same));
    out.kind = Kind::metaspace;
    out.character = same.separator;
    out.strips_first = same.prefix != PreTokenizer::Prefix::never;
  } else if (type == "Replace") {
    out.kind = Kind::replace;
    WEFT_TRY(stage.pattern(out.pattern));
    return stage.fields.text("content", out.content);
  } else if (type == "Strip") {
    out.kind = Kind::strip;
    WEFT_TRY(stage.character("content", out.character));
    WEFT_TRY(stage.fields.number("start", out.start));
    return stage.fields.number("stop", out.stop);
  } else if (type == "ByteFallback") {
    out.kind = Kind::byte_fallback;
  } else if (type == "Fuse") {
    out.kind = Kind::fuse;
  } else {
    return stage.unknown(type,
                         "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence and Strip");
  }
  return {};
}

// A list can be used by any number of pieces.
Status read_ids(const Json& list, const std::string& where, std::vector<uint32_t>& out) {
  constexpr size_t kMostAround = 1024;  // ids before or after a text
  if (out.size() + list.items().size() > kMostAround)
    return fault(cat(where, ": 'single' adds more than ", kMostAround, " ids to a text"));
  for (const Json& item : list.items()) {
    if (!item.is_number_unsigned() || item.whole() >= Vocabulary::kMostIds)
      return fault(cat(where, ": 'ids' expects ids of tokens, found ",
                       item.is_number() ? item.dump() : item.type_name()));
    out.push_back(static_cast<uint32_t>(item.whole()));
  }
  return {};
}

// "single" is a list of special tokens around one sequence.
Status read_template(Stage& stage, TokenizerParts& parts) {
  WEFT_TRY_ASSIGN(const Json* single, stage.fields.list("single"));
  WEFT_TRY_ASSIGN(const Json* specials, stage.fields.object("special_tokens"));
  (void)stage.fields.list("pair").ok();  // pairs of texts are not encoded
  std::vector<uint32_t> before, after;
  bool seen = false;
  for (const Json& piece : single->items()) {
    const std::string where = stage.where + ": 'single'";
    if (!piece.is_object()) return fault(cat(where, " expects objects, found ", piece.type_name()));
    Fields fields(piece, where + ": ");
    const bool sequence = fields.has("Sequence");
    WEFT_TRY_ASSIGN(const Json* inside, fields.object(sequence ? "Sequence" : "SpecialToken"));
    WEFT_TRY(fields.finish());
    Fields content(*inside, where + ": ");
    std::string id;
    WEFT_TRY(content.text("id", id));
    if (sequence) {
      if (id != "A" || seen) return fault(cat(where, " expects the sequence 'A' once"));
      seen = true;
      continue;
    }
    const auto at = specials->members().find(id);
    if (at == specials->members().end() || !at->second.is_object())
      return fault(cat(stage.where, ": 'special_tokens' has no object ", shown(id)));
    Fields special(at->second, stage.where + ": ");
    WEFT_TRY_ASSIGN(const Json* ids, special.list("ids"));
    WEFT_TRY(read_ids(*ids, stage.where, seen ? after : before));
  }
  if (!seen) return fault(cat(stage.where, ": 'single' expects the sequence 'A' once"));
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
  return {};
}

template <typename T>
Status read_stages(const Json& json, const std::string& where, const char* list,
                   Status (*read_one)(Stage& stage, const std::string& type, T& out),
                   std::vector<T>& out) {
  return read_each(json, where, list,
                   [&](const Json& item, const std::string& at, const std::string& type) -> Status {
                     Stage stage(item, at);
                     T one;
                     WEFT_TRY(read_one(stage, type, one));
                     WEFT_TRY(stage.fields.finish());
                     return append_stage(out, std::move(one), at);
                   });
}

}  // namespace

Status read_normalizer(const Json& json, const std::string& where, std::vector<Normalizer>& out) {
  return read_stages(json, where, "normalizers", read_one_normalizer, out);
}

Status read_pre_tokenizer(const Json& json, const std::string& where,
                          std::vector<PreTokenizer>& out) {
  return read_stages(json, where, "pretokenizers", read_one_pre_tokenizer, out);
}

Status read_decoder(const Json& json, const std::string& where, std::vector<Decoder>& out) {
  return read_stages(json, where, "decoders", read_one_decoder, out);
}

Status read_post_processor(const Json& json, const std::string& where, TokenizerParts& parts) {
  return read_each(json, where, "processors",
                   [&](const Json& item, const std::string& at, const std::string& type) -> Status {
                     Stage stage(item, at);
                     WEFT_TRY(stage.take_type());
                     if (type == "TemplateProcessing") {
                       WEFT_TRY(read_template(stage, parts));
                     } else if (type == "ByteLevel") {
                       PreTokenizer unused;
                       WEFT_TRY(read_byte_level(stage, unused));
                     } else {
                       return stage.unknown(type, "ByteLevel, Sequence and TemplateProcessing");
                     }
                     return stage.fields.finish();
                   });
}

}  // namespace weft
