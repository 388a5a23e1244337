#include "plan/check_config.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.h"
#include "graph/shard.h"
#include "plan/asynchronous.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

Status at_least(const char* name, int64_t value, int64_t least) {
  return value >= least
             ? Status()
             : Status(Code::invalid, cat(name, " is ", value, ", expected ", least, " or more"));
}

Status check_numbers(const Model& model, const PlanConfig& c) {
  WEFT_TRY(at_least("ranks", c.ranks, 1));
  WEFT_TRY(at_least("tensor", c.tensor, 1));
  if (c.tensor > kMostShards)
    return Status(Code::invalid, cat("tensor is ", c.tensor, ", expected at most ", kMostShards));
  if (c.tensor > 1 && !model.axes().empty())
    return Status(Code::invalid,
                  cat("tensor is ", c.tensor, ", expected 1: the model has the axis '",
                      model.axes().front().name, "'"));
  WEFT_TRY(at_least("micro_batches", c.micro_batches, 1));
  WEFT_TRY(at_least("micro_batch_size", c.micro_batch_size, 1));
  WEFT_TRY(at_least("short_size", c.short_size, 0));
  WEFT_TRY(at_least("shard_ranks", c.shard_ranks, 1));
  const int32_t shards = std::max(model.shards(), c.tensor);
  if (c.shard_ranks > shards)
    return Status(Code::invalid,
                  cat("axis 'tensor' has ", c.shard_ranks, " ranks, expected at most ", shards,
                      ", the pieces that nodes are computed in (tensor)"));
  if (c.ranks > kMaxStages)
    return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected at most ", kMaxStages));
  WEFT_TRY(at_least("chunks", c.chunks, 0));
  WEFT_TRY(at_least("group", c.group, 0));
  WEFT_TRY(at_least("warm_up", c.warm_up, 0));
  WEFT_TRY(at_least("slack", c.slack, 0));
  WEFT_TRY(at_least("memory_limit", c.memory_limit, 0));
  WEFT_TRY(at_least("segment", c.segment, 0));
  WEFT_TRY(at_least("bucket_bytes", c.bucket_bytes, 1));
  WEFT_TRY(at_least("data", c.data, 1));
  return {};
}

Status check_mesh(const PlanConfig& c) {
  if (int64_t{c.data} * c.shard_ranks > c.ranks || c.ranks % (c.data * c.shard_ranks) != 0)
    return Status(Code::invalid, cat("ranks is ", c.ranks, ", expected a multiple of ",
                                     int64_t{c.data} * c.shard_ranks,
                                     ", the product of the axes 'data' and 'tensor'"));
  return {};
}

Status check_names(const PlanConfig& c) {
  if (c.precision != "f32" && c.precision != "bf16")
    return Status(Code::invalid,
                  cat("precision is ", shown(c.precision), ", expected f32 or bf16"));
  if (c.shard != "none" && c.shard != "optimizer" && c.shard != "parameters")
    return Status(Code::invalid,
                  cat("shard is ", shown(c.shard), ", expected none, optimizer or parameters"));
  return {};
}

Status check_sizes(const Model& model, const PlanConfig& c) {
  if (c.short_size >= c.micro_batch_size && c.short_size > 0)
    return Status(Code::invalid,
                  cat("short_size is ", c.short_size, ", expected less than micro_batch_size, ",
                      c.micro_batch_size));
  for (const Node& node : model.nodes()) {
    int64_t samples = 0, bytes = 0;
    const int64_t micro_batches =
        node.is_input() ? int64_t{c.micro_batches} * std::max(c.segment, 1) : 1;
    if (__builtin_mul_overflow(c.micro_batch_size, micro_batches, &samples) ||
        __builtin_mul_overflow(static_cast<int64_t>(node.one.out.bytes()), samples, &bytes) ||
        bytes > kMostBytes)
      return Status(Code::invalid,
                    cat("node '", node.name, "': ", node.one.out.text(), " for ", micro_batches,
                        " x ", c.micro_batch_size, " samples is too large"));
  }
  WEFT_TRY(model.check_samples(c.micro_batch_size));
  if (c.short_size > 0) WEFT_TRY(model.check_samples(c.short_size));
  return {};
}

Status check_machines(const Model& model, const PlanConfig& c) {
  const Machines& m = c.machines;
  if (!m.speeds.empty() && m.speeds.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("speeds has ", m.speeds.size(),
                                     " entries, expected one for each of ", c.ranks, " ranks"));
  auto number = [](const char* name, double value, bool zero) {
    const bool good = std::isfinite(value) && (zero ? value >= 0 : value > 0);
    return good ? Status()
                : Status(Code::invalid, cat(name, " is ", value, ", expected a finite number ",
                                            zero ? "from 0" : "above 0"));
  };
  for (double speed : m.speeds) WEFT_TRY(number("a rank's speed", speed, false));
  WEFT_TRY(number("the latency of a link", m.latency, true));
  WEFT_TRY(number("the bandwidth of a link", m.bandwidth, true));
  WEFT_TRY(number("the speed of updates", m.memory_speed, true));
  WEFT_TRY(number("the time between actions", m.overhead, true));
  if (!c.times.empty() && c.times.size() != model.nodes().size())
    return Status(Code::invalid,
                  cat("times has ", c.times.size(), " entries, expected one for each of ",
                      model.nodes().size(), " nodes"));
  if (!m.memory.empty() && m.memory.size() != static_cast<size_t>(c.ranks))
    return Status(Code::invalid, cat("memory has ", m.memory.size(),
                                     " entries, expected one for each of ", c.ranks, " ranks"));
  for (const NodeTimes& t : c.times)
    for (double seconds : {t.forward, t.input, t.weight, t.weight_together})
      WEFT_TRY(number("a node's time", seconds, true));
  return {};
}

