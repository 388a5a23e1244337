#include "sim/costs.h"

#include <algorithm>

#include "base/text.h"
#include "kernels/packed.h"
#include "lowering/parameters.h"
#include "ops/op.h"

namespace weft {

namespace {

// The time of W is for all weights of a node; the largest weight takes nearly all of it.
double weight_share(const Model& model, const ProgramCall& call) {
  double all = 0, own = 0;
  const auto& weights = model.node(call.node).weights;
  for (size_t w = 0; w < weights.size(); ++w) {
    const double elements = static_cast<double>(model.param(weights[w]).shape.elements());
    all += elements;
    if (static_cast<int32_t>(w) == call.weight) own = elements;
  }
  return all > 0 ? own / all : 1;
}

// Seconds of a call, and of each further micro-batch that runs at once with it.
struct CallSeconds {
  double first = 0, further = 0;
};

// W of n micro-batches at once takes a time that does not depend on n, and n times another one.
// The times of one and of kMostTogether micro-batches are known.
CallSeconds weight_seconds(const NodeTimes& node) {
  if (node.weight_together <= 0) return {node.weight, node.weight};
  constexpr double kMost = kMostTogether;
  const double once = (node.weight - node.weight_together) * kMost / (kMost - 1);
  return {node.weight, std::max(node.weight - once, 0.0)};
}

CallSeconds seconds_of(const Model& model, const ProgramCall& call,
                       const std::vector<NodeTimes>& times) {
  const NodeTimes& node = times[static_cast<size_t>(call.node)];
  switch (call.kind) {
    case CallKind::forward: return {node.forward, node.forward};
    case CallKind::input_grad: return {node.input, node.input};
    case CallKind::weight_grad: {
      const double share = weight_share(model, call);
      const CallSeconds all = weight_seconds(node);
      return {all.first * share, all.further * share};
    }
    case CallKind::add:
    case CallKind::join: break;  // part of the I of the node whose gradient it folds
  }
  return {};
}

// Bytes read and written beside the call: to clear an accumulator that is not kept, or to add the
// sums of gradient groups, spread over the micro-batches: each sum of a replica beyond the first is
// cleared and added to another.
double group_bytes(const PlanConfig& config, const ProgramCall& call) {
  if (call.kind != CallKind::weight_grad) return 0;
  if (call.clears) return static_cast<double>(call.acc.desc[0].bytes());
  return 4 * static_cast<double>(call.acc.desc[0].bytes()) *
         (config.gradient_groups - config.data) / config.micro_batches;
}

// Bytes read and written where a product packs a weight for itself. The times of nodes are those of
// products with kept copies, where these pay.
double packing_bytes(const Plan& plan, const ProgramCall& call) {
  if (folds(call.kind) || call.kind == CallKind::weight_grad || call.packed.kept) return 0;
  const Node& node = plan.model->node(call.node);
  if (!node.op->multiplies_weight() || !pays_to_pack(*plan.model, plan.config, node)) return 0;
  const Desc& weight = call.weights.front().desc[0];
  const bool transposed = multiplies_transposed(node, call.kind);
  const int64_t k = weight.shape[transposed ? 1 : 0], n = weight.shape[transposed ? 0 : 1];
  const DType dtype = node.stored_as(plan.config.values());
  const int64_t rows = rows_of_product(*plan.model, plan.config, node);
  if (dtype == DType::f32 && !gemm_packs(rows, k, n, transposed)) return 0;
  return static_cast<double>(weight.bytes()) +
         static_cast<double>(packed_desc(dtype, weight.shape, transposed).bytes());
}

struct StepBytes {
  double clear = 0, update = 0;
};

StepBytes step_bytes(const Plan& plan, int32_t rank) {
  StepBytes out;
  for (const ResidentParam& p : plan.resident[static_cast<size_t>(rank)]) {
    const auto accumulators = p.of(ResidentTensor::Role::accumulator);
    if (accumulators.empty()) continue;
    const auto bytes = static_cast<double>(accumulators.front().desc.bytes());
    double local = 0;
    for (const ResidentTensor& t : accumulators) local += t.local && t.run < 0 && !t.by_rows;
    out.clear += bytes * local;
    if (!p.updated) continue;
    // Gradient read; weight and state read and written; packed forms written.
    out.update += bytes * (3 + 2 * static_cast<double>(p.of(ResidentTensor::Role::state).size()));
    for (const auto role : {ResidentTensor::Role::packed, ResidentTensor::Role::sent})
      for (const ResidentTensor& t : p.of(role)) out.update += static_cast<double>(t.desc.bytes());
  }
  return out;
}

// Each further sum: two read, one written.
double reduced_bytes(const Plan& plan, int32_t rank, const Bucket& bucket) {
  double out = 0;
  for (const Bucket::Part& part : bucket.parts) {
    const ResidentParam& p = resident_of(plan, rank, part.param);
    const auto accumulators = p.of(ResidentTensor::Role::accumulator);
    const int32_t replicas = plan.replicas_at(rank);
    int32_t added = 0;
    for (int32_t sum = part.first; sum < part.end; ++sum)
      if (!accumulators[static_cast<size_t>(sum * replicas)].by_rows) added += replicas;
    // The first one begins the total.
    if (part.end > accumulators.back().sum) added = std::max(0, added - 1);
    out += static_cast<double>(accumulators.front().desc.bytes()) * ((part.first == 0) + 3 * added);
  }
  return out;
}

}  // namespace

JobCosts::JobCosts(const Plan& plan, Mode mode, const std::vector<NodeTimes>& times,
                   const std::vector<double>& speeds) {
  const int64_t samples = plan.config.micro_batch_size;
  const double measured = plan.config.machines.memory_speed;
  const double memory_speed = measured > 0 ? measured : kMemorySpeed;
  const std::vector<NodeTimes> seconds_of_node =
      times.empty()              ? analysed_times(*plan.model, samples)
      : plan.model != plan.whole ? times_of_pieces(*plan.model, samples, times)
                                 : times;
  for (int32_t r = 0; r < plan.config.ranks; ++r) {
    const double speed = speeds.empty() ? 1 : speeds[static_cast<size_t>(r)];
    const size_t begin = costs_.size();
    const RankProgram& own = plan.mode(mode).ranks[static_cast<size_t>(r)];
    begins_.push_back({begin, begin + kKinds, begin + kKinds + own.buckets.size()});
    costs_.resize(begin + kKinds);
    const StepBytes bytes = step_bytes(plan, r);
    costs_[begin + static_cast<size_t>(JobKind::clear)] = bytes.clear / memory_speed / speed;
    costs_[begin + static_cast<size_t>(JobKind::update)] = bytes.update / memory_speed / speed;
    double reduced = 0;
    for (const Bucket& bucket : own.buckets) {
      costs_.push_back(reduced_bytes(plan, r, bucket) / memory_speed / speed);
      reduced += costs_.back() * speed;
    }
    further_.resize(costs_.size());
    for (const ActionProgram& program : own.programs) {
      CallSeconds sum;
      if (program.kind == Kind::O) sum.first = bytes.update / memory_speed + reduced;
      for (const ProgramCall& call : program.calls) {
        const CallSeconds seconds = seconds_of(*plan.model, call, seconds_of_node);
        const double added =
            (group_bytes(plan.config, call) + packing_bytes(plan, call)) / memory_speed;
        sum.first += seconds.first + added;
        sum.further += seconds.further + added;
      }
      costs_.push_back(sum.first / speed);
      further_.push_back(sum.further / speed);
    }
  }
}

Status JobCosts::check() const {
  constexpr double kMost = 1e9;
  for (size_t r = 0; r < begins_.size(); ++r) {
    const size_t end = r + 1 < begins_.size() ? begins_[r + 1].kinds : costs_.size();
    for (size_t i = begins_[r].kinds; i < end; ++i)
      if (const double most = std::max(costs_[i], further_[i]); !(most <= kMost))
        return Status(Code::invalid,
                      cat("a job of rank ", r, " takes ", most, " s, expected at most ", kMost,
                          ": the speed of the rank or a time of the profile is out of range"));
  }
  return {};
}

}  // namespace weft
