// What the calls of a worker need that does not change from step to step.
#include "lowering/parameters.h"
#include "runtime/tensor_loops.h"
#include "runtime/worker.h"

namespace weft {

namespace {

View view_of(const PlacedOperand& o, size_t variant, bool whole) {
  View out{nullptr, o.desc[variant]};
  if (o.converted && whole) out.desc.dtype = type_of_copy(out.desc.dtype);
  return out;
}

std::vector<View> views_of(const std::vector<PlacedOperand>& operands, size_t variant, bool whole) {
  std::vector<View> out;
  for (const PlacedOperand& o : operands) out.push_back(view_of(o, variant, whole));
  return out;
}

}  // namespace

Worker::BoundCall Worker::bind_call(const ProgramCall& c, size_t variant) {
  const bool whole = !c.blocks;
  std::vector<View> state;
  for (const PlacedOperand& o : c.state)
    state.push_back({arena_.data() + o.place.offset, o.desc.front()});
  kernels::PackedMatrix stored;
  if (!folds(c.kind) && !c.weights.empty()) {
    const ParamId param = plan_->model->node(c.node).weights.front();
    stored = memory_of(resident_of(*plan_, rank_, param)).value.packed();
  }
  return {views_of(c.in, variant, whole),
          views_of(c.weights, variant, whole),
          views_of(c.stash, variant, whole),
          views_of(c.din, variant, whole),
          view_of(c.out, variant, whole),
          view_of(c.dout, variant, whole),
          view_of(c.acc, variant, whole),
          std::move(state),
          stored,
          c.acc.place && !c.clears ? &empty_[c.acc.place.offset] : nullptr,
          whole ? std::vector<BoundCall>() : bind_blocks(c, variant),
          {}};
}

void Worker::bind_mode(const ModePlan& mode) {
  auto& bound = bound_[static_cast<size_t>(mode.mode)];
  for (size_t v = 0; v < 2; ++v)
    for (const ActionProgram& action : program(mode.mode).programs) {
      BoundProgram calls;
      for (const ProgramCall& call : action.calls) calls.push_back(bind_call(call, v));
      bound[v].push_back(std::move(calls));
    }
  for (const Job& job : program(mode.mode).jobs)
    if (job.together > 1)
      for (auto& variant : bound)
        for (BoundCall& call : variant[static_cast<size_t>(job.program)])
          add_others(call, static_cast<size_t>(job.together) - 1);
}

// For calls of several micro-batches at once: copies of this one.
void Worker::add_others(BoundCall& call, size_t count) {
  while (call.others.size() < count) {
    BoundCall other = call;
    other.others.clear();
    call.others.push_back(std::move(other));
  }
}

void Worker::bind() {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    set_packed(p, false);
    for (const ResidentTensor& t : p.tensors)
      if (t.by_rows)
        rows_[t.place.offset].assign(static_cast<size_t>(t.count), RowSet(t.desc.shape[0]));
  }
  for (const ModePlan& mode : plan_->modes)
    if (mode.present) bind_mode(mode);
}

}  // namespace weft
