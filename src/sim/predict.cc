#include "sim/predict.h"

#include <algorithm>

#include "sim/sim.h"

namespace weft {

namespace {

// A processor that does this many multiply-adds (counted as two) in the time in which it moves one byte. Only the ratio matters.
constexpr double kFlopsPerByte = 8;

double call_cost(const Model& model, const ProgramCall& call, int64_t samples) {
  double bytes = 0;
  auto touch = [&](const PlacedOperand& operand) {
    if (operand.place) bytes += static_cast<double>(operand.desc[0].bytes());
  };
  for (const auto* list : {&call.in, &call.weights, &call.stash, &call.din})
    for (const PlacedOperand& operand : *list) touch(operand);
  for (const PlacedOperand* operand : {&call.out, &call.dout, &call.acc}) touch(*operand);
  if (call.kind == CallKind::add) return bytes * kFlopsPerByte;
  const Node& node = model.node(call.node);
  std::vector<Desc> in, weights;
  for (NodeId i : node.in) in.push_back(model.desc(i, samples));
  for (ParamId w : node.weights) weights.push_back({DType::f32, model.param(w).shape});
  const Cost cost = node.op->cost(node.attrs, in, weights, model.desc(call.node, samples));
  switch (call.kind) {
    case CallKind::forward: return cost.forward_flops + bytes * kFlopsPerByte;
    case CallKind::input_grad: return cost.input_flops + bytes * kFlopsPerByte;
    // What an op says is for all its weights; nearly all of it is for the matrix, not for the bias.
    default: return (weights[static_cast<size_t>(call.weight)].shape.rank >= 2 ? cost.weight_flops : 0) + bytes * kFlopsPerByte;
  }
}

}  // namespace

Result<std::vector<double>> predict_idle(std::shared_ptr<const Plan> plan) {
  const Mode mode = plan->mode(Mode::train).present ? Mode::train : Mode::infer;
  SimCosts costs;
  costs.job = [&plan](int32_t, const RankProgram& program, const Job& job) {
    double cost = 0;
    if (job.kind == JobKind::action)
      for (const ProgramCall& call : program.programs[static_cast<size_t>(job.program)].calls)
        cost += call_cost(*plan->model, call, plan->config.micro_batch_size);
    return cost;
  };
  Sim sim(plan, std::move(costs), false);
  StepDescriptor step;
  step.mode = mode;
  step.micro_batches = plan->config.micro_batches;
  WEFT_TRY_ASSIGN(const SimStep done, sim.step(step));
  double first = 0, last = 0;
  std::vector<double> busy(static_cast<size_t>(plan->config.ranks));
  bool any = false;
  for (const SimSpan& span : done.spans) {
    if (plan->mode(mode).ranks[static_cast<size_t>(span.rank)].jobs[static_cast<size_t>(span.job)].kind != JobKind::action) continue;
    first = any ? std::min(first, span.begin) : span.begin;
    last = std::max(last, span.end);
    busy[static_cast<size_t>(span.rank)] += span.end - span.begin;
    any = true;
  }
  for (double& share : busy) share = last > first ? std::max(0.0, 1 - share / (last - first)) : 0;
  return busy;
}

}  // namespace weft
