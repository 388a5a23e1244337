#include "graph/presets.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "graph/preset_builder.h"
#include "graph/preset_llama.h"
#include "graph/preset_neox.h"

namespace weft {

namespace {

Result<Preset> make_mlp(std::string_view keys_text, const PresetOptions& options) {
  std::vector<Key> keys = {{"layers", static_cast<double>(std::max(4, options.stages)), 1, 10000},
                           {"width", 256, 1, 1 << 20}};
  WEFT_TRY(read_keys("mlp", keys_text, keys));
  if (options.seq_len) return Status(Code::invalid, "model 'mlp' has no sequence length");
  Preset out;
  out.text = preset_text("mlp", keys);
  out.width = static_cast<int64_t>(keys[1].value);
  Builder b;
  const Desc row{DType::f32, {1, out.width}};
  NodeId x = b.input("x", row);
  const NodeId target = b.input("target", row);
  // Deviation sqrt(2 / width) keeps the size of activations through ReLU (He et al. 2015).
  const double deviation = std::sqrt(2.0 / static_cast<double>(out.width));
  for (int64_t i = 0; i < static_cast<int64_t>(keys[0].value); ++i) {
    const std::string name = cat("layers.", i);
    x = b.node(name + ".relu", "relu", {b.linear(name, x, out.width, out.width, deviation)});
  }
  b.node("loss", "mse", {x, target});
  WEFT_TRY_ASSIGN(out.model, b.finish(x));
  return out;
}

constexpr double kEpsilon = 1e-5;  // of norms

struct GptSizes {
  int64_t blocks, width, heads, context, vocabulary, seq_len;
  double dropout;
  bool tied;
  CacheOptions cache;
  bool packed;
};

// One block: x + attention(norm(x)), then x + mlp(norm(x)).
NodeId gpt_block(Builder& b, const GptSizes& s, int64_t index, NodeId x) {
  const std::string n = cat("h.", index);
  // Each block adds to the residual stream twice.
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(s.blocks));
  Attrs gelu;
  gelu.flags = kTanh;
  NodeId y = b.linear(n + ".attn.c_attn", b.layer_norm(n + ".ln_1", x, s.width, kEpsilon), s.width,
                      3 * s.width, 0.02);
  y = b.attention(n + ".attn", {y}, s.heads, s.dropout);
  y = b.linear(n + ".attn.c_proj", y, s.width, s.width, residual);
  x = b.node(n + ".attn.add", "add", {x, b.dropout(n + ".attn.drop", y, s.dropout)});
  y = b.linear(n + ".mlp.c_fc", b.layer_norm(n + ".ln_2", x, s.width, kEpsilon), s.width,
               4 * s.width, 0.02);
  y = b.node(n + ".mlp.gelu", "gelu", {y}, {}, gelu);
  y = b.linear(n + ".mlp.c_proj", y, 4 * s.width, s.width, residual);
  return b.node(n + ".mlp.add", "add", {x, b.dropout(n + ".mlp.drop", y, s.dropout)});
}

Result<std::shared_ptr<Model>> build_gpt(const GptSizes& s) {
  Builder b;
  const NodeId tokens = b.tokens(s.seq_len, s.cache, s.packed);
  const ParamId wte = b.param("wte.weight", {s.vocabulary, s.width}, {InitKind::normal, 0.02});
  const ParamId wpe = b.param("wpe.weight", {s.context, s.width}, {InitKind::normal, 0.02});
  NodeId x = b.node("embed", "add",
                    {b.node("wte", "embedding", {tokens}, {wte}), b.positions("wpe", tokens, wpe)});
  x = b.dropout("drop", x, s.dropout);
  for (int64_t i = 0; i < s.blocks; ++i) x = gpt_block(b, s, i, x);
  x = b.layer_norm("ln_f", x, s.width, kEpsilon);
  const ParamId head = s.tied ? wte : b.matrix("lm_head", s.vocabulary, s.width);
  x = b.projection("lm_head", x, {head});
  b.loss(x);
  return b.finish(x);
}

Result<Preset> make_gpt(std::string_view name, std::string_view keys_text,
                        const PresetOptions& options) {
  const bool nano = name == "gpt-nano";
  std::vector<Key> keys = {
      {"blocks", nano ? 4.0 : 12.0, 1, 1000},
      {"width", nano ? 128.0 : 768.0, 1, 1 << 16},
      {"heads", nano ? 4.0 : 12.0, 1, 1024},
      {"context", nano ? 128.0 : 1024.0, 1, 1 << 20},
      {"vocabulary", nano ? 256.0 : 50257.0, 2, 1 << 24},
      {"dropout", 0, 0, 0.99, false},
      {"tied", 1, 0, 1},
  };
  WEFT_TRY(read_keys(name, keys_text, keys));
  const auto whole = [&keys](std::string_view key) { return whole_of(keys, key); };
  Preset out = token_preset(name, keys);
  WEFT_TRY_ASSIGN(const CacheOptions cache, choose_length(name, options, out));
  WEFT_TRY(check_heads(name, out.width, whole("heads")));
  const GptSizes sizes{.blocks = whole("blocks"),
                       .width = out.width,
                       .heads = whole("heads"),
                       .context = out.context,
                       .vocabulary = out.vocabulary,
                       .seq_len = out.seq_len,
                       .dropout = cache.sequences > 0 ? 0 : value_of(keys, "dropout"),
                       .tied = whole("tied") != 0,
                       .cache = cache,
                       .packed = options.packed};
  WEFT_TRY_ASSIGN(out.model, build_gpt(sizes));
  return out;
}

Result<Preset> make_known(std::string_view name, std::string_view keys,
                          const PresetOptions& options) {
  if (name == "mlp" && options.cache.sequences > 0)
    return Status(Code::invalid, "model 'mlp' does not take tokens, so it has no decoder");
  if (name == "mlp" && options.packed)
    return Status(Code::invalid, "model 'mlp' does not take tokens, so its samples are not packed");
  if (name == "mlp") return make_mlp(keys, options);
  if (name == "gpt-nano" || name == "gpt2") return make_gpt(name, keys, options);
  if (name == "gpt_neox") return make_neox(name, keys, options);
  if (is_llama(name)) return make_llama(name, keys, options);
  return Status(Code::not_found,
                cat("model '", name, "' is not known; there are mlp, gpt-nano, gpt2, ",
                    "gpt_neox, ", llama_names()));
}

constexpr std::string_view kAdapterKeys = "lora_", kTargets = "lora_targets=";

// The keys of the adapters among the keys of a model.
struct AdapterKeys {
  std::string others, numbers;
  std::vector<std::string> targets;
  bool any = false;

