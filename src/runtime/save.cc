#include "runtime/save.h"

#include <map>

#include "base/text.h"
#include "plan/settings.h"
#include "runtime/named_tensors.h"
#include "runtime/run.h"

namespace weft {

namespace {

// The tensors of both lists, in the order of a checkpoint's files.
NamedTensors in_order_of(const CheckpointWriter& writer, const NamedTensors& model,
                         const NamedTensors& optimizer) {
  std::map<std::pair<ShardPart, std::string_view>, TensorAt> by_place;
  for (const NamedTensors* list : {&model, &optimizer})
    for (size_t i = 0; i < list->tensors.size(); ++i)
      by_place[{list->places[i].part, list->places[i].name}] = list->tensors[i];
  NamedTensors out;
  for (const auto& [part, name] : writer.order()) out.add(by_place.at({part, name}), part, name);
  return out;
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

Status freed() { return Status(Code::canceled, "the run has been freed"); }

Status write_checkpoint(Run& run, SaveRequest& request, const std::function<void()>& left,
                        const std::atomic<bool>& stop) {
  const Plan& plan = run.plan();
  Manifest manifest = request.manifest;
  manifest.seed = plan.config.seed;
  manifest.optimizer = settings_text(plan.config.optim);
  const NamedTensors model = model_of(plan), optimizer = optimizer_of(plan);
  CheckpointWriter::Frozen frozen{.tensors = {}, .same = run.frozen_saved()};
  std::vector<TensorSpec> others;
  const std::vector<TensorSpec> specs = specs_of(plan, model);
  for (size_t i = 0; i < specs.size(); ++i) {
    const Param& param = plan.whole->param(model.tensors[i].param);
    const bool stays = param.training.frozen && param.average == 0;
    (stays ? frozen.tensors : others).push_back(specs[i]);
  }
  WEFT_TRY_ASSIGN(CheckpointWriter writer,
                  CheckpointWriter::begin(request.directory, std::move(manifest), others,
                                          specs_of(plan, optimizer), kShardBytes, frozen));
  const NamedTensors all = in_order_of(writer, model, optimizer);
  const auto take = [&](size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
    if (stop) return freed();
    const auto& [part, name] = all.places[tensor];
    return writer.write(part, name, offset, bytes);
  };
  WEFT_TRY(read_tensors(run, all.tensors, take, left));
  if (stop) return freed();
  WEFT_TRY_ASSIGN(request.path, writer.commit(run.last_saved()));
  run.set_last_saved(request.path);
  return {};
}

}  // namespace

Status save_run(Run& run, SaveRequest& request, const std::function<void()>& left,
                const std::atomic<bool>& stop) {
  const Status status = attempt([&] { return write_checkpoint(run, request, left, stop); });
  if (status.ok())
    run.log().info([&] { return cat("saved ", request.path); });
  else
    run.log().warning([&] { return cat("not saved: ", status.text()); });
  return status;
}

}  // namespace weft
