// What the presets are built with: their keys, and a builder of models.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/presets.h"

namespace weft {

// One key of a preset: its value, its minimum and its maximum. A list of numbers is written as
// "1/2.5", and may be empty.
struct Key {
  std::string_view name;
  double value, least, most;
  bool whole = true;
  bool is_list = false;
  std::vector<double> list = {};
};

Status read_keys(std::string_view name, std::string_view text, std::vector<Key>& keys);
// Of a key that is among them.
double value_of(const std::vector<Key>& keys, std::string_view name);
const std::vector<double>& list_of(const std::vector<Key>& keys, std::string_view name);
// NAME with every key.
std::string preset_text(std::string_view name, const std::vector<Key>& keys);
int64_t whole_of(const std::vector<Key>& keys, std::string_view name);
// A preset with tokens and its sizes. It has no model and no sequence length yet.
Preset token_preset(std::string_view name, const std::vector<Key>& keys);
Status check_heads(std::string_view name, int64_t width, int64_t heads);
// Sets `seq_len` of a preset whose context is set: options.seq_len, the length of the cache, or the
// whole context. Returns the cache, with its length.
Result<CacheOptions> choose_length(std::string_view name, const PresetOptions& options,
                                   Preset& preset);

// What the op rope gets.
struct Rotation {
  std::vector<float> frequencies;
  double factor = 0;
};

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

  // A weight as Llama and GPT-NeoX store it: [out, in].
  ParamId matrix(const std::string& name, int64_t out, int64_t in) {
    return param(name + ".weight", {out, in}, {InitKind::normal, 0.02});
  }
  NodeId projection(const std::string& name, NodeId x, std::vector<ParamId> params) {
    Attrs attrs;
    attrs.flags = kOutIn;
    return node(name, "linear", {x}, std::move(params), attrs);
  }

  NodeId layer_norm(const std::string& name, NodeId x, int64_t width, double epsilon) {
    Attrs attrs;
    attrs.factor = epsilon;
    const ParamId weight = param(name + ".weight", {width}, {InitKind::constant, 1});
    return node(name, "layer_norm", {x}, {weight, param(name + ".bias", {width}, {})}, attrs);
  }

  // The input "tokens". In a decoder, attentions keep keys and values. There, and if samples are
  // packed, positions are an input.
  NodeId tokens(int64_t seq_len, const CacheOptions& cache, bool packed) {
    cache_ = cache;
    length_ = seq_len;
    const NodeId tokens = input("tokens", ids(decodes() ? 1 : seq_len));
    if (!decodes()) {
      targets_ = input("targets", ids(seq_len));
      if (packed) positions_ = input("positions", ids(seq_len));
      return tokens;
    }
    positions_ = input("positions", ids(1));
    sequences_ = input("sequences", ids(1));
    return tokens;
  }
  bool decodes() const { return cache_.sequences > 0; }

  // The loss, except in a decoder.
  void loss(NodeId logits) {
    if (!decodes()) node("loss", "softmax_cross_entropy", {logits, targets_});
  }

  // Causal attention to the last `window` tokens; 0: to all. With a cap of scores; 0: none.
  NodeId attention(const std::string& name, std::vector<NodeId> in, int64_t heads,
                   double dropout = 0, int64_t window = 0, double cap = 0) {
    Attrs attrs;
    attrs.cap = cap;
    attrs.heads = static_cast<int32_t>(heads);
    if (!decodes()) {
      attrs.flags = kCausal;
      attrs.factor = dropout;
      if (window > 0 && window < length_) attrs.dims = {window};
      if (has_positions()) in.push_back(positions_);
      return node(name, "attention", std::move(in), {}, attrs);
    }
    if (cache_.bf16) attrs.flags = kBf16Cache;
    attrs.dims = {cache_.sequences, cache_.length};
    if (window > 0 && window < cache_.length)
      attrs.dims = {cache_.sequences, cache_.length, window};
    in.insert(in.end(), {positions_, sequences_});
    return node(name, "cached_attention", std::move(in), {}, attrs);
  }

  NodeId scale(const std::string& name, NodeId x, double factor) {
    if (factor == 1) return x;
    Attrs attrs;
    attrs.factor = factor;
    return node(name, "scale", {x}, {}, attrs);
  }

  NodeId softcap(const std::string& name, NodeId x, double cap) {
    if (cap == 0) return x;
    Attrs attrs;
    attrs.cap = cap;
    return node(name, "softcap", {x}, {}, attrs);
  }

  // The rows of a table for the positions of tokens.
  NodeId positions(const std::string& name, NodeId tokens, ParamId table) {
    if (has_positions()) return node(name, "embedding", {positions_}, {table});
    Attrs attrs;
    attrs.flags = kPositions;
    return node(name, "embedding", {tokens}, {table}, attrs);
  }

  NodeId rope(const std::string& name, NodeId x, int64_t heads, const Rotation& rotation) {
    Attrs attrs;
    attrs.heads = static_cast<int32_t>(heads);
    attrs.frequencies = rotation.frequencies;
    attrs.factor = rotation.factor;
    std::vector<NodeId> in{x};
    if (has_positions()) in.push_back(positions_);
    return node(name, "rope", in, {}, attrs);
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

  bool has_positions() const { return positions_ >= 0; }
  static Desc ids(int64_t seq_len) { return {DType::i32, {1, seq_len}}; }

  std::shared_ptr<Model> model_;
  Status status_;
  CacheOptions cache_;
  int64_t length_ = 0;
  NodeId targets_ = 0, positions_ = -1, sequences_ = 0;
};

}  // namespace weft
