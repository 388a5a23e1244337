#include "runtime/batch.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {

// Index among the model's inputs of the one that holds the targets.
size_t target_input(const Model& model) {
  const Node& loss = model.node(model.loss());
  const NodeId targets = loss.in[static_cast<size_t>(loss.op->target_port())];
  return static_cast<size_t>(std::find(model.inputs().begin(), model.inputs().end(), targets) -
                             model.inputs().begin());
}

// The sink edge that delivers a tensor, or -1.
int32_t sink_edge(const ModePlan& mode, TensorId tensor) {
  for (int32_t id : mode.ranks[0].edges)
    if (const Edge& e = mode.edges[static_cast<size_t>(id)];
        e.kind == EdgeKind::sink && e.tensor == tensor)
      return id;
  return -1;
}

Status check_rounds(const Plan& plan, int32_t micro_batches) {
  const int32_t each = plan.config.micro_batches;
  for (size_t s = 0; s < plan.stage_replicas.size(); ++s)
    if (const int32_t replicas = plan.stage_replicas[s]; micro_batches % (each * replicas) != 0)
      return Status(
          Code::invalid,
          cat("batch has ", micro_batches, micro_batches == 1 ? " micro-batch" : " micro-batches",
              ", expected a multiple of ",
              each > 1 ? cat(each * replicas, ", ", each, " for each of ") : std::string(), "the ",
              replicas, " replicas of stage ", s));
  return {};
}

}  // namespace

Result<StepDescriptor> describe_step(const Plan& plan, Mode mode, bool update, const Batch& batch) {
  const ModePlan& which = plan.mode(mode);
  const Model& model = *plan.model;
  if (!which.present) {
    constexpr const char* kSteps[] = {"WEFT_STEPS_TRAIN", "WEFT_STEPS_EVAL", "WEFT_STEPS_FORWARD",
                                      "WEFT_STEPS_FILL"};
    constexpr const char* kWhy[] = {
        "the model has no loss to train or evaluate", "the model has no loss to train or evaluate",
        "the model has no output to deliver", "no node of the model keeps state to fill"};
    if (supports(model, mode))
      return Status(Code::state,
                    cat("the plan was made without ", kSteps[static_cast<size_t>(mode)],
                        ", so it has no memory for such a step"));
    return Status(Code::state, kWhy[static_cast<size_t>(mode)]);
  }
  if (batch.inputs.size() != model.inputs().size())
    return Status(Code::invalid, cat("batch has ", batch.inputs.size(), " inputs, the model has ",
                                     model.inputs().size()));
  for (size_t i = 0; i < batch.inputs.size(); ++i)
    if (!batch.inputs[i] && which.graph.value[static_cast<size_t>(model.inputs()[i])] >= 0)
      return Status(Code::invalid,
                    cat("batch has no data for input '", model.node(model.inputs()[i]).name, "'"));
  const int64_t full = plan.config.micro_batch_size, rest = batch.samples % full,
                most = full * plan.micro_batches(mode);
  // A forward step of less than a full micro-batch can have several short ones, so that all ranks
  // of a pipeline have work.
  const int64_t small = plan.config.short_size;
  const bool all_short = !has_loss(mode) && small > 0 &&
                         (batch.short_all || batch.samples < full) && batch.samples % small == 0 &&
                         batch.samples <= small * plan.micro_batches(mode);
  if (batch.samples < 1 || batch.samples > most ||
      (rest != 0 && rest != plan.config.short_size && !all_short)) {
    const std::string shorter = small ? cat(", or ", small, " more than 0 or a multiple") : "";
    const std::string shortest =
        small && !has_loss(mode) ? cat("; below ", full, " also a multiple of ", small) : "";
    const std::string sizes = small == 0 && most == full
                                  ? cat(full)
                                  : cat("a multiple of ", full, shorter, ", from ",
                                        small ? small : full, " to ", most, shortest);
    return Status(
        Code::invalid,
        cat("batch has ", batch.samples, " samples, a step of mode ", mode_name(mode),
            mode == Mode::train && !update ? " without an update" : "", " takes ", sizes));
  }
  StepDescriptor step;
  step.mode = mode;
  step.update = update;
  step.per_update = plan.per_update(mode, update);
  step.micro_batches = static_cast<int32_t>((batch.samples + full - 1) / full);
  step.short_last = rest != 0;
  if (all_short) {
    step.micro_batches = static_cast<int32_t>(batch.samples / small);
    step.short_all = step.micro_batches > 1;
    step.short_last = !step.short_all;
  }
  if (step.per_update > 0) WEFT_TRY(check_rounds(plan, step.micro_batches));
  if (has_loss(mode)) {
    const size_t at = target_input(model);
    const NodeId targets = model.inputs()[at];
    step.denominator =
        model.node(model.loss())
            .op->count({const_cast<void*>(batch.inputs[at]), model.desc(targets, batch.samples)});
    if (!(step.denominator > 0))
      return Status(Code::invalid,
                    cat("input '", model.node(targets).name, "' has no target that counts"));
  }
  return step;
}

