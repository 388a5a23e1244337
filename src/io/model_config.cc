#include "io/model_config.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/text.h"
#include "io/strict_json.h"

namespace weft {

namespace {

Status fault(std::string text) { return Status(Code::data, std::move(text)); }

// A size, the key of the preset that takes it, and the value of Transformers if the field is
// missing.
struct Size {
  const char *field, *key;
  uint64_t value;
};

constexpr std::string_view kOr = " or ";

// A field with the values for which weft computes the same result as without the field. The first
// one is written.
struct Fixed {
  const char* field;
  std::string_view values;  // JSON, separated by kOr
};

struct Architecture {
  std::string_view type;
  std::span<const std::string_view> presets;  // with the same keys; the first one is written
  const char* loader;                         // the class of Transformers
  std::span<const Size> sizes;
  std::span<const char* const> dropouts;  // probabilities, which must be equal
  double dropout;                         // of Transformers if such a field is missing
  std::span<const Fixed> fixed;
  const char *inner, *width;  // the width of the inner layer is null or four times the width
  std::span<const char* const> ignored;
};

constexpr std::string_view kGpt2Presets[] = {"gpt2", "gpt-nano"};
constexpr Size kGpt2Sizes[] = {{"n_layer", "blocks", 12},
                               {"n_embd", "width", 768},
                               {"n_head", "heads", 12},
                               {"n_positions", "context", 1024},
                               {"vocab_size", "vocabulary", 50257}};
constexpr const char* kGpt2Dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
constexpr Fixed kGpt2Fixed[] = {{"activation_function", R"("gelu_new" or "gelu_pytorch_tanh")"},
                                {"layer_norm_epsilon", "1e-05"},
                                {"scale_attn_by_inverse_layer_idx", "false"},
                                {"scale_attn_weights", "true"}};
constexpr const char* kGpt2Ignored[] = {"n_ctx",
                                        "reorder_and_upcast_attn",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj"};

constexpr Architecture kArchitectures[] = {{.type = "gpt2",
                                            .presets = kGpt2Presets,
                                            .loader = "GPT2LMHeadModel",
                                            .sizes = kGpt2Sizes,
                                            .dropouts = kGpt2Dropouts,
                                            .dropout = 0.1,
                                            .fixed = kGpt2Fixed,
                                            .inner = "n_inner",
                                            .width = "n_embd",
                                            .ignored = kGpt2Ignored}};

// Of all architectures.
constexpr Fixed kFixed[] = {
    {"add_cross_attention", "false"}, {"is_encoder_decoder", "false"}, {"pruned_heads", "{}"}};
constexpr const char* kIgnored[] = {"_attn_implementation_autoset",
                                    "_name_or_path",
                                    "_num_labels",
                                    "architectures",
                                    "bos_token_id",
                                    "do_sample",
                                    "dtype",
                                    "eos_token_id",
                                    "finetuning_task",
                                    "gradient_checkpointing",
                                    "id2label",
                                    "initializer_range",
                                    "is_decoder",
                                    "label2id",
                                    "max_length",
                                    "min_length",
                                    "model_type",
                                    "no_repeat_ngram_size",
                                    "num_beams",
                                    "num_labels",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "output_past",
                                    "pad_token_id",
                                    "prefix",
                                    "problem_type",
                                    "repetition_penalty",
                                    "return_dict",
                                    "sep_token_id",
                                    "task_specific_params",
                                    "temperature",
                                    "tokenizer_class",
                                    "top_k",
                                    "top_p",
                                    "torch_dtype",
                                    "torchscript",
                                    "transformers_version",
                                    "use_cache"};

class Config {
 public:
  explicit Config(const Json& object) : object_(object) {}

  // Null if the field is missing.
  const Json* find(const char* field) {
    read_.insert(field);
    const auto it = object_.members().find(field);
    return it == object_.members().end() ? nullptr : &it->second;
  }
  Status size(const char* field, uint64_t& out) {
    const Json* value = find(field);
    if (!value) return {};
    if (!value->is_number_unsigned()) return unexpected(field, *value, "a whole number");
    out = value->whole();
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
    return Status(code, cat(shown(field), " is ", found, ", expected ", expected));
  }
  Status finish() const {
    for (const auto& [name, value] : object_.members())
      if (!read_.contains(name))
        return Status(Code::unsupported,
                      cat("field ", shown(name), " is not known, and may affect results"));
    return {};
  }

 private:
  const Json& object_;
  std::set<std::string, std::less<>> read_;
};

Result<const Architecture*> architecture_of(Config& config) {
  const Json* type = config.find("model_type");
  if (!type) return fault("has no 'model_type'");
  if (!type->is_string()) return config.unexpected("model_type", *type, "a string");
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.type == type->text()) return &row;
    known += cat(known.empty() ? "" : ", ", row.type);
  }
  return Status(Code::unsupported, cat("'model_type' is ", shown(type->text()),
                                       ", this version of weft knows ", known));
}

Result<double> dropout_of(Config& config, const Architecture& a) {
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
  return out;
}

Status check_inner(Config& config, const Architecture& a, uint64_t width) {
  const Json* value = config.find(a.inner);
  if (!value || value->dump() == "null") return {};
  if (value->is_number_unsigned() && value->whole() == 4 * width) return {};
  return config.unexpected(a.inner, *value,
                           cat("null or ", 4 * width, ", four times '", a.width, "'"),
                           Code::unsupported);
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
  for (const Architecture& row : kArchitectures)
    if (std::find(row.presets.begin(), row.presets.end(), preset) != row.presets.end()) return &row;
  return Status(Code::unsupported,
                cat("Transformers has no architecture for model ", shown(preset)));
}

}  // namespace

