#include "io/named_weights.h"

#include <algorithm>

#include "base/patterns.h"
#include "base/text.h"
#include "io/adapters.h"
#include "io/model_config.h"

namespace weft {

namespace {

constexpr uint64_t kComparedBytes = 1 << 20;  // per comparison

// Causal masks of GPT-2 and GPT-NeoX and frequencies of rotations, which old files contain beside
// the weights.
bool is_constant(std::string_view name, const SafetensorsEntry& entry) {
  const auto ends_with = [name](std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(),
                       [name](std::string_view end) { return name.ends_with(end); });
  };
  constexpr int kMaskDims = 4;  // a bias has one
  if (ends_with({".attn.bias", ".attention.bias"})) return entry.shape.rank == kMaskDims;
  return ends_with({".attn.masked_bias", ".attention.masked_bias", ".rotary_emb.inv_freq"});
}

// A head whose weight is tied has no parameter NAME.weight of its own. The parameter that it uses;
// -1: that is no name of such a weight.
ParamId tied_param(const Model& model, std::string_view name) {
  for (const NodeId id : model.outputs()) {
    const Node& node = model.node(id);
    if (!node.weights.empty() && name == cat(node.name, ".weight")) return node.weights.front();
  }
  return -1;
}

// The parameter whose value is NAME.base_layer.weight, or -1.
ParamId base_param(const std::vector<Adapter>& adapters, std::string_view name) {
  for (const Adapter& adapter : adapters)
    if (name == cat(adapter.name, ".base_layer.weight")) return adapter.weight;
  return -1;
}

}  // namespace

Result<NamedWeights> NamedWeights::of(const Weights& weights, const Model& model) {
  const auto is_param = [&](std::string_view name) { return model.find_param(name) >= 0; };
  NamedWeights out;
  out.weights = &weights;
  const std::vector<Adapter> adapters =
      weights.adapters ? adapters_of(model) : std::vector<Adapter>();
  for (const Weights::Tensor& tensor : weights.tensors) {
    std::string_view name = tensor.entry->name;
    if (!is_param(name) && name.starts_with(kAdapterPrefix))
      name.remove_prefix(kAdapterPrefix.size());
    if (!is_param(name) && name.starts_with(kGpt2Prefix)) name.remove_prefix(kGpt2Prefix.size());
    if (!is_param(name) && is_constant(name, *tensor.entry)) continue;
    if (const ParamId base = base_param(adapters, name); base >= 0) {
      name = model.param(base).name;
      out.bases.push_back(name);
    }
    if (const ParamId tied = is_param(name) ? -1 : tied_param(model, name); tied >= 0) {
      out.tied_head = tensor;
      out.tied_to = model.param(tied).name;
    } else if (const auto [at, added] = out.params.emplace(name, tensor); !added) {
      return Status(Code::data, cat(weights.path, ": tensors ", shown(at->second.entry->name),
                                    " and ", shown(tensor.entry->name), " are the same parameter"));
    }
  }
  return out;
}

std::vector<std::string_view> NamedWeights::names() const {
  std::vector<std::string_view> out;
  for (const auto& [name, tensor] : params) out.push_back(name);
  return out;
}

void NamedWeights::leave_out(std::string_view patterns) {
  std::erase_if(params, [=](const auto& param) { return matches_any(patterns, param.first); });
  if (tied_head &&
      (matches_any(patterns, tied_to) || matches_any(patterns, tied_head->entry->name)))
    tied_head.reset();
}

Result<std::vector<TensorSpec>> NamedWeights::specs() const {
  std::vector<TensorSpec> out;
  for (const auto& [name, tensor] : params) {
    WEFT_TRY_ASSIGN(const TensorSpec spec, tensor.entry->float_spec().within(tensor.file->path()));
    out.push_back({std::string(name), spec.desc});
  }
  return out;
}

Status NamedWeights::check_tied_head() const {
  if (!tied_head) return {};
  const auto tied = params.find(tied_to);
  if (tied == params.end())
    return Status(Code::data, cat(weights->path, ": has '", tied_head->entry->name, "', but not '",
                                  tied_to, "', to which it is tied"));
  const Weights::Tensor& head = *tied_head;
  const Weights::Tensor& embedding = tied->second;
  const SafetensorsEntry &a = *head.entry, &b = *embedding.entry;
  bool same = a.dtype == b.dtype && a.shape == b.shape;
  const uint64_t all = a.end - a.begin;
  std::vector<std::byte> bytes[2];
  for (uint64_t offset = 0; same && offset < all; offset += kComparedBytes) {
    for (auto& piece : bytes) piece.resize(std::min(kComparedBytes, all - offset));
    WEFT_TRY(head.file->read_piece(a, offset, bytes[0]));
    WEFT_TRY(embedding.file->read_piece(b, offset, bytes[1]));
    same = bytes[0] == bytes[1];
  }
  if (same) return {};
  return Status(Code::data,
                cat(head.file->path(), ": tensor ", shown(a.name), " differs from ", shown(b.name),
                    ", expected the same values: the model has tied them"));
}

}  // namespace weft