std::span<const std::byte> feed_bytes(const Plan& plan, Mode mode, int32_t edge,
                                      int32_t micro_batch, int32_t variant, const Batch& batch) {
  const Edge& e = plan.mode(mode).edges[static_cast<size_t>(edge)];
  const NodeId node = plan.mode(mode).graph.tensors[static_cast<size_t>(e.tensor)].node;
  const auto& inputs = plan.model->inputs();
  const size_t input =
      static_cast<size_t>(std::find(inputs.begin(), inputs.end(), node) - inputs.begin());
  const std::byte* start = static_cast<const std::byte*>(batch.inputs[input]);
  // The size of the micro-batches before it: see describe_step().
  const size_t before = batch.short_all || batch.samples < plan.config.micro_batch_size ? 1 : 0;
  return {start + static_cast<size_t>(micro_batch) * e.desc[before].bytes(),
          e.desc[static_cast<size_t>(variant)].bytes()};
}

void count_targets(const Plan& plan, const StepDescriptor& step, const Batch& batch,
                   std::vector<double>& counts) {
  counts.clear();
  if (!has_loss(step.mode)) return;
  const Model& model = *plan.model;
  const size_t at = target_input(model);
  const NodeId targets = model.inputs()[at];
  const std::byte* from = static_cast<const std::byte*>(batch.inputs[at]);
  for (int32_t mb = 0; mb < step.micro_batches; ++mb) {
    const Desc desc = model.desc(targets, plan.samples(variant_of(step, mb)));
    counts.push_back(model.node(model.loss()).op->count({const_cast<std::byte*>(from), desc}));
    from += desc.bytes();
  }
}

Status gather_updates(const std::vector<double>& counts, std::vector<double>& sums,
                      StepDescriptor& step) {
  sums.clear();
  if (step.per_update == 0) return {};
  sums.resize(static_cast<size_t>(updates_of(step)), 0.0);
  for (int32_t mb = 0; mb < step.micro_batches; ++mb)
    sums[static_cast<size_t>(update_of(step, mb))] += counts[static_cast<size_t>(mb)];
  for (size_t u = 0; u < sums.size(); ++u)
    if (!(sums[u] > 0))
      return Status(Code::invalid, cat("update ", u, " of the segment has no target that counts"));
  step.denominators = sums;
  return {};
}

int32_t loss_edge(const Plan& plan, Mode mode) {
  if (!has_loss(mode) || plan.model->loss() < 0) return -1;
  const ModePlan& which = plan.mode(mode);
  return sink_edge(which, which.graph.value[static_cast<size_t>(plan.model->loss())]);
}

std::vector<int32_t> output_edges(const Plan& plan, Mode mode) {
  const ModePlan& which = plan.mode(mode);
  std::vector<int32_t> out;
  if (!which.present || !plan.config.delivers_outputs(mode)) return out;
  for (NodeId o : plan.model->outputs())
    out.push_back(sink_edge(which, which.graph.value[static_cast<size_t>(o)]));
  return out;
}

int32_t input_grad_edge(const Plan& plan, NodeId input) {
  const ModePlan& train = plan.mode(Mode::train);
  if (!train.present || train.graph.grad[static_cast<size_t>(input)] < 0) return -1;
  return sink_edge(train, train.graph.grad[static_cast<size_t>(input)]);
}

// The sink edges of a tensor are adjacent, replica by replica.
int32_t delivered_by(const ModePlan& mode, int32_t edge, int32_t micro_batch) {
  while (!mode.edges[static_cast<size_t>(edge)].has(micro_batch)) ++edge;
  return edge;
}

}  // namespace weft
