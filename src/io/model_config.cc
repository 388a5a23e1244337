#include "io/model_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/text.h"
#include "io/model_architectures.h"
#include "io/strict_json.h"

namespace weft {

namespace {

Status fault(std::string text) { return Status(Code::data, std::move(text)); }

constexpr uint64_t kMostWhole = uint64_t{1} << 48;  // its digits are exact in a double

// The fields of an object, read one by one; the remaining ones are unknown. `where` precedes their
// names in messages.
class Config {
 public:
  explicit Config(const Json& object, std::string where = "") : object_(object), where_(where) {}

  // Null if the field is missing.
  const Json* find(const char* field) {
    read_.insert(field);
    const auto it = object_.members().find(field);
    return it == object_.members().end() ? nullptr : &it->second;
  }
  // The value of a number, which later ones may refer to.
  Status number(const Number& n, double& out) {
    WEFT_TRY_ASSIGN(out, read(n));
    numbers_[n.field] = out;
    return {};
  }
  Status fixed(const Fixed& fixed) {
    const Json* value = find(fixed.field);
    if (!value) return {};
    const std::string found = value->dump();
    std::string_view left = fixed.values;
    while (!left.empty()) {
      const size_t end = std::min(left.find(kOr), left.size());
      if (left.substr(0, end) == found) return {};
      left.remove_prefix(std::min(end + kOr.size(), left.size()));
    }
    return unexpected(fixed.field, *value, fixed.values, Code::unsupported);
  }
  Status unexpected(const char* field, const Json& value, std::string_view expected,
                    Code code = Code::data) const {
    constexpr size_t kShown = 60;
    std::string found = value.dump();
    if (found.size() > kShown) found = cat(found.substr(0, kShown), "...");
    return Status(code, cat(shown(where_ + field), " is ", found, ", expected ", expected));
  }
  Status finish() const {
    for (const auto& [name, value] : object_.members())
      if (!read_.contains(name))
        return Status(Code::unsupported,
                      cat("field ", shown(where_ + name), " is not known, and may affect results"));
    return {};
  }

 private:
  Result<double> read(const Number& n) {
    const Json* value = find(n.field);
    if (value && value->is_null()) {
      if (n.nullable) return 0.0;
      if (n.like) value = nullptr;
    }
    if (!value) return n.like ? like(n) : n.value;
    const bool fits =
        n.whole ? value->is_number_unsigned() && value->whole() <= kMostWhole : value->is_number();
    if (fits) return value->number();
    return unexpected(n.field, *value, n.whole ? "a whole number" : "a number");
  }

  Result<double> like(const Number& n) const {
    const double value = numbers_.at(n.like), parts = n.over ? numbers_.at(n.over) : 1;
    if (!n.over || (parts > 0 && std::fmod(value, parts) == 0)) return value / parts;
    return Status(Code::unsupported, cat("'", n.like, "' is ", value, ", expected a multiple of '",
                                         n.over, "', which is ", parts));
  }

  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> read_;
  std::map<std::string_view, double> numbers_;
};

// The values of the keys of a preset, in the order of its architecture.
class Keys {
 public:
  void set(std::string_view key, double value) {
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [key](const auto& known) { return known.first == key; });
    if (at == all_.end())
      all_.emplace_back(key, value);
    else
      at->second = value;
  }
  // Of a key that is set.
  double value(std::string_view key) const {
    return std::find_if(all_.begin(), all_.end(),
                        [key](const auto& known) { return known.first == key; })
        ->second;
  }
  std::string text() const {
    std::string out;
    for (const auto& [key, value] : all_) out += cat(out.empty() ? "" : ",", key, "=", value);
    return out;
  }

