// Weight gradients of several micro-batches at once (Job::together).
#include <algorithm>
#include <array>

#include "base/text.h"
#include "runtime/clock.h"
#include "runtime/worker.h"

namespace weft {

namespace {

// Whether a call of W reads copies of operands.
bool has_copies(const ProgramCall& call) {
  const auto is_copied = [](const PlacedOperand& operand) { return bool(operand.converted); };
  return is_copied(call.dout) || is_copied(call.out) ||
         std::any_of(call.in.begin(), call.in.end(), is_copied) ||
         std::any_of(call.stash.begin(), call.stash.end(), is_copied);
}

}  // namespace

Status Worker::run_together(const StepDescriptor& step, const RankProgram& program,
                            const ActionProgram& action, std::span<const Job> jobs) {
  while (!jobs.empty() && jobs.back().micro_batch >= step.micro_batches)
    jobs = jobs.first(jobs.size() - 1);
  if (jobs.empty()) return {};
  for (size_t c = 0; c < action.calls.size(); ++c) {
    const int64_t begin = call_times_ ? monotonic_ns() : 0;
    WEFT_TRY(run_sum(step, program, action, c, jobs));
    if (call_times_) call_times_->push_back(monotonic_ns() - begin);
  }
  return {};
}

Status Worker::run_sum(const StepDescriptor& step, const RankProgram& program,
                       const ActionProgram& action, size_t c, std::span<const Job> jobs) {
  const ProgramCall& call = action.calls[c];
  const auto bound_of = [&](size_t i) -> BoundCall& {
    const auto variant = static_cast<size_t>(variant_of(step, jobs[i].micro_batch));
    BoundCall& first =
        bound_[static_cast<size_t>(step.mode)][variant][static_cast<size_t>(jobs[i].program)][c];
    return i == 0 ? first : first.others[i - 1];
  };
  if (has_copies(call)) {  // in the same scratch memory
    for (size_t i = 0; i < jobs.size(); ++i)
      WEFT_TRY(run_call(step, program, call, bound_of(i), jobs[i].micro_batch));
    return {};
  }
  std::array<Call, kMostTogether> calls;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int32_t micro_batch = jobs[i].micro_batch;
    point(program, call, bound_of(i), micro_batch);
    calls[i] = make_call(step, program, call, bound_of(i), micro_batch,
                         GroupSums(*plan_, step, micro_batch));
  }
  const Node& node = plan_->model->node(call.node);
  const Status status = node.op->weight_grads(std::span(calls).first(jobs.size()));
  if (status.ok()) return {};
  return status.within(cat("node '", node.name, "' (", node.op->name(), "), micro-batches ",
                           jobs.front().micro_batch, " to ", jobs.back().micro_batch));
}

}  // namespace weft
