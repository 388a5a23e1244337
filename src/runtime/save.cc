#include "runtime/save.h"

#include <map>

#include "base/text.h"
#include "plan/settings.h"
#include "runtime/optimizer_state.h"

namespace weft {

namespace {

// Calls f(parameter, part, name of the tensor) for the parameters, or for their optimizer state.
template <typename F>
Status each_value(const Plan& plan, F&& f) {
  for (ParamId p = 0; p < static_cast<ParamId>(plan.model->params().size()); ++p)
    WEFT_TRY(f(p, Part::value, plan.model->param(p).name));
  return {};
}

template <typename F>
Status each_state(const Plan& plan, F&& f) {
  for (ParamId p = 0; p < static_cast<ParamId>(plan.model->params().size()); ++p)
    WEFT_TRY(
        each_state(plan, p, [&](Part part, const std::string& name) { return f(p, part, name); }));
  return {};
}

std::span<float> room_for(const Plan& plan, ParamId p, std::vector<float>& values) {
  values.resize(static_cast<size_t>(plan.model->param(p).shape.elements()));
  return values;
}

std::string setting_text(Rule rule) { return std::string(rule_name(rule)); }
std::string setting_text(RateCurve curve) { return std::string(curve_name(curve)); }
std::string setting_text(bool flag) { return flag ? "1" : "0"; }
std::string setting_text(uint64_t number) { return cat(number); }
std::string setting_text(double number) { return to_text(number); }

std::map<std::string, std::string> settings_text(const OptimSettings& settings) {
  std::map<std::string, std::string> out;
  each_optim_setting(
      settings, [&out](const char* name, const auto& value) { out[name] = setting_text(value); });
  return out;
}

// Reads tensor by tensor from whatever holds them and writes them to the run.
template <typename Read>
auto into(Run& run, Read&& read) {
  return [&run, read, values = std::vector<float>()](ParamId p, Part part,
                                                     const std::string& name) mutable -> Status {
    const std::span<float> room = room_for(run.plan(), p, values);
    WEFT_TRY(read(name, room));
    return run.write(p, part, room);
  };
}

// Causal masks, which files of GPT-2 hold beside the weights.
bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// The parameters of a file: by the names of the model, with the prefix that Hugging Face's GPT-2
// with a head has left out.
struct WeightsOfFile {
  std::map<std::string_view, const SafetensorsEntry*> params;
  const SafetensorsEntry* tied_head = nullptr;  // that of a model whose head is its embedding
};

constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight",
                           kEmbedding = "wte.weight";

Result<WeightsOfFile> find_weights(const Model& model, const SafetensorsFile& file) {
  const auto is_param = [&](std::string_view name) { return model.find_param(name) >= 0; };
  WeightsOfFile out;
  for (const SafetensorsEntry& entry : file.entries()) {
    std::string_view name = entry.name;
    if (!is_param(name) && name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (!is_param(name) && is_mask(name)) continue;
    if (name == kHead && !is_param(kHead) && is_param(kEmbedding)) {
      out.tied_head = &entry;
    } else if (const auto [at, added] = out.params.emplace(name, &entry); !added) {
      return Status(Code::data, cat(file.path(), ": tensors ", shown(at->second->name), " and ",
                                    shown(entry.name), " are of one parameter"));
    }
  }
  return out;
}

// A tied head that differs from the embedding was trained on its own.
Status check_tied_head(const SafetensorsFile& file, const SafetensorsEntry& head,
                       const SafetensorsEntry& embedding) {
  std::vector<std::byte> bytes[2];
  const SafetensorsEntry* const entries[2] = {&head, &embedding};
  for (size_t i = 0; i < 2; ++i) {
    bytes[i].resize(entries[i]->end - entries[i]->begin);
    WEFT_TRY(file.read_bytes(*entries[i], bytes[i]));
  }
  if (head.dtype == embedding.dtype && head.shape == embedding.shape && bytes[0] == bytes[1])
    return {};
  return Status(Code::data,
                cat(file.path(), ": tensor ", shown(head.name), " differs from ",
                    shown(embedding.name), ", expected the same values: the model has tied them"));
}

}  // namespace

std::vector<TensorSpec> model_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  for (const Param& p : plan.model->params()) out.push_back({p.name, {DType::f32, p.shape}});
  return out;
}

std::vector<TensorSpec> optimizer_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  (void)each_state(plan, [&](ParamId p, Part, const std::string& name) {
    out.push_back({name, {DType::f32, plan.model->param(p).shape}});
    return Status();
  });
  return out;
}

