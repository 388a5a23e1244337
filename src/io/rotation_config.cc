#include "io/rotation_config.h"

#include <charconv>
#include <cmath>

#include "base/fault.h"
#include "base/plain_math.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr const char *kOriginal = "original_max_position_embeddings", *kLocalTheta = "local_theta";

// A number of the object. The types of rotations that have it; empty: all.
struct RotaryNumber {
  Number number;
  std::string_view type;
  bool needed = false;
};
constexpr RotaryNumber kNumbers[] = {
    {{.field = "rope_theta", .key = "theta", .whole = false}, ""},
    {{.field = "partial_rotary_factor", .key = "rotary", .whole = false}, ""},
    {{.field = "factor", .key = "rope_factor", .whole = false}, "linear", true},
    {{.field = "factor", .key = "rope_factor", .whole = false}, "llama3", true},
    {{.field = "low_freq_factor", .key = "rope_low", .whole = false}, "llama3", true},
    {{.field = "high_freq_factor", .key = "rope_high", .whole = false}, "llama3", true},
    {{.field = kOriginal, .key = "rope_context"}, "llama3", true},
    {{.field = "factor", .key = "rope_factor", .whole = false}, "yarn", true},
    {{.field = "beta_fast", .key = "rope_fast", .whole = false}, "yarn"},
    {{.field = "beta_slow", .key = "rope_slow", .whole = false}, "yarn"},
    {{.field = "attention_factor", .key = "rope_attention", .whole = false}, "yarn"},
    {{.field = kOriginal, .key = "rope_context"}, "yarn"},
    {{.field = "attention_factor", .key = "rope_attention", .whole = false}, "longrope"},
    {{.field = kOriginal, .key = "rope_context"}, "longrope"}};

// Of a model that does not scale its rotations.
constexpr std::pair<const char*, double> kPlain[] = {
    {"rope_factor", 1}, {"rope_low", 0},  {"rope_high", 0},     {"rope_context", 0},
    {"rope_fast", 0},   {"rope_slow", 0}, {"rope_attention", 1}};

constexpr std::string_view kTypes[] = {"default", "linear", "dynamic",
                                       "llama3",  "yarn",   "longrope"};

// What Transformers multiplies rotated columns by, unless the file says it.
double yarn_attention(double factor) { return factor <= 1 ? 1 : 0.1 * plain_log(factor) + 1; }
double longrope_attention(double context, double original) {
  return context <= original ? 1
                             : std::sqrt(1 + plain_log(context / original) / plain_log(original));
}

// "su" is an old name.
Result<std::string> type_of(ConfigFields& fields) {
  const Json* type = fields.find("rope_type");
  if (const Json* old = fields.find("type"); !type) type = old;
  std::string name = type && type->is_string() ? type->text() : "";
  if (name == "su") name = "longrope";
  std::string known;
  for (const std::string_view each : kTypes) {
    if (each == name) return name;
    known += cat(known.empty() ? "" : " or ", '"', each, '"');
  }
  return fields.unexpected("rope_type", type ? *type : Json(), known, Code::unsupported);
}

Status read_numbers(ConfigFields& fields, const char* field, std::string_view type,
                    PresetKeys& keys) {
  for (const auto& [number, of, needed] : kNumbers) {
    if (!of.empty() && of != type) continue;
    const Json* value = fields.find(number.field);
    if (!value && needed) return fault(cat("'", field, "' has no '", number.field, "'"));
    if (!value || (value->is_null() && !needed)) continue;
    double found = 0;
    WEFT_TRY(fields.number(number, found));
    keys.set(number.key, found);
  }
  return {};
}

Status read_longrope(ConfigFields& config, ConfigFields& fields, PresetKeys& keys) {
  std::vector<double> values;
  WEFT_TRY(fields.list("short_factor", values));
  keys.set("rope_short", values);
  values.clear();
  WEFT_TRY(fields.list("long_factor", values));
  keys.set("rope_long", values);
  double original = keys.value("rope_context");
  if (original == 0) WEFT_TRY(config.number({.field = kOriginal, .key = "rope_context"}, original));
  if (original < 2) return fault(cat("'", kOriginal, "' is missing, or less than 2"));
  keys.set("rope_context", original);
  (void)fields.find("factor");  // Transformers divides the two contexts
  if (!fields.has("attention_factor"))
    keys.set("rope_attention", longrope_attention(keys.value("context"), original));
  return {};
}

