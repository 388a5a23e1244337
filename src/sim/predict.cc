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
  std::vector<std::vector<double>> of_program;   // per rank
  for (const RankProgram& rank : plan->mode(mode).ranks) {
    std::vector<double>& programs = of_program.emplace_back();
    for (const ActionProgram& program : rank.programs) {
      programs.push_back(0);
      for (const ProgramCall& call : program.calls) programs.back() += call_cost(*plan->model, call, plan->config.micro_batch_size);
    }
  }
  SimCosts costs;
  costs.job = [&of_program](int32_t rank, const RankProgram&, const Job& job) {
    return job.kind == JobKind::action ? of_program[static_cast<size_t>(rank)][static_cast<size_t>(job.program)] : 0;
  };
  Sim sim(plan, std::move(costs), false);
  StepDescriptor step;
  step.mode = mode;
  step.micro_batches = plan->config.micro_batches;
  WEFT_TRY_ASSIGN(const SimStep done, sim.step(step));
  double first = done.ranks[0].first, last = 0;
  for (const SimRank& rank : done.ranks) {
    first = std::min(first, rank.first);
    last = std::max(last, rank.last);
  }
  std::vector<double> idle;
  for (const SimRank& rank : done.ranks) idle.push_back(last > first ? std::max(0.0, 1 - rank.busy / (last - first)) : 0);
  return idle;
}

}  // namespace weft