Status check_steps(const Model& model, const PlanConfig& c) {
  constexpr uint32_t kKinds = PlanConfig::kOutputs - 1;
  uint32_t possible = kKinds;
  for (const Mode mode : kEveryMode)
    if (has_loss(mode)) possible |= PlanConfig::kOutputs << static_cast<uint32_t>(mode);
  if (c.step_kinds & ~possible)
    return Status(Code::invalid, cat("step_kinds is ", c.step_kinds,
                                     ", expected no bits but those of ", possible));
  if (const uint32_t with = c.step_kinds / PlanConfig::kOutputs; with & ~c.step_kinds)
    return Status(Code::invalid, "step_kinds: outputs of a kind of steps that is not included");
  if (c.step_kinds > kKinds && model.outputs().empty())
    return Status(Code::invalid, "step_kinds: outputs of steps, but the model has no output");
  if (std::any_of(kEveryMode.begin(), kEveryMode.end(),
                  [&](Mode mode) { return makes(model, c, mode); }))
    return {};
  constexpr const char* kMissing[kModes] = {"no loss", "no loss", "no output", "no state"};
  std::string missing;
  for (const Mode mode : kEveryMode)
    if (const char* one = kMissing[static_cast<size_t>(mode)];
        c.includes(mode) && missing.find(one) == std::string::npos)
      missing += cat(missing.empty() ? "" : ", ", one);
  return Status(Code::invalid, cat("step_kinds: the model cannot make any of these steps, because ",
                                   "it has ", missing));
}

Status check_groups(const PlanConfig& c) {
  if (c.data > c.micro_batches)
    return Status(
        Code::invalid,
        cat("data is ", c.data, ", expected 1 to the number of micro-batches, ", c.micro_batches));
  if (c.gradient_groups < 1 || c.gradient_groups > c.micro_batches)
    return Status(Code::invalid,
                  cat("gradient_groups is ", c.gradient_groups,
                      ", expected 1 to the number of micro-batches, ", c.micro_batches));
  const bool halves = std::has_single_bit(static_cast<uint32_t>(c.data));
  if (c.data != c.gradient_groups && (!halves || c.gradient_groups % c.data != 0))
    return Status(Code::invalid,
                  cat("data is ", c.data, " and gradient_groups is ", c.gradient_groups,
                      ": data must be that number, or a power of two that divides it. "
                      "gradient_groups ",
                      c.data, " would fit; it changes how sums are rounded"));
  return {};
}

// A step that trains has moments of each micro-batch, see Op::average.
Status check_averages(const Model& model, const PlanConfig& c) {
  if (!makes(model, c, Mode::train)) return {};
  const int64_t samples = c.short_size > 0 ? c.short_size : c.micro_batch_size;
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    const Node& node = model.node(id);
    const bool averages = std::any_of(node.weights.begin(), node.weights.end(),
                                      [&](ParamId w) { return model.param(w).average > 0; });
    if (!averages) continue;
    const Shape shape = model.desc(id, samples).shape;
    if (shape.elements() > shape.last()) continue;
    return Status(Code::invalid,
                  cat("node '", node.name, "' (", node.op->name(), "): a micro-batch of ", samples,
                      " sample", samples == 1 ? "" : "s", " has one row, ", shape.text(),
                      ", expected two or more to train, for a variance"));
  }
  return {};
}

}  // namespace

Status check_replicas(const Model& model, const PlanConfig& c) {
  const ScheduleKind* kind = find_schedule(c.schedule);
  if (kind && kind->asynchronous && c.data > 1)
    return Status(
        Code::invalid,
        cat("schedule '", c.schedule, "' is asynchronous, and has no replicas of a whole ",
            "pipeline: data is ", c.data, ", expected 1. With stage_replicas, its stages ",
            "can have replicas"));
  if (c.stage_replicas.empty()) return {};
  if (c.shard != "optimizer")
    return Status(Code::invalid,
                  cat("shard is '", c.shard, "', expected 'optimizer' with stage_replicas"));
  WEFT_TRY(replicas_of(c).status());
  if (!kind || !kind->asynchronous || !c.schedule_text.empty())
    return Status(
        Code::invalid,
        cat("stage_replicas is '", c.stage_replicas,
            "', which is for an asynchronous schedule by its name, not for ",
            c.schedule_text.empty() ? cat("'", c.schedule, "'") : std::string("a schedule_text")));
  for (const Node& node : model.nodes())
    if (!node.one.state.empty())
      return Status(Code::invalid,
                    cat("node '", node.name, "' (", node.op->name(), ") keeps state between ",
                        "steps, which the replicas of a stage would not share: stage_replicas is ",
                        shown(c.stage_replicas), ", expected none"));
  return {};
}

Status check_config(const Model& model, const PlanConfig& c) {
  WEFT_TRY(check_numbers(model, c));
  WEFT_TRY(check_replicas(model, c));
  WEFT_TRY(check_mesh(c));
  WEFT_TRY(check_groups(c));
  WEFT_TRY(check_names(c));
  WEFT_TRY(check_sizes(model, c));
  WEFT_TRY(check_machines(model, c));
  WEFT_TRY(check_steps(model, c));
  WEFT_TRY(check_averages(model, c));
  return check(c.optim);
}

}  // namespace weft
