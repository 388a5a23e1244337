#include "io/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "io/config_fields.h"
#include "io/file.h"
#include "io/model_config.h"
#include "io/strict_json.h"

namespace weft {

namespace {

// Fields with the values for which weft computes the same.
constexpr Fixed kFixed[] = {
    {"peft_type", R"("LORA")"},
    {"bias", R"("none")"},
    {"use_dora", "false"},
    // Other ways also change the weights of the base.
    {"init_lora_weights", R"(true or false or "gaussian" or "eva" or "orthogonal")"},
};

constexpr const char* kIgnored[] = {
    "auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "megatron_core",
    "peft_version", "qalora_group_size",       "revision",       "task_type",
};

// Fields that change the adapters, or more than them.
constexpr const char* kNotSupported[] = {
    "alpha_pattern",           "exclude_modules",     "layer_replication",
    "layers_pattern",          "layers_to_transform", "lora_bias",
    "modules_to_save",         "rank_pattern",        "target_parameters",
    "trainable_token_indices", "use_qalora"};

Result<std::string> read_targets(ConfigFields& config) {
  const Json* value = config.find("target_modules");
  if (!value) return Status(Code::data, "has no 'target_modules'");
  if (value->is_string() && value->text() == kAllLinear) return value->text();
  if (!value->is_array())
    return config.unexpected("target_modules", *value, "a list of names, or \"all-linear\"",
                             Code::unsupported);
  std::vector<std::string> names;
  WEFT_TRY(read_texts(*value, "'target_modules'", names));
  std::string out;
  for (std::string& name : names) {
    if (name.starts_with(kGpt2Prefix)) name.erase(0, kGpt2Prefix.size());
    if (name.empty() || name.find_first_of(",/") != name.npos)
      return config.unexpected("target_modules", *value, "names without ',' and '/'");
    out += cat(out.empty() ? "" : "/", name);
  }
  if (out.empty()) return Status(Code::data, "'target_modules' is empty");
  return out;
}

// The last parts of the names of all adapted nodes.
std::vector<std::string> last_parts(const Model& model) {
  std::set<std::string> parts;
  for (const Adapter& adapter : adapters_of(model))
    parts.insert(adapter.name.substr(adapter.name.rfind('.') + 1));
  return {parts.begin(), parts.end()};
}

}  // namespace

Result<AdapterConfig> parse_adapter_config(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object, read_json(json, {.fractions = Fractions::allow}));
  ConfigFields config(object);
  for (const Fixed& fixed : kFixed) WEFT_TRY(config.fixed(fixed));
  double rank = 0, alpha = 0, dropout = 0;
  WEFT_TRY(config.number({"r", "lora_rank", 8}, rank));
  WEFT_TRY(config.number({.field = "lora_alpha", .key = "lora_alpha", .value = 8, .whole = false},
                         alpha));
  WEFT_TRY(config.number(
      {.field = "lora_dropout", .key = "lora_dropout", .value = 0, .whole = false}, dropout));
  WEFT_TRY_ASSIGN(const std::string targets, read_targets(config));
  for (const char* field : kNotSupported)
    if (const Json* value = config.find(field); value && !value->is_off())
      return config.unexpected(field, *value, "null: weft does not support this field",
                               Code::unsupported);
  for (const char* field : kIgnored) (void)config.find(field);
  WEFT_TRY_ASSIGN(const bool by_root, config.flag("use_rslora"));
  if (by_root) alpha *= std::sqrt(rank);  // weft divides by the rank, not by its root
  WEFT_TRY(config.finish());
  const std::string drops = dropout == 0 ? "" : cat(",lora_dropout=", dropout);
  return AdapterConfig{
      cat("lora_rank=", rank, ",lora_alpha=", alpha, drops, ",lora_targets=", targets),
      alpha / rank};
}

std::string print_adapter_config(const Model& model, const AdapterOptions& options,
                                 const std::string& base) {
  const bool all = options.targets == std::vector<std::string>{std::string(kAllLinear)};
  const std::vector<Adapter> adapters = adapters_of(model);
  const bool in_out = std::any_of(adapters.begin(), adapters.end(),
                                  [](const Adapter& adapter) { return !adapter.out_in; });
  const bool whole = options.alpha == std::floor(options.alpha) && options.alpha < kMostWhole;
  const Json alpha = whole ? Json(static_cast<uint64_t>(options.alpha)) : Json(options.alpha);
  const Json config = Json::object({
      {"base_model_name_or_path", base.empty() ? Json() : Json(base)},
      {"bias", "none"},
      {"fan_in_fan_out", in_out},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", alpha},
      {"lora_dropout", options.dropout},
      {"peft_type", "LORA"},
      {"r", options.rank},
      {"target_modules", all ? last_parts(model) : options.targets},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", false},
  });
  return config.dump(2) + "\n";
}

bool is_adapter_directory(const std::string& path) {
  return path_exists(join_path(path, kAdapterConfigFile));
}

Result<AdapterMerge> AdapterMerge::of(const Model& model) {
  AdapterMerge out;
  for (const Adapter& adapter : adapters_of(model)) {
    const Param& weight = model.param(adapter.weight);
    if (weight.uses.size() > 1)
      return Status(Code::unsupported,
                    cat("the adapter of '", adapter.name, "' cannot be merged into '", weight.name,
                        "', which other nodes use"));
    out.of_.emplace(weight.name, Factors{.a = model.param(adapter.a).name,
                                         .b = model.param(adapter.b).name,
                                         .rank = model.param(adapter.a).shape[0],
                                         .rows = weight.shape[0],
                                         .columns = weight.shape[1],
                                         .out_in = adapter.out_in,
                                         .scale = static_cast<float>(adapter.scale)});
  }
  return out;
}

Status AdapterMerge::add(const ReadParam& read, std::string_view param,
                         std::span<float> weight) const {
  const auto at = of_.find(param);
  if (at == of_.end()) return {};
  const Factors& f = at->second;
  if (weight.size() != static_cast<size_t>(f.rows) * static_cast<size_t>(f.columns))
    return Status(Code::data, cat("'", param, "' has ", weight.size(),
                                  " elements, the model of the manifest expects f32[", f.rows, ",",
                                  f.columns, "]"));
  const int64_t in = f.out_in ? f.columns : f.rows, out = f.out_in ? f.rows : f.columns;
  std::vector<float> a(static_cast<size_t>(f.rank * in)), b(static_cast<size_t>(out * f.rank));
  WEFT_TRY(read(f.a, std::as_writable_bytes(std::span(a))));
  WEFT_TRY(read(f.b, std::as_writable_bytes(std::span(b))));
  // Element [row, column] of the product is the sum over k of left[row, k] * right[k, column].
  const float* const left = f.out_in ? b.data() : a.data();
  const float* const right = f.out_in ? a.data() : b.data();
  const int64_t left_row = f.out_in ? f.rank : 1, left_k = f.out_in ? 1 : in,
                right_k = f.out_in ? in : 1, right_column = f.out_in ? 1 : f.rank;
  std::vector<float> sum(static_cast<size_t>(f.columns));
  for (int64_t row = 0; row < f.rows; ++row) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t k = 0; k < f.rank; ++k) {
      const float factor = left[row * left_row + k * left_k];
      for (int64_t column = 0; column < f.columns; ++column)
        sum[static_cast<size_t>(column)] += factor * right[k * right_k + column * right_column];
    }
    float* const to = weight.data() + row * f.columns;
    for (int64_t column = 0; column < f.columns; ++column)
      to[column] += f.scale * sum[static_cast<size_t>(column)];
  }
  return {};
}

}  // namespace weft
