// What the presets are built with: their keys, and a builder of models.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/presets.h"

namespace weft {

// One key of a preset: its value, its minimum and its maximum.
struct Key {
  std::string_view name;
  double value, least, most;
  bool whole = true;
};

Status read_keys(std::string_view name, std::string_view text, std::vector<Key>& keys);
// Of a key that is among them.
double value_of(const std::vector<Key>& keys, std::string_view name);
// NAME with every key.
std::string preset_text(std::string_view name, const std::vector<Key>& keys);
Status check_heads(std::string_view name, int64_t width, int64_t heads);
// The length of a sample: options.seq_len, or the whole context.
Result<int64_t> sequence_length(std::string_view name, const PresetOptions& options,
                                int64_t context);

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

}  // namespace weft
