#include "graph/presets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace weft {

namespace {

// One key of a preset: its value, its minimum and its maximum.
struct Key {
  std::string_view name;
  double value, least, most;
  bool whole = true;
};

Status read_keys(std::string_view name, std::string_view text, std::vector<Key>& keys) {
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      return Status(Code::invalid,
                    cat("model '", name, "': expected key=value, found '", pair, "'"));
    const std::string_view key = pair.substr(0, equals), value = pair.substr(equals + 1);
    auto at = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == key; });
    if (at == keys.end()) {
      std::string known;
      for (const Key& k : keys) known += cat(known.empty() ? "" : ", ", k.name);
      return Status(Code::invalid,
                    cat("model '", name, "' has no key '", key, "'; it has ", known));
    }
    if (std::find(given.begin(), given.end(), key) != given.end())
      return Status(Code::invalid, cat("model '", name, "' has the key ", key, " twice"));
    given.push_back(key);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      return Status(Code::invalid,
                    cat("model '", name, "': ", key, " is '", value, "', expected a number"));
    if (!(number >= at->least && number <= at->most) || (at->whole && number != std::floor(number)))
      return Status(Code::invalid, cat("model '", name, "': ", key, " is ", value, ", expected ",
                                       at->whole ? "a whole number" : "a number", " from ",
                                       at->least, " to ", at->most));
    at->value = number;
  }
  return {};
}

std::string text_of(std::string_view name, const std::vector<Key>& keys) {
  std::string out(name);
  for (size_t i = 0; i < keys.size(); ++i)
    out += cat(i ? "," : ":", keys[i].name, "=", keys[i].value);
  return out;
}

// Adds nodes and keeps the first error, so that building a model reads like the model.
class Builder {
 public:
  Builder() : model_(std::make_shared<Model>()) {}

  NodeId input(const char* name, Desc desc) { return keep(model_->add_input(name, desc, false)); }
  ParamId param(const std::string& name, Shape shape, Init init) {
    return keep(model_->add_param(name, shape, init));
  }

  NodeId node(const std::string& name, const char* op, std::vector<NodeId> in,
              std::vector<ParamId> params = {}, Attrs attrs = {}) {
    if (!status_.ok()) return 0;
    return keep(model_->add_node(name, find_op(op), attrs, in, params));
  }

  NodeId linear(const std::string& name, NodeId x, int64_t in, int64_t out, double deviation) {
    const ParamId weight = param(name + ".weight", {in, out}, {InitKind::normal, deviation});
    return node(name, "linear", {x}, {weight, param(name + ".bias", {out}, {})});
  }

  NodeId norm(const std::string& name, NodeId x, int64_t width) {
    Attrs attrs;
    attrs.factor = 1e-5;
    const ParamId weight = param(name + ".weight", {width}, {InitKind::constant, 1});
    return node(name, "layer_norm", {x}, {weight, param(name + ".bias", {width}, {})}, attrs);
  }

  NodeId dropout(const std::string& name, NodeId x, double probability) {
    if (probability == 0) return x;
    Attrs attrs;
    attrs.factor = probability;
    return node(name, "dropout", {x}, {}, attrs);
  }

  Result<std::shared_ptr<Model>> finish(NodeId output) {
    WEFT_TRY(status_);
    WEFT_TRY(model_->add_output(output));
    WEFT_TRY(model_->finish());
    return model_;
  }

 private:
  int32_t keep(Result<int32_t> id) {
    if (!id.ok() && status_.ok()) status_ = id.status();
    return id.ok() ? id.value() : 0;
  }

  std::shared_ptr<Model> model_;
  Status status_;
};