Result<std::string> parse_model_config(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object, read_json(json, Fractions::allow));
  Config config(object);
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(config));
  std::string out = cat(a->presets[0], ":");
  for (const Size& size : a->sizes) {
    uint64_t value = size.value;
    WEFT_TRY(config.size(size.field, value));
    if (std::string_view(size.field) == a->width) WEFT_TRY(check_inner(config, *a, value));
    out += cat(size.key, "=", value, ",");
  }
  WEFT_TRY_ASSIGN(const double dropout, dropout_of(config, *a));
  const Json* tied = config.find("tie_word_embeddings");
  if (tied && !tied->is_boolean())
    return config.unexpected("tie_word_embeddings", *tied, "true or false");
  out += cat("dropout=", to_text(dropout), ",tied=", !tied || tied->boolean() ? 1 : 0);
  for (const auto list : {std::span<const Fixed>(kFixed), a->fixed})
    for (const Fixed& fixed : list) WEFT_TRY(config.fixed(fixed));
  for (const auto list : {std::span<const char* const>(kIgnored), a->ignored})
    for (const char* field : list) (void)config.find(field);
  WEFT_TRY(config.finish());
  return out;
}

Result<std::string> print_model_config(std::string_view model) {
  const size_t colon = std::min(model.find(':'), model.size());
  const std::string_view keys = model.substr(std::min(colon + 1, model.size()));
  WEFT_TRY_ASSIGN(const Architecture* a, architecture_of(model.substr(0, colon)));
  std::string out = cat("{\n  \"architectures\": [\"", a->loader, "\"]");
  const auto add = [&](const char* field, std::string_view value) {
    out += cat(",\n  \"", field, "\": ", value);
  };
  add("model_type", cat('"', a->type, '"'));
  bool own_vocabulary = false;
  for (const Size& size : a->sizes) {
    WEFT_TRY_ASSIGN(const std::string value, value_of(keys, size.key));
    add(size.field, value);
    own_vocabulary |= std::string_view(size.key) == "vocabulary" && value != cat(size.value);
  }
  WEFT_TRY_ASSIGN(const std::string dropout, value_of(keys, "dropout"));
  for (const char* field : a->dropouts) add(field, dropout);
  for (const Fixed& fixed : a->fixed)
    add(fixed.field, fixed.values.substr(0, fixed.values.find(kOr)));
  WEFT_TRY_ASSIGN(const std::string tied, value_of(keys, "tied"));
  add("tie_word_embeddings", tied == "0" ? "false" : "true");
  add("torch_dtype", "\"float32\"");
  // The ids that Transformers assumes belong to its own vocabulary.
  if (own_vocabulary)
    for (const char* field : {"bos_token_id", "eos_token_id"}) add(field, "null");
  out += "\n}\n";
  // The text of the model comes from a program.
  WEFT_TRY(parse_model_config(out).status());
  return out;
}

}  // namespace weft
