#include "runtime/save.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {

// Calls f(parameter, part, name of the tensor) for the parameters, or for their optimizer state.
template <typename F>
Status each_value(const Plan& plan, F&& f) {
  for (ParamId p = 0; p < static_cast<ParamId>(plan.model->params().size()); ++p) WEFT_TRY(f(p, Part::value, plan.model->param(p).name));
  return {};
}

template <typename F>
Status each_state(const Plan& plan, F&& f) {
  const OptimSettings& optim = plan.config.optim;
  for (ParamId p = 0; p < static_cast<ParamId>(plan.model->params().size()); ++p)
    for (int slot = 0; slot < slots(optim); ++slot)
      WEFT_TRY(f(p, slot == 0 ? Part::state0 : Part::state1, optimizer_tensor_name(plan.model->param(p).name, slot_name(optim, slot))));
  return {};
}

std::span<float> room_for(const Plan& plan, ParamId p, std::vector<float>& values) {
  values.resize(static_cast<size_t>(plan.model->param(p).shape.elements()));
  return values;
}

std::map<std::string, std::string> settings_text(const OptimSettings& s) {
  return {{"rule", std::string(rule_name(s.rule))},
          {"rate", to_text(s.rate)},
          {"momentum", to_text(s.momentum)},
          {"beta1", to_text(s.beta1)},
          {"beta2", to_text(s.beta2)},
          {"eps", to_text(s.eps)},
          {"weight_decay", to_text(s.weight_decay)},
          {"decay_all", s.decay_all ? "1" : "0"},
          {"curve", std::string(curve_name(s.curve))},
          {"warmup", cat(s.warmup)},
          {"total", cat(s.total)},
          {"min_rate", to_text(s.min_rate)},
          {"clip", to_text(s.clip)}};
}

// Reads tensor by tensor from whatever holds them and writes them to the run.
template <typename Read>
auto into(Run& run, Read&& read) {
  return [&run, read, values = std::vector<float>()](ParamId p, Part part, const std::string& name) mutable -> Status {
    const std::span<float> room = room_for(run.plan(), p, values);
    WEFT_TRY(read(name, room));
    return run.write(p, part, room);
  };
}

// Causal masks, which files of GPT-2 hold beside the weights.
bool is_mask(std::string_view name) { return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"); }

}  // namespace

std::vector<TensorSpec> model_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  for (const Param& p : plan.model->params()) out.push_back({p.name, {DType::f32, p.shape}});
  return out;
}

std::vector<TensorSpec> optimizer_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  for (const Param& p : plan.model->params())
    for (int slot = 0; slot < slots(plan.config.optim); ++slot)
      out.push_back({optimizer_tensor_name(p.name, slot_name(plan.config.optim, slot)), {DType::f32, p.shape}});
  return out;
}

Result<std::string> save_run(Run& run, const std::string& directory, Manifest manifest) {
  const Plan& plan = run.plan();
  manifest.seed = plan.config.seed;
  manifest.step = run.trained();
  manifest.optimizer = settings_text(plan.config.optim);
  WEFT_TRY_ASSIGN(CheckpointWriter writer,
                  CheckpointWriter::begin(directory, std::move(manifest), model_tensors(plan), optimizer_tensors(plan)));
  std::vector<float> values;
  const auto write_value = [&](ParamId p, Part part, const std::string& name) -> Status {
    WEFT_TRY(run.read(p, part, room_for(plan, p, values)));
    return writer.write_model(name, std::as_bytes(std::span(values)));
  };
  const auto write_state = [&](ParamId p, Part part, const std::string& name) -> Status {
    WEFT_TRY(run.read(p, part, room_for(plan, p, values)));
    return writer.write_optimizer(name, std::as_bytes(std::span(values)));
  };
  WEFT_TRY(each_value(plan, write_value));
  WEFT_TRY(each_state(plan, write_state));
  return writer.commit();
}

Status load_run(Run& run, Checkpoint& checkpoint) {
  WEFT_TRY(compare_tensors(checkpoint.path(), optimizer_tensors(run.plan()), checkpoint.optimizer()));
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
  const std::vector<TensorSpec> expected = model_tensors(run.plan());
  const auto is_expected = [&](std::string_view name) {
    return std::any_of(expected.begin(), expected.end(), [&](const TensorSpec& tensor) { return tensor.name == name; });
  };
  std::vector<TensorSpec> found;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (is_mask(entry.name) && !is_expected(entry.name)) continue;
    auto spec = entry.spec();
    if (!spec.ok()) return spec.status().within(file.path());
    found.push_back(spec.take());
  }
  WEFT_TRY(compare_tensors(file.path(), expected, found));
  return each_value(run.plan(), into(run, [&](const std::string& name, std::span<float> to) { return file.read(*file.find(name), to); }));
}

}  // namespace weft