  explicit AdapterKeys(std::string_view keys) {
    while (!keys.empty()) {
      const std::string_view item = take_item(keys, ',');
      any |= item.starts_with(kAdapterKeys);
      if (item.starts_with(kTargets)) {
        for (std::string_view list = item.substr(kTargets.size()); !list.empty();)
          targets.emplace_back(take_item(list, '/'));
        continue;
      }
      std::string& to = item.starts_with(kAdapterKeys) ? numbers : others;
      to += cat(to.empty() ? "" : ",", item);
    }
  }
};

// `decodes`: the model is not trained.
Status add_adapters(std::string_view name, const AdapterKeys& given, bool decodes, Preset& preset) {
  AdapterOptions options;
  std::vector<Key> keys = {
      {"lora_rank", static_cast<double>(options.rank), 1, 1 << 16},
      {"lora_alpha", options.alpha, 1e-30, 1e30, false},
      {"lora_dropout", options.dropout, 0, 0.99, false},
  };
  WEFT_TRY(read_keys(name, given.numbers, keys));
  options = {.rank = whole_of(keys, "lora_rank"),
             .alpha = value_of(keys, "lora_alpha"),
             .dropout = decodes ? 0 : value_of(keys, "lora_dropout"),
             .targets = given.targets};
  WEFT_TRY_ASSIGN(preset.model, adapt(*preset.model, options).within(cat("model '", name, "'")));
  std::string targets;
  for (const std::string& target : options.targets)
    targets += cat(targets.empty() ? "" : "/", target);
  preset.adapters = options;
  if (options.dropout == 0) keys.pop_back();  // as texts of earlier versions
  preset.text += preset_text("", keys).replace(0, 1, ",") + cat(",", kTargets, targets);
  return {};
}

}  // namespace

Result<Preset> make_preset(std::string_view text, const PresetOptions& options) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon),
                         all_keys = text.substr(std::min(colon + 1, text.size()));
  if (text.ends_with(':') || text.ends_with(','))
    return Status(Code::invalid, cat("model '", text, "': expected key=value at its end"));
  const AdapterKeys keys(all_keys);
  WEFT_TRY_ASSIGN(Preset out, make_known(name, keys.others, options));
  if (keys.any) WEFT_TRY(add_adapters(name, keys, options.cache.sequences > 0, out));
  return out;
}

}  // namespace weft