 private:
  std::vector<std::pair<std::string_view, double>> all_;
};

Result<const Architecture*> architecture_of(Config& config) {
  const Json* type = config.find("model_type");
  if (!type) return fault("has no 'model_type'");
  if (!type->is_string()) return config.unexpected("model_type", *type, "a string");
  std::string known;
  for (const Architecture& row : architectures()) {
    if (row.type == type->text()) return &row;
    known += cat(known.empty() ? "" : ", ", row.type);
  }
  return Status(Code::unsupported, cat("'model_type' is ", shown(type->text()),
                                       ", this version of weft knows ", known));
}

Status read_dropout(Config& config, const Architecture& a, Keys& keys) {
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

Status read_flag(Config& config, const Flag& flag, Keys& keys) {
  const Json* value = config.find(flag.field);
  if (value && !value->is_boolean()) return config.unexpected(flag.field, *value, "true or false");
  keys.set(flag.key, (value ? value->boolean() : flag.value) ? 1 : 0);
  return {};
}

Status check_inner(Config& config, const Architecture& a, double width) {
  const Json* value = config.find(a.inner);
  if (!value || value->is_null()) return {};
  if (value->is_number_unsigned() && value->number() == 4 * width) return {};
  return config.unexpected(a.inner, *value,
                           cat("null or ", 4 * width, ", four times '", a.width, "'"),
                           Code::unsupported);
}

struct RotaryNumber {
  Number number;
  std::string_view type;  // of the rotations that have it, and must; empty: all, which may
};
constexpr RotaryNumber kRotaryNumbers[] = {
    {{.field = "rope_theta", .key = "theta", .whole = false}, ""},
    {{.field = "partial_rotary_factor", .key = "rotary", .whole = false}, ""},
    {{.field = "factor", .key = "rope_factor", .whole = false}, "linear"},
    {{.field = "factor", .key = "rope_factor", .whole = false}, "llama3"},
    {{.field = "low_freq_factor", .key = "rope_low", .whole = false}, "llama3"},
    {{.field = "high_freq_factor", .key = "rope_high", .whole = false}, "llama3"},
    {{.field = "original_max_position_embeddings", .key = "rope_context"}, "llama3"}};

constexpr std::pair<const char*, double> kPlainRotation[] = {
    {"rope_factor", 1}, {"rope_low", 0}, {"rope_high", 0}, {"rope_context", 0}};

// "rope_scaling", or "rope_parameters" of newer versions.
Status read_rotation(Config& config, const char* field, Keys& keys) {
  const Json* object = config.find(field);
  if (!object || object->is_null()) return {};
  if (!object->is_object()) return config.unexpected(field, *object, "an object or null");
  Config inner(*object, cat(field, "."));
  const Json* type = inner.find("rope_type");
  if (const Json* old = inner.find("type"); !type) type = old;
  const std::string name = type && type->is_string() ? type->text() : "";
  if (name != "default" && name != "linear" && name != "llama3")
    return inner.unexpected("rope_type", type ? *type : Json(),
                            R"("default", "linear" or "llama3")", Code::unsupported);
  for (const auto& [number, of] : kRotaryNumbers) {
    if (!of.empty() && of != name) continue;
    if (of.empty() && !object->members().contains(number.field)) continue;
    if (!object->members().contains(number.field))
      return fault(cat("'", field, "' has no '", number.field, "'"));
    double value = 0;
    WEFT_TRY(inner.number(number, value));
    keys.set(number.key, value);
  }
  if (name == "llama3" && !(keys.value("rope_low") < keys.value("rope_high")))
    return fault(cat("'", field, "' has 'low_freq_factor' ", keys.value("rope_low"),
                     ", expected less than 'high_freq_factor' ", keys.value("rope_high")));
  return inner.finish();
}

Status read_layer_types(Config& config) {
  const Json* list = config.find("layer_types");
  if (!list || list->is_null()) return {};
  if (!list->is_array()) return config.unexpected("layer_types", *list, "a list");
  for (const Json& item : list->items())
    if (item.dump() != R"("full_attention")")
      return config.unexpected("layer_types", *list, R"("full_attention" for each layer)",
                               Code::unsupported);
  return {};
}

// "key=value,..." of a model's text.
Result<std::string> value_of(std::string_view keys, std::string_view wanted) {
  while (!keys.empty()) {
    const std::string_view item = keys.substr(0, keys.find(','));
    const size_t equals = item.find('=');
    if (item.substr(0, equals) == wanted && equals != item.npos)
      return std::string(item.substr(equals + 1));
    keys.remove_prefix(std::min(item.size() + 1, keys.size()));
  }
  return fault(cat("the model has no key ", shown(wanted)));
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

// Of a whole number, which the text of a model may contain as "1e+06".
std::string digits_of(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value >= 0 && value <= double{kMostWhole} ? cat(static_cast<uint64_t>(value))
                                                   : std::string(text);
}

// Transformers expects a fraction where it wrote one.
std::string fraction_of(std::string text) {
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

// Empty if the model does not scale its rotations.
Result<std::string> rotation_text(std::string_view keys) {
  std::string values[4];
  for (size_t i = 0; i < 4; ++i) {
    WEFT_TRY_ASSIGN(values[i], value_of(keys, kPlainRotation[i].first));
  }
  const auto& [factor, low, high, context] = values;
  if (high != "0")
    return cat(R"({"rope_type": "llama3", "factor": )", fraction_of(factor),
               R"(, "low_freq_factor": )", fraction_of(low), R"(, "high_freq_factor": )",
               fraction_of(high), R"(, "original_max_position_embeddings": )", digits_of(context),
               "}");
  if (factor == "1") return std::string();
  return cat(R"({"rope_type": "linear", "factor": )", fraction_of(factor), "}");
}

}  // namespace

Result<std::string> parse_model_config(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object, read_json(json, Fractions::allow));
  Config config(object);
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(config));
  Keys keys;
  for (const Number& number : a->numbers) {
    double value = 0;
    WEFT_TRY(config.number(number, value));
    if (a->width && std::string_view(number.field) == a->width)
      WEFT_TRY(check_inner(config, *a, value));
    keys.set(number.key, value);
  }
  if (a->rotary) {
    for (const auto& [key, value] : kPlainRotation) keys.set(key, value);
    WEFT_TRY(read_rotation(config, "rope_scaling", keys));
    WEFT_TRY(read_rotation(config, "rope_parameters", keys));
    WEFT_TRY(read_layer_types(config));
  }
  WEFT_TRY(read_dropout(config, *a, keys));
  WEFT_TRY(read_flag(config, {kTied, "tied", a->tied}, keys));
  for (const Flag& flag : a->flags) WEFT_TRY(read_flag(config, flag, keys));
  for (const auto list : {common_fixed(), a->fixed})
    for (const Fixed& fixed : list) WEFT_TRY(config.fixed(fixed));
  for (const auto list : {common_ignored(), a->ignored})
    for (const char* field : list) (void)config.find(field);
  WEFT_TRY(config.finish());
  return cat(a->presets[0], ":", keys.text());
}

Result<std::string> print_model_config(std::string_view model) {
  const auto [preset, keys] = ModelText(model);
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(preset));
  for (const FixedKey& fixed : a->fixed_keys) {
    const auto value = value_of(keys, fixed.key);
    if (value.ok() && value.value() != fixed.value)
      return Status(Code::unsupported, cat("key ", fixed.key, " is ", value.value(), ", expected ",
                                           fixed.value, " for '", a->type, "' of Transformers"));
  }
  std::string out = cat("{\n  \"architectures\": [\"", a->loader, "\"]");
  const auto add = [&](const char* field, std::string_view value) {
    out += cat(",\n  \"", field, "\": ", value);
  };
  add("model_type", cat('"', a->type, '"'));
  bool own_vocabulary = false;
  for (const Number& number : a->numbers) {
    WEFT_TRY_ASSIGN(std::string value, value_of(keys, number.key));
    value = number.whole ? digits_of(value) : fraction_of(value);
    add(number.field, number.nullable && value == "0" ? "null" : value);
    own_vocabulary |=
        std::string_view(number.key) == "vocabulary" && value != digits_of(to_text(number.value));
  }
  if (a->rotary) {
    WEFT_TRY_ASSIGN(const std::string rotation, rotation_text(keys));
    if (!rotation.empty()) add("rope_scaling", rotation);
  }
  for (const char* field : a->dropouts) {
    WEFT_TRY_ASSIGN(const std::string dropout, value_of(keys, "dropout"));
    add(field, dropout);
  }
  for (const Fixed& fixed : a->fixed)
    add(fixed.field, fixed.values.substr(0, fixed.values.find(kOr)));
  WEFT_TRY_ASSIGN(const std::string tied, value_of(keys, "tied"));
  add(kTied, tied == "0" ? "false" : "true");
  for (const Flag& flag : a->flags) {
    WEFT_TRY_ASSIGN(const std::string value, value_of(keys, flag.key));
    add(flag.field, value == "0" ? "false" : "true");
  }
  add("torch_dtype", "\"float32\"");
  // The ids that Transformers assumes belong to its own vocabulary.
  if (own_vocabulary)
    for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) add(field, "null");
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
