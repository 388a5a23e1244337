#include "runtime/load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "io/adapters.h"
#include "io/model_config.h"
#include "runtime/named_tensors.h"
#include "runtime/optimizer_state.h"

namespace weft {

namespace {

bool has_adapter(const std::vector<TensorSpec>& tensors, bool adapter) {
  return std::any_of(tensors.begin(), tensors.end(), [adapter](const TensorSpec& tensor) {
    return is_adapter(tensor.name) == adapter;
  });
}

// The parameters to load from a file. Adapters keep their values if the file has none, and the
// other parameters if it has only adapters.
NamedTensors model_from(const Plan& plan, const std::vector<TensorSpec>& found,
                        bool only_adapters = false) {
  const bool adapters = only_adapters || has_adapter(found, true),
             others = !only_adapters && has_adapter(found, false);
  const NamedTensors all = model_of(plan);
  NamedTensors out;
  for (size_t i = 0; i < all.tensors.size(); ++i) {
    const std::string& name = all.places[i].name;
    const bool kept = is_adapter(name) ? !adapters && others : !others && adapters;
    if (!kept) out.add(all.tensors[i], ShardPart::model, name);
  }
  return out;
}

// Causal masks of GPT-2 and frequencies of Llama, which old files contain beside the weights.
bool is_constant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// The tensors by the model's names of parameters. Names in files may have the prefix of the
// architecture, which is removed.
struct NamedWeights {
  std::map<std::string_view, Weights::Tensor> params;
  std::optional<Weights::Tensor> tied_head;  // if the model has tied the head ..
  std::string_view tied_to;                  // .. to this parameter
};

constexpr uint64_t kComparedBytes = 1 << 20;  // per comparison

// A head whose weight is tied has no parameter NAME.weight of its own. The parameter that it uses;
// -1: that is no name of such a weight.
ParamId tied_to(const Model& model, std::string_view name) {
  for (const NodeId id : model.outputs()) {
    const Node& node = model.node(id);
    if (!node.weights.empty() && name == cat(node.name, ".weight")) return node.weights.front();
  }
  return -1;
}

Result<NamedWeights> find_weights(const Model& model, const Weights& weights) {
  const auto is_param = [&](std::string_view name) { return model.find_param(name) >= 0; };
  NamedWeights out;
  for (const Weights::Tensor& tensor : weights.tensors) {
    std::string_view name = tensor.entry->name;
    if (!is_param(name) && name.starts_with(kAdapterPrefix))
      name.remove_prefix(kAdapterPrefix.size());
    if (!is_param(name) && name.starts_with(kGpt2Prefix)) name.remove_prefix(kGpt2Prefix.size());
    if (!is_param(name) && is_constant(name)) continue;
    if (const ParamId tied = is_param(name) ? -1 : tied_to(model, name); tied >= 0) {
      out.tied_head = tensor;
      out.tied_to = model.param(tied).name;
    } else if (const auto [at, added] = out.params.emplace(name, tensor); !added) {
      return Status(Code::data, cat(weights.path, ": tensors ", shown(at->second.entry->name),
                                    " and ", shown(tensor.entry->name), " are the same parameter"));
    }
  }
  return out;
}

// A head that differs from the embedding was not tied when it was trained.
Status check_tied_head(const Weights::Tensor& head, const Weights::Tensor& embedding) {
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

// Adam and AdamW have the same tensors with different meanings; the tensors of other rules
// differ.
Status check_rule(const Plan& plan, const Checkpoint& checkpoint) {
  const auto& settings = checkpoint.manifest().optimizer;
  const auto rule = settings.find("rule");
  const bool stateless = state_slots(plan) == 0 && checkpoint.optimizer().empty();
  if (stateless || rule == settings.end() || rule->second == rule_name(plan.config.optim.rule))
    return {};
  return Status(Code::invalid, cat(checkpoint.path(), ": its optimizer is ", shown(rule->second),
                                   ", the plan's '", rule_name(plan.config.optim.rule), "'"));
}

using Names = std::set<std::string, std::less<>>;

Names names_of(const std::vector<TensorSpec>& tensors) {
  Names out;
  for (const TensorSpec& tensor : tensors) out.insert(tensor.name);
  return out;
}

// A parameter that was frozen has no state. With zeros, its first updates would be too large.
Status check_state(const Plan& plan, const Checkpoint& checkpoint) {
  const Names model = names_of(checkpoint.model()), optimizer = names_of(checkpoint.optimizer());
  for (ParamId p = 0; p < static_cast<ParamId>(plan.whole->params().size()); ++p)
    WEFT_TRY(each_state(plan, p, [&](Part, const std::string& name) {
      const std::string& param = plan.whole->param(p).name;
      if (optimizer.contains(name) || !model.contains(param)) return Status();
      return Status(Code::invalid,
                    cat(checkpoint.path(), ": parameter '", param, "' has no optimizer state, ",
                        "because it was frozen; the plan trains it. Freeze it, or load only the ",
                        "weights"));
    }));
  return {};
}

// The optimizer state without that of parameters that the plan freezes, and of moving averages,
// for which earlier versions stored zeros.
std::vector<TensorSpec> state_to_load(const Plan& plan, const Checkpoint& checkpoint) {
  Names unused;
  for (const Param& param : plan.whole->params())
    for (int slot = 0; !param.has_gradient() && slot < state_slots(plan); ++slot)
      unused.insert(optimizer_tensor_name(param.name, slot_name(plan.config.optim, slot)));
  std::vector<TensorSpec> out = checkpoint.optimizer();
  std::erase_if(out, [&](const TensorSpec& tensor) { return unused.contains(tensor.name); });
  return out;
}

Status load_named(Run& run, Checkpoint& checkpoint, const NamedTensors& named) {
  std::vector<Weights::Tensor> from;
  for (const auto& [part, name] : named.places) {
    WEFT_TRY_ASSIGN(const Weights::Tensor tensor, checkpoint.find(part, name));
    from.push_back(tensor);
  }
  return load_tensors(run, named.tensors, from);
}

Status load_model(Run& run, Checkpoint& checkpoint, const NamedTensors& model) {
  WEFT_TRY(compare_tensors(checkpoint.path(), specs_of(run.plan(), model), checkpoint.model()));
  WEFT_TRY(checkpoint.verify());
  return load_named(run, checkpoint, model);
}

}  // namespace

Status load_run(Run& run, Checkpoint& checkpoint) {
  const NamedTensors model = model_of(run.plan());
  const NamedTensors optimizer = optimizer_of(run.plan());
  WEFT_TRY(check_rule(run.plan(), checkpoint));
  WEFT_TRY(check_state(run.plan(), checkpoint));
  WEFT_TRY(compare_tensors(checkpoint.path(), specs_of(run.plan(), optimizer),
                           state_to_load(run.plan(), checkpoint)));
  WEFT_TRY(load_model(run, checkpoint, model));
  WEFT_TRY(load_named(run, checkpoint, optimizer));
  run.set_trained(checkpoint.manifest().step);
  return {};
}

Status load_weights(Run& run, Checkpoint& checkpoint) {
  return load_model(run, checkpoint, model_from(run.plan(), checkpoint.model()));
}

Status load_weights(Run& run, const Weights& weights) {
  WEFT_TRY_ASSIGN(const NamedWeights named, find_weights(*run.plan().whole, weights));
  std::vector<TensorSpec> found;
  for (const auto& [name, tensor] : named.params) {
    WEFT_TRY_ASSIGN(const TensorSpec spec, tensor.entry->float_spec().within(tensor.file->path()));
    found.push_back({std::string(name), spec.desc});
  }
  const NamedTensors model = model_from(run.plan(), found, !weights.adapters.empty());
  WEFT_TRY(compare_tensors(weights.path, specs_of(run.plan(), model), found));
  if (named.tied_head) {
    const auto tied = named.params.find(named.tied_to);
    if (tied == named.params.end())
      return Status(Code::data, cat(weights.path, ": has '", named.tied_head->entry->name,
                                    "', but not '", named.tied_to, "', to which it is tied"));
    WEFT_TRY(check_tied_head(*named.tied_head, tied->second));
  }
  std::vector<Weights::Tensor> from;
  for (const auto& [part, name] : model.places) from.push_back(named.params.at(name));
  return load_tensors(run, model.tensors, from);
}

}  // namespace weft
