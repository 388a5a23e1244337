// The caller's data of one step, and what follows from it for the step's descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

// All samples of all inputs of a step, dense and row-major, in the order of Model::inputs().
// Borrowed until the step's final event.
struct Batch {
  int64_t samples = 0;
  std::vector<const void*> inputs;  // null where the mode does not use the input
  bool short_all = false;  // infer: all micro-batches are short, however many samples there are
};

// Cuts the batch: the number of micro-batches, whether the last is short, and the divisor of the
// loss (elements or counted targets of the whole step); gather_updates() sets those of updates.
// Errors name the input, or the numbers of samples that the plan accepts.
Result<StepDescriptor> describe_step(const Plan& plan, Mode mode, bool update, const Batch& batch);

// The samples of one micro-batch of the input that a feed edge carries.
std::span<const std::byte> feed_bytes(const Plan& plan, Mode mode, int32_t edge,
                                      int32_t micro_batch, int32_t variant, const Batch& batch);

// How much the targets of each micro-batch add to the divisor; `counts` has an entry for each.
void count_targets(const Plan& plan, const StepDescriptor& step, const Batch& batch,
                   std::vector<double>& counts);
// Their sums over the updates of a segment; the descriptor refers to them from then on. An update
// without a counted target is refused.
Status gather_updates(const std::vector<double>& counts, std::vector<double>& sums,
                      StepDescriptor& step);

// The sink edge that delivers the loss, or -1; the sink edges that deliver outputs, in their order.
// All of replica 0: delivered_by() is the edge of the replica that has the micro-batch.
int32_t loss_edge(const Plan& plan, Mode mode);
std::vector<int32_t> output_edges(const Plan& plan, Mode mode);
// The sink edge that delivers the gradient of a model input, or -1.
int32_t input_grad_edge(const Plan& plan, NodeId input);
int32_t delivered_by(const ModePlan& mode, int32_t edge, int32_t micro_batch);

}  // namespace weft
