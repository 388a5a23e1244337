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

Status check_mode(const Plan& plan, Mode mode) {
  if (plan.mode(mode).present) return {};
  constexpr const char* kSteps[] = {"WEFT_STEPS_TRAIN", "WEFT_STEPS_EVAL", "WEFT_STEPS_FORWARD",
                                    "WEFT_STEPS_FILL"};
  constexpr const char* kWhy[] = {
      "the model has no loss to train or evaluate", "the model has no loss to train or evaluate",
      "the model has no output to deliver", "no node of the model keeps state to fill"};
  if (!supports(*plan.model, mode)) return Status(Code::state, kWhy[static_cast<size_t>(mode)]);
  return Status(Code::state, cat("the plan was made without ", kSteps[static_cast<size_t>(mode)],
                                 ", so it has no memory for such a step"));
}

Status check_inputs(const Plan& plan, Mode mode, const Batch& batch) {
  const Model& model = *plan.model;
  const std::vector<NodeId>& inputs = model.inputs();
  if (batch.inputs.size() != inputs.size())
    return Status(Code::invalid,
                  cat("batch has ", batch.inputs.size(), " inputs, the model has ", inputs.size()));
  const auto& read = plan.mode(mode).graph.value;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!batch.inputs[i] && read[static_cast<size_t>(inputs[i])] >= 0)
      return Status(Code::invalid,
                    cat("batch has no data for input '", model.node(inputs[i]).name, "'"));
  return {};
}

// The numbers of samples that a step can have: those of full micro-batches, and of a short one
// after them. A forward step of less than a full micro-batch can have several short ones, so that
// all ranks of a pipeline have work.
struct StepSizes {
  StepSizes(const Plan& plan, Mode mode)
      : full(plan.config.micro_batch_size),
        small(plan.config.short_size),
        most_micro_batches(plan.micro_batches(mode)),
        can_be_all_short(small > 0 && !has_loss(mode)) {}

  bool all_short(const Batch& batch) const {
    return can_be_all_short && (batch.short_all || batch.samples < full) &&
           batch.samples % small == 0 && batch.samples <= small * most_micro_batches;
  }
  bool accept(const Batch& batch) const {
    if (batch.samples < 1 || batch.samples > full * most_micro_batches) return false;
    const int64_t rest = batch.samples % full;
    return rest == 0 || rest == small || all_short(batch);
  }
  std::string text() const {
    const int64_t most = full * most_micro_batches;
    if (small == 0 && most == full) return cat(full);
    std::string out = cat("a multiple of ", full);
    if (small > 0) append(out, ", or ", small, " more than 0 or a multiple");
    append(out, ", from ", small > 0 ? small : full, " to ", most);
    if (can_be_all_short) append(out, "; below ", full, " also a multiple of ", small);
    return out;
  }

  const int64_t full, small;  // samples of a micro-batch; small 0: none is short
  const int64_t most_micro_batches;
  const bool can_be_all_short;
};

void set_micro_batches(const StepSizes& sizes, const Batch& batch, StepDescriptor& step) {
  const int64_t each = sizes.all_short(batch) ? sizes.small : sizes.full;
  step.micro_batches = static_cast<int32_t>((batch.samples + each - 1) / each);
  step.short_all = sizes.all_short(batch) && step.micro_batches > 1;
  step.short_last = !step.short_all && batch.samples % sizes.full != 0;
}

Status set_denominator(const Model& model, const Batch& batch, StepDescriptor& step) {
  const size_t at = target_input(model);
  const NodeId targets = model.inputs()[at];
  const View view{const_cast<void*>(batch.inputs[at]), model.desc(targets, batch.samples)};
  step.denominator = model.node(model.loss()).op->count(view);
  if (step.denominator > 0) return {};
  return Status(Code::invalid,
                cat("input '", model.node(targets).name, "' has no target that counts"));
}

}  // namespace

Result<StepDescriptor> describe_step(const Plan& plan, Mode mode, bool update, const Batch& batch) {
  WEFT_TRY(check_mode(plan, mode));
  WEFT_TRY(check_inputs(plan, mode, batch));
  const StepSizes sizes(plan, mode);
  if (!sizes.accept(batch))
    return Status(
        Code::invalid,
        cat("batch has ", batch.samples, " samples, a step of mode ", mode_name(mode),
            mode == Mode::train && !update ? " without an update" : "", " takes ", sizes.text()));
  StepDescriptor step;
  step.mode = mode;
  step.update = update;
  step.per_update = plan.per_update(mode, update);
  set_micro_batches(sizes, batch, step);
  if (step.per_update > 0) WEFT_TRY(check_rounds(plan, step.micro_batches));
  if (has_loss(mode)) WEFT_TRY(set_denominator(*plan.model, batch, step));
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
