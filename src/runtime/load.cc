#include "runtime/load.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/patterns.h"
#include "base/text.h"
#include "graph/adapters.h"
#include "io/named_weights.h"
#include "runtime/named_tensors.h"
#include "runtime/optimizer_state.h"

namespace weft {

namespace {

bool has_adapter(const std::vector<std::string_view>& names, bool adapter) {
  return std::any_of(names.begin(), names.end(),
                     [adapter](std::string_view name) { return is_adapter(name) == adapter; });
}

// Each pattern matches a parameter of the plan or a tensor of the file.
Status check_patterns(std::string_view kept, const Plan& plan,
                      const std::vector<std::string_view>& found) {
  return each_pattern(kept, [&](std::string_view pattern) {
    const auto& params = plan.whole->params();
    const bool any =
        std::any_of(params.begin(), params.end(),
                    [=](const Param& param) { return matches(pattern, param.name); }) ||
        std::any_of(found.begin(), found.end(),
                    [=](std::string_view name) { return matches(pattern, name); });
    return any ? Status()
               : Status(Code::not_found, cat("pattern ", shown(pattern), " matches no parameter ",
                                             "of the model and none of the file"));
  });
}

// The parameters to load from a file that has these tensors. Adapters keep their values if the file
// has none, and the other parameters if it has only adapters, except for `bases`; so do those that
// match `kept`.
NamedTensors model_from(const Plan& plan, const std::vector<std::string_view>& found,
                        std::string_view kept, bool only_adapters = false,
                        const std::vector<std::string_view>& bases = {}) {
  const bool adapters = only_adapters || has_adapter(found, true),
             others = !only_adapters && has_adapter(found, false);
  const NamedTensors all = model_of(plan);
  NamedTensors out;
  for (size_t i = 0; i < all.tensors.size(); ++i) {
    const std::string& name = all.places[i].name;
    const bool is_base = std::find(bases.begin(), bases.end(), name) != bases.end();
    const bool absent = is_adapter(name) ? !adapters && others : !others && adapters && !is_base;
    if (!absent && !matches_any(kept, name)) out.add(all.tensors[i], ShardPart::model, name);
  }
  return out;
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

// With another scale, the adapters of the file would be weaker or stronger than when they were
// trained.
Status check_scale(const Model& model, const Weights& weights) {
  if (!weights.adapters) return {};
  const double scale = weights.adapters->scale;
  for (const Adapter& adapter : adapters_of(model))
    if (std::abs(adapter.scale - scale) > 1e-5 * scale)
      return Status(Code::invalid,
                    cat(weights.path, ": alpha / rank of its adapters is ", scale,
                        ", that of node '", adapter.name, "' of the model is ", adapter.scale));
  return {};
}

using Names = std::set<std::string, std::less<>>;

Names names_of(const std::vector<TensorSpec>& tensors) {
  Names out;
  for (const TensorSpec& tensor : tensors) out.insert(tensor.name);
  return out;
}

// A parameter that was not trained has no state. With zeros, its first updates would be too large.
Status check_state(const Plan& plan, const Checkpoint& checkpoint) {
  const Names model = names_of(checkpoint.model()), optimizer = names_of(checkpoint.optimizer());
  for (ParamId p = 0; p < static_cast<ParamId>(plan.whole->params().size()); ++p)
    WEFT_TRY(each_state(plan, p, [&](Part, const std::string& name) {
      const std::string& param = plan.whole->param(p).name;
      if (optimizer.contains(name) || !model.contains(param)) return Status();
      return Status(
          Code::invalid,
          cat(checkpoint.path(), ": parameter '", param, "' has no optimizer state, ",
              "because it was frozen, or the loss did not depend on it; the plan trains it. ",
              "Freeze it, or load only the weights"));
    }));
  return {};
}

// The optimizer state without that of parameters that the plan freezes, and of moving averages and
// parameters without a gradient, for which earlier versions stored zeros.
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

Status load_model(Run& run, Checkpoint& checkpoint, const NamedTensors& model,
                  const std::vector<TensorSpec>& found) {
  WEFT_TRY(compare_tensors(checkpoint.path(), specs_of(run.plan(), model), found));
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
  WEFT_TRY(load_model(run, checkpoint, model, checkpoint.model()));
  WEFT_TRY(load_named(run, checkpoint, optimizer));
  run.set_trained(checkpoint.manifest().step);
  return {};
}

Status load_weights(Run& run, Checkpoint& checkpoint, std::string_view kept) {
  std::vector<std::string_view> names;
  for (const TensorSpec& tensor : checkpoint.model()) names.push_back(tensor.name);
  WEFT_TRY(check_patterns(kept, run.plan(), names));
  std::vector<TensorSpec> found = checkpoint.model();
  std::erase_if(found, [kept](const TensorSpec& each) { return matches_any(kept, each.name); });
  return load_model(run, checkpoint, model_from(run.plan(), names, kept), found);
}

Status load_weights(Run& run, const Weights& weights, std::string_view kept) {
  WEFT_TRY_ASSIGN(NamedWeights named, NamedWeights::of(weights, *run.plan().whole));
  std::vector<std::string_view> names = named.names();
  WEFT_TRY(check_scale(*run.plan().whole, weights));
  const NamedTensors model =
      model_from(run.plan(), names, kept, weights.adapters.has_value(), named.bases);
  if (named.tied_head) names.push_back(named.tied_head->entry->name);
  WEFT_TRY(check_patterns(kept, run.plan(), names));
  named.leave_out(kept);
  WEFT_TRY_ASSIGN(const std::vector<TensorSpec> found, named.specs());
  WEFT_TRY(compare_tensors(weights.path, specs_of(run.plan(), model), found));
  WEFT_TRY(named.check_tied_head());
  std::vector<Weights::Tensor> from;
  for (const auto& [part, name] : model.places) from.push_back(named.params.at(name));
  return load_tensors(run, model.tensors, from);
}

}  // namespace weft