Result<Preset> make_mlp(std::string_view keys_text, const PresetOptions& options) {
  std::vector<Key> keys = {{"layers", static_cast<double>(std::max(4, options.stages)), 1, 10000},
                           {"width", 256, 1, 1 << 20}};
  WEFT_TRY(read_keys("mlp", keys_text, keys));
  if (options.seq_len) return Status(Code::invalid, "model 'mlp' has no sequence length");
  Preset out;
  out.text = text_of("mlp", keys);
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

struct GptSizes {
  int64_t blocks, width, heads, context, vocabulary, seq_len;
  double dropout;
  bool tied;
};

// One block: x + attention(norm(x)), then x + mlp(norm(x)).
NodeId gpt_block(Builder& b, const GptSizes& s, int64_t index, NodeId x) {
  const std::string n = cat("h.", index);
  // Each block adds to the residual stream twice.
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(s.blocks));
  Attrs attention, gelu;
  attention.heads = static_cast<int32_t>(s.heads);
  attention.flags = kCausal;
  attention.factor = s.dropout;
  gelu.flags = kTanh;
  NodeId y =
      b.linear(n + ".attn.c_attn", b.norm(n + ".ln_1", x, s.width), s.width, 3 * s.width, 0.02);
  y = b.node(n + ".attn", "attention", {y}, {}, attention);
  y = b.linear(n + ".attn.c_proj", y, s.width, s.width, residual);
  x = b.node(n + ".attn.add", "add", {x, b.dropout(n + ".attn.drop", y, s.dropout)});
  y = b.linear(n + ".mlp.c_fc", b.norm(n + ".ln_2", x, s.width), s.width, 4 * s.width, 0.02);
  y = b.node(n + ".mlp.gelu", "gelu", {y}, {}, gelu);
  y = b.linear(n + ".mlp.c_proj", y, 4 * s.width, s.width, residual);
  return b.node(n + ".mlp.add", "add", {x, b.dropout(n + ".mlp.drop", y, s.dropout)});
}

Result<std::shared_ptr<Model>> build_gpt(const GptSizes& s) {
  Builder b;
  const Desc ids{DType::i32, {1, s.seq_len}};
  const NodeId tokens = b.input("tokens", ids), targets = b.input("targets", ids);
  const ParamId wte = b.param("wte.weight", {s.vocabulary, s.width}, {InitKind::normal, 0.02});
  const ParamId wpe = b.param("wpe.weight", {s.context, s.width}, {InitKind::normal, 0.02});
  Attrs positions, out_in;
  positions.flags = kPositions;
  out_in.flags = kOutIn;
  NodeId x = b.node("embed", "add",
                    {b.node("wte", "embedding", {tokens}, {wte}),
                     b.node("wpe", "embedding", {tokens}, {wpe}, positions)});
  x = b.dropout("drop", x, s.dropout);
  for (int64_t i = 0; i < s.blocks; ++i) x = gpt_block(b, s, i, x);
  x = b.norm("ln_f", x, s.width);
  const ParamId head =
      s.tied ? wte : b.param("lm_head.weight", {s.vocabulary, s.width}, {InitKind::normal, 0.02});
  x = b.node("lm_head", "linear", {x}, {head}, out_in);
  b.node("loss", "softmax_cross_entropy", {x, targets});
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
  auto whole = [&](size_t i) { return static_cast<int64_t>(keys[i].value); };
  Preset out;
  out.text = text_of(name, keys);
  out.tokens = true;
  out.width = whole(1);
  out.context = whole(3);
  out.vocabulary = whole(4);
  out.seq_len = options.seq_len ? options.seq_len : out.context;
  if (out.seq_len < 1 || out.seq_len > out.context)
    return Status(Code::invalid, cat("sequence length is ", out.seq_len, ", model '", name,
                                     "' has a context of ", out.context));
  if (out.width % whole(2))
    return Status(Code::invalid, cat("model '", name, "': width ", out.width,
                                     " is not a multiple of heads ", whole(2)));
  const GptSizes sizes{.blocks = whole(0),
                       .width = out.width,
                       .heads = whole(2),
                       .context = out.context,
                       .vocabulary = out.vocabulary,
                       .seq_len = out.seq_len,
                       .dropout = keys[5].value,
                       .tied = keys[6].value != 0};
  WEFT_TRY_ASSIGN(out.model, build_gpt(sizes));
  return out;
}

}  // namespace

Result<Preset> make_preset(std::string_view text, const PresetOptions& options) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon),
                         keys = text.substr(std::min(colon + 1, text.size()));
  if (text.ends_with(':') || text.ends_with(','))
    return Status(Code::invalid, cat("model '", text, "': expected key=value at its end"));
  if (name == "mlp") return make_mlp(keys, options);
  if (name == "gpt-nano" || name == "gpt2") return make_gpt(name, keys, options);
  return Status(Code::not_found,
                cat("model '", name, "' is not known; there are mlp, gpt-nano and gpt2"));
}

}  // namespace weft
