#include "io/model_config.h"

#include <algorithm>

#include "base/fault.h"
#include "base/text.h"
#include "io/config_fields.h"
#include "io/rotation_config.h"
#include "io/strict_json.h"
#include "io/window_config.h"

namespace weft {

namespace {

Result<const Architecture*> architecture_of(ConfigFields& config) {
  const Json* type = config.find("model_type");
  if (!type) return fault("has no 'model_type'");
  if (!type->is_string()) return config.unexpected("model_type", *type, "a string");
  std::string known;
  for (const Architecture& row : architectures()) {
    if (row.type == type->text()) return &row;
    known += cat(known.empty() ? "" : ", ", row.type);
  }
  return Status(Code::unsupported,
                cat("'model_type' is ", shown(type->text()),
                    config.has("text_config")
                        ? ", a model of more than text; save the part that 'text_config' describes "
                          "as a model of its own"
                        : cat(", this version of weft knows ", known)));
}

Status read_dropout(ConfigFields& config, const Architecture& a, PresetKeys& keys) {
  double out = -1;
  for (const char* field : a.dropouts) {
    const Json* value = config.find(field);
    if (value && !value->is_number()) return config.unexpected(field, *value, "a number");
    const double probability = value ? value->number() : a.dropout;
    if (out >= 0 && probability != out)
      return Status(Code::unsupported, cat("'", field, "' is ", to_text(probability), ", expected ",
                                           to_text(out), ", that of '", a.dropouts[0], "'"));
    out = probability;
  }
  if (out >= 0) keys.set("dropout", out);
  return {};
}

constexpr const char* kTied = "tie_word_embeddings";

Status read_flag(ConfigFields& config, const FlagField& flag, PresetKeys& keys) {
  WEFT_TRY_ASSIGN(const bool value, config.flag(flag.field, flag.value));
  keys.set(flag.key, value ? 1 : 0);
  return {};
}

Status check_inner(ConfigFields& config, const Architecture& a, double width) {
  const Json* value = config.find(a.inner);
  if (!value || value->is_null()) return {};
  if (value->is_number_unsigned() && value->number() == 4 * width) return {};
  return config.unexpected(a.inner, *value,
                           cat("null or ", 4 * width, ", four times '", a.width, "'"),
                           Code::unsupported);
}

Result<const Architecture*> architecture_of(std::string_view preset) {
  for (const Architecture& row : architectures())
    if (std::find(row.presets.begin(), row.presets.end(), preset) != row.presets.end()) return &row;
  return Status(Code::unsupported,
                cat("Transformers has no architecture for model ", shown(preset)));
}

struct ModelText {
  std::string_view preset, keys;
  explicit ModelText(std::string_view model)
      : preset(model.substr(0, model.find(':'))),
        keys(model.substr(std::min(preset.size() + 1, model.size()))) {}
};

}  // namespace

Result<std::string> parse_model_config(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object, read_json(json, {.fractions = Fractions::allow}));
  ConfigFields config(object);
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(config));
  PresetKeys keys;
  for (const Number& number : a->numbers) {
    double value = 0;
    WEFT_TRY(config.number(number, value));
    if (a->width && std::string_view(number.field) == a->width)
      WEFT_TRY(check_inner(config, *a, value));
    keys.set(number.key, value);
  }
  if (a->rotary) {
    WEFT_TRY(read_rotation(config, *a, keys));
    WEFT_TRY(read_windows(config, *a, keys));
  }
  WEFT_TRY(read_dropout(config, *a, keys));
  WEFT_TRY(read_flag(config, {kTied, "tied", a->tied}, keys));
  for (const FlagField& flag : a->flags) WEFT_TRY(read_flag(config, flag, keys));
  for (const auto list : {common_fixed(), a->fixed})
    for (const Fixed& fixed : list) WEFT_TRY(config.fixed(fixed));
  for (const auto list : {common_ignored(), a->ignored})
    for (const char* field : list) (void)config.find(field);
  WEFT_TRY(config.finish());
  return cat(a->presets[0], ":", keys.text());
}

Result<std::string> print_model_config(std::string_view model, const ConfigFacts& facts) {
  const auto [preset, keys] = ModelText(model);
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(preset));
  for (const FixedKey& fixed : a->fixed_keys) {
    const auto value = preset_value(keys, fixed.key);
    if (value.ok() && value.value() != fixed.value)
      return Status(Code::unsupported, cat("key ", fixed.key, " is ", value.value(), ", expected ",
                                           *fixed.value ? fixed.value : "none", " for '", a->type,
                                           "' of Transformers"));
  }
  WEFT_TRY_ASSIGN(const Json source, read_json(facts.source.empty() ? "{}" : facts.source,
                                               {.fractions = Fractions::allow}));
  std::string out = cat("{\n  \"architectures\": [\"", a->loader, "\"]");
  const auto add = [&](const char* field, std::string_view value) {
    out += cat(",\n  \"", field, "\": ", value);
  };
  add("model_type", cat('"', a->type, '"'));
  bool own_vocabulary = false;
  for (const Number& number : a->numbers) {
    WEFT_TRY_ASSIGN(std::string value, preset_value(keys, number.key));
    if (number.nullable && value == "0")
      value = "null";
    else
      value = number.whole ? digits_of(value) : fraction_of(value);
    add(number.field, value);
    own_vocabulary |=
        std::string_view(number.key) == "vocabulary" && value != digits_of(to_text(number.value));
  }
  if (a->rotary) {
    WEFT_TRY_ASSIGN(const std::string rotation, print_rotation(keys, *a, source));
    if (!rotation.empty()) add("rope_scaling", rotation);
    WEFT_TRY_ASSIGN(const std::string original, print_original_context(keys));
    if (!original.empty()) add("original_max_position_embeddings", original);
    WEFT_TRY_ASSIGN(const WindowFields windows, print_windows(keys, *a));
    for (const auto& [field, value] : windows) add(field, value);
  }
  for (const char* field : a->dropouts) {
    WEFT_TRY_ASSIGN(const std::string dropout, preset_value(keys, "dropout"));
    add(field, dropout);
  }
  for (const Fixed& fixed : a->fixed)
    add(fixed.field, fixed.values.substr(0, fixed.values.find(kOr)));
  WEFT_TRY_ASSIGN(const std::string tied, preset_value(keys, "tied"));
  add(kTied, tied == "0" ? "false" : "true");
  for (const FlagField& flag : a->flags) {
    WEFT_TRY_ASSIGN(const std::string value, preset_value(keys, flag.key));
    add(flag.field, value == "0" ? "false" : "true");
  }
  add("torch_dtype", facts.dtype == DType::bf16 ? R"("bfloat16")" : R"("float32")");
  for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto value = source.members().find(field);
    if (value != source.members().end()) add(field, value->second.dump());
    // The ids that Transformers assumes belong to its own vocabulary.
    else if (own_vocabulary && facts.source.empty())
      add(field, "null");
  }
  out += "\n}\n";
  // The text of the model comes from a program.
  WEFT_TRY(parse_model_config(out).status());
  return out;
}

std::string_view weight_prefix(std::string_view model) {
  const auto a = architecture_of(ModelText(model).preset);
  return a.ok() ? a.value()->prefix : "";
}

}  // namespace weft
