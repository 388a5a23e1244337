#include "runtime/batch.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

Result<StepDescriptor> describe_step(const Plan& plan, Mode mode, const Batch& batch) {
  const ModePlan& which = plan.mode(mode);
  const Model& model = *plan.model;
  if (!which.present)
    return Status(Code::state, mode == Mode::infer ? "the model has no output to deliver" : "the model has no loss to train or evaluate");
  if (batch.inputs.size() != model.inputs().size())
    return Status(Code::invalid, cat("batch has ", batch.inputs.size(), " inputs, the model has ", model.inputs().size()));
  for (size_t i = 0; i < batch.inputs.size(); ++i)
    if (!batch.inputs[i] && which.graph.value[static_cast<size_t>(model.inputs()[i])] >= 0)
      return Status(Code::invalid, cat("batch has no data for input '", model.node(model.inputs()[i]).name, "'"));
  const int64_t full = plan.config.micro_batch_size, rest = batch.samples % full, most = full * plan.config.micro_batches;
  if (batch.samples < 1 || batch.samples > most || (rest != 0 && rest != plan.config.short_size)) {
    const std::string shorter = plan.config.short_size ? cat(", or that plus ", plan.config.short_size) : "";
    return Status(Code::invalid, cat("batch has ", batch.samples, " samples, the plan takes a multiple of ", full, shorter, ", at most ", most));
  }
  StepDescriptor step;
  step.mode = mode;
  step.micro_batches = static_cast<int32_t>((batch.samples + full - 1) / full);
  step.short_last = rest != 0;
  if (mode != Mode::infer) {
    const Node& loss = model.node(model.loss());
    const NodeId targets = loss.in[static_cast<size_t>(loss.op->target_port())];
    const auto at = std::find(model.inputs().begin(), model.inputs().end(), targets) - model.inputs().begin();
    step.denominator = loss.op->count({const_cast<void*>(batch.inputs[static_cast<size_t>(at)]), model.desc(targets, batch.samples)});
    if (!(step.denominator > 0)) return Status(Code::invalid, cat("input '", model.node(targets).name, "' has no target that counts"));
  }
  return step;
}

std::span<const std::byte> feed_bytes(const Plan& plan, const StepDescriptor& step, int32_t edge, int32_t micro_batch, const Batch& batch) {
  const ModePlan& mode = plan.mode(step.mode);
  const Edge& e = mode.edges[static_cast<size_t>(edge)];
  const NodeId node = mode.graph.tensors[static_cast<size_t>(e.tensor)].node;
  const auto& inputs = plan.model->inputs();
  const size_t input = static_cast<size_t>(std::find(inputs.begin(), inputs.end(), node) - inputs.begin());
  const size_t variant = step.short_last && micro_batch == step.micro_batches - 1 ? 1 : 0;
  const std::byte* start = static_cast<const std::byte*>(batch.inputs[input]);
  return {start + static_cast<size_t>(micro_batch) * e.desc[0].bytes(), e.desc[variant].bytes()};
}

}  // namespace weft