Status read_yarn(ConfigFields& fields, PresetKeys& keys) {
  WEFT_TRY(fields.fixed({"truncate", "true"}));
  if (keys.value("rope_context") == 0) keys.set("rope_context", keys.value("context"));
  if (keys.value("rope_fast") == 0) keys.set("rope_fast", 32);
  if (keys.value("rope_slow") == 0) keys.set("rope_slow", 1);
  if (!fields.has("attention_factor"))
    keys.set("rope_attention", yarn_attention(keys.value("rope_factor")));
  return {};
}

// Null if the field is missing or null.
Result<const Json*> find_object(ConfigFields& config, const char* field) {
  const Json* object = config.find(field);
  if (!object || object->is_null()) return nullptr;
  if (object->is_object()) return object;
  return config.unexpected(field, *object, "an object or null");
}

Status read_object(ConfigFields& config, const char* field, PresetKeys& keys) {
  WEFT_TRY_ASSIGN(const Json* object, find_object(config, field));
  if (!object) return {};
  ConfigFields fields(*object, cat(field, "."));
  WEFT_TRY_ASSIGN(const std::string type, type_of(fields));
  WEFT_TRY(read_numbers(fields, field, type, keys));
  if (type == "dynamic") (void)fields.find("factor");  // of no effect inside of the context
  if (type == "yarn") WEFT_TRY(read_yarn(fields, keys));
  if (type == "longrope") WEFT_TRY(read_longrope(config, fields, keys));
  if (type == "llama3" && !(keys.value("rope_low") < keys.value("rope_high")))
    return fault(cat("'", field, "' has 'low_freq_factor' ", keys.value("rope_low"),
                     ", expected less than 'high_freq_factor' ", keys.value("rope_high")));
  return fields.finish();
}

// Of layers with a window, whose rotations are not scaled.
Status read_local(ConfigFields& config, const char* field, PresetKeys& keys) {
  WEFT_TRY_ASSIGN(const Json* object, find_object(config, field));
  if (!object) return {};
  ConfigFields fields(*object, cat(field, "."));
  WEFT_TRY(fields.fixed({"rope_type", R"("default")"}));
  double theta = 0;
  WEFT_TRY(fields.number(
      {.field = "rope_theta", .key = kLocalTheta, .value = keys.value(kLocalTheta), .whole = false},
      theta));
  keys.set(kLocalTheta, theta);
  return fields.finish();
}

// An object for each type of layers.
Status read_types(ConfigFields& config, const char* field, PresetKeys& keys) {
  WEFT_TRY_ASSIGN(const Json* object, find_object(config, field));
  if (!object) return {};
  ConfigFields types(*object, cat(field, "."));
  WEFT_TRY(read_object(types, "full_attention", keys));
  WEFT_TRY(read_local(types, "sliding_attention", keys));
  return types.finish();
}

// The fields of the object to write, from the keys of a preset.
class RotationObject {
 public:
  RotationObject(std::string_view keys, const char* field, std::string_view type) : keys_(keys) {
    add(field, cat('"', type, '"'));
  }
  void add(const char* field, std::string_view value) {
    text_ += cat(text_.empty() ? "{" : ", ", '"', field, "\": ", value);
  }
  Status fraction(const char* field, std::string_view key) {
    WEFT_TRY_ASSIGN(std::string value, preset_value(keys_, key));
    add(field, fraction_of(std::move(value)));
    return {};
  }
  Status whole(const char* field, std::string_view key) {
    WEFT_TRY_ASSIGN(const std::string value, preset_value(keys_, key));
    add(field, digits_of(value));
    return {};
  }
  Status list(const char* field, std::string_view key) {
    WEFT_TRY_ASSIGN(const std::string values, preset_value(keys_, key));
    std::string out;
    for (std::string_view rest = values; !rest.empty();)
      out += cat(out.empty() ? "" : ", ", fraction_of(std::string(take_item(rest, '/'))));
    add(field, cat("[", out, "]"));
    return {};
  }
  std::string text() const { return text_ + "}"; }