Result<std::string> save_run(Run& run, const std::string& directory, Manifest manifest) {
  const Plan& plan = run.plan();
  manifest.seed = plan.config.seed;
  manifest.step = run.trained();
  manifest.optimizer = settings_text(plan.config.optim);
  WEFT_TRY_ASSIGN(CheckpointWriter writer,
                  CheckpointWriter::begin(directory, std::move(manifest), model_tensors(plan),
                                          optimizer_tensors(plan)));
  std::vector<float> values;
  const auto write_value = [&](ParamId p, Part part, const std::string& name) -> Status {
    WEFT_TRY(run.read(p, part, room_for(plan, p, values)));
    return writer.write(ShardPart::model, name, 0, std::as_bytes(std::span(values)));
  };
  const auto write_state = [&](ParamId p, Part part, const std::string& name) -> Status {
    WEFT_TRY(run.read(p, part, room_for(plan, p, values)));
    return writer.write(ShardPart::optimizer, name, 0, std::as_bytes(std::span(values)));
  };
  WEFT_TRY(each_value(plan, write_value));
  WEFT_TRY(each_state(plan, write_state));
  return writer.commit();
}

// Adam and AdamW keep the same tensors, and mean other things by them; of other rules the tensors
// would differ.
Status check_rule(const Plan& plan, const Checkpoint& checkpoint) {
  const auto& settings = checkpoint.manifest().optimizer;
  const auto rule = settings.find("rule");
  const bool stateless = state_slots(plan) == 0 && checkpoint.optimizer().empty();
  if (stateless || rule == settings.end() || rule->second == rule_name(plan.config.optim.rule))
    return {};
  return Status(Code::invalid, cat(checkpoint.path(), ": its optimizer is ", shown(rule->second),
                                   ", the plan's '", rule_name(plan.config.optim.rule), "'"));
}

Status load_run(Run& run, Checkpoint& checkpoint) {
  WEFT_TRY(check_rule(run.plan(), checkpoint));
  WEFT_TRY(
      compare_tensors(checkpoint.path(), optimizer_tensors(run.plan()), checkpoint.optimizer()));
  WEFT_TRY(load_weights(run, checkpoint));
  WEFT_TRY(each_state(run.plan(), into(run, [&](const std::string& name, std::span<float> to) {
                        return checkpoint.read_optimizer(name, std::as_writable_bytes(to));
                      })));
  run.set_trained(checkpoint.manifest().step);
  return {};
}

Status load_weights(Run& run, Checkpoint& checkpoint) {
  WEFT_TRY(compare_tensors(checkpoint.path(), model_tensors(run.plan()), checkpoint.model()));
  WEFT_TRY(checkpoint.verify());
  return each_value(run.plan(), into(run, [&](const std::string& name, std::span<float> to) {
                      return checkpoint.read_model(name, std::as_writable_bytes(to));
                    }));
}

Status load_weights(Run& run, const SafetensorsFile& file) {
  WEFT_TRY_ASSIGN(const WeightsOfFile weights, find_weights(*run.plan().model, file));
  std::vector<TensorSpec> found;
  for (const auto& [name, entry] : weights.params) {
    auto spec = entry->spec();
    if (!spec.ok()) return spec.status().within(file.path());
    found.push_back({std::string(name), spec.value().desc});
  }
  WEFT_TRY(compare_tensors(file.path(), model_tensors(run.plan()), found));
  if (weights.tied_head)
    WEFT_TRY(check_tied_head(file, *weights.tied_head, *weights.params.at(kEmbedding)));
  return each_value(run.plan(), into(run, [&](const std::string& name, std::span<float> to) {
                      return file.read(*weights.params.at(name), to);
                    }));
}

}  // namespace weft