 private:
  std::string_view keys_;
  std::string text_;
};

// Transformers 4 has no field for the attention factor of Phi-3: it must be the default.
Status check_longrope(std::string_view keys) {
  double values[3] = {};
  const char* const names[3] = {"context", "rope_context", "rope_attention"};
  for (size_t i = 0; i < 3; ++i) {
    WEFT_TRY_ASSIGN(const std::string text, preset_value(keys, names[i]));
    std::from_chars(text.data(), text.data() + text.size(), values[i]);
  }
  const auto [context, original, attention] = values;
  const double expected = longrope_attention(context, original);
  if (attention == expected) return {};
  return Status(Code::unsupported, cat("key rope_attention is ", attention, ", expected ", expected,
                                       ", which Transformers computes from the two contexts"));
}

// By its keys.
Result<std::string_view> type_of(std::string_view keys) {
  const std::pair<const char*, std::string_view> kKeys[] = {
      {"rope_short", "longrope"}, {"rope_fast", "yarn"}, {"rope_high", "llama3"}};
  for (const auto& [key, type] : kKeys) {
    WEFT_TRY_ASSIGN(const std::string value, preset_value(keys, key));
    if (!value.empty() && value != "0") return type;
  }
  WEFT_TRY_ASSIGN(const std::string factor, preset_value(keys, "rope_factor"));
  return std::string_view(factor == "1" ? "default" : "linear");
}

// A scaling that begins where the context ends is no key of a preset. Empty: there is none.
std::string dynamic_scaling(const Json& source) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const auto object = source.members().find(field);
    if (object == source.members().end() || !object->second.is_object()) continue;
    ConfigFields fields(object->second);
    const auto type = type_of(fields);
    if (type.ok() && type.value() == "dynamic") return object->second.dump();
  }
  return "";
}

}  // namespace

Status read_rotation(ConfigFields& config, const Architecture& architecture, PresetKeys& keys) {
  for (const auto& [key, value] : kPlain) keys.set(key, value);
  for (const char* key : {"rope_short", "rope_long"}) keys.set(key, std::vector<double>());
  WEFT_TRY(read_object(config, "rope_scaling", keys));
  const auto read = architecture.local_rotary ? read_types : read_object;
  return read(config, "rope_parameters", keys);
}

Result<std::string> print_rotation(std::string_view keys, const Architecture& architecture,
                                   const Json& source) {
  WEFT_TRY_ASSIGN(const std::string_view type, type_of(keys));
  if (type == "default") return dynamic_scaling(source);
  RotationObject out(keys, architecture.rotation_type, type);
  if (type == "longrope") {
    WEFT_TRY(check_longrope(keys));
    WEFT_TRY(out.list("short_factor", "rope_short"));
    WEFT_TRY(out.list("long_factor", "rope_long"));
    return out.text();
  }
  WEFT_TRY(out.fraction("factor", "rope_factor"));
  if (type == "llama3") {
    WEFT_TRY(out.fraction("low_freq_factor", "rope_low"));
    WEFT_TRY(out.fraction("high_freq_factor", "rope_high"));
  }
  if (type == "yarn") {
    WEFT_TRY(out.fraction("beta_fast", "rope_fast"));
    WEFT_TRY(out.fraction("beta_slow", "rope_slow"));
    WEFT_TRY(out.fraction("attention_factor", "rope_attention"));
  }
  if (type != "linear") WEFT_TRY(out.whole(kOriginal, "rope_context"));
  return out.text();
}

Result<std::string> print_original_context(std::string_view keys) {
  WEFT_TRY_ASSIGN(const std::string_view type, type_of(keys));
  if (type != "longrope") return std::string();
  WEFT_TRY_ASSIGN(const std::string original, preset_value(keys, "rope_context"));
  return digits_of(original);
}

}  // namespace weft
