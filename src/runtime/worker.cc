#include "runtime/worker.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "engine/steps.h"
#include "kernels/bf16_pack.h"
#include "kernels/fpenv.h"
#include "kernels/gemm.h"
#include "kernels/packed.h"
#include "lowering/parameters.h"
#include "runtime/clock.h"
#include "runtime/tensor_loops.h"

namespace weft {

namespace {

void convert(Tiles& tiles, const void* from, const View& to) {
  if (to.desc.dtype == DType::f32)
    from_bf16(tiles, static_cast<const kernels::Bf16*>(from), to.f32(), to.desc.elements());
  else
    to_bf16(tiles, static_cast<const float*>(from), to.bf16(), to.desc.elements());
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::make(std::shared_ptr<const Plan> plan, int32_t rank,
                                             Tiles& tiles) {
  const int64_t bytes = plan->arena_bytes[static_cast<size_t>(rank)];
  WEFT_TRY_ASSIGN(Arena arena, Arena::make(bytes).within(cat("rank ", rank)));
  std::unique_ptr<Worker> worker(new Worker(std::move(plan), rank, tiles, std::move(arena)));
  worker->bind();
  worker->expect_values();
  return worker;
}

Worker::Worker(std::shared_ptr<const Plan> plan, int32_t rank, Tiles& tiles, Arena arena)
    : plan_(std::move(plan)),
      rank_(rank),
      tiles_(tiles),
      arena_(std::move(arena)),
      initial_(plan_->config.seed, tiles) {
  const auto& resident = plan_->resident[static_cast<size_t>(rank_)];
  owned_ = static_cast<size_t>(std::count_if(resident.begin(), resident.end(),
                                             [](const ResidentParam& p) { return p.owned; }));
  squares_.resize(owned_ * static_cast<size_t>(std::max(plan_->config.segment, 1)));
  contributions_.resize(plan_->model->params().size());
  for (const StepCall& call : plan_->mode(Mode::train).graph.calls)
    if (call.kind == CallKind::weight_grad)
      ++contributions_[static_cast<size_t>(
          plan_->model->node(call.node).weights[static_cast<size_t>(call.weight)])];
}

// Other ranks may read gathered values, and write versions, before the first job of this rank.
void Worker::expect_values() {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)])
    if (p.value()) initial_.add(p.param, plan_->model->param(p.param), memory_of(p).value);
  if (plan_->gathers() || plan_->asynchronous()) initial_.draw_all();
}

void* Worker::at(const RankProgram& program, const Place& place, int32_t micro_batch,
                 uint64_t sequence) const {
  if (!place) return nullptr;
  return arena_.data() + program.rings[static_cast<size_t>(place.ring)].at(micro_batch, sequence) +
         place.offset;
}

std::span<const std::byte> Worker::input(const StepDescriptor& step, int32_t edge,
                                         int32_t micro_batch) const {
  return feed_bytes(*plan_, step.mode, edge, micro_batch, variant_of(step, micro_batch),
                    *batches_[step.sequence % kStepsAtOnce]);
}

std::span<const std::byte> Worker::outgoing(Mode mode, int32_t edge, int32_t micro_batch,
                                            int32_t variant) {
  const Edge& e = plan_->mode(mode).edges[static_cast<size_t>(edge)];
  return {static_cast<std::byte*>(at(program(mode), e.outgoing, micro_batch, 0)) +
              offset_of_message(*plan_, rank_, e, micro_batch),
          e.desc[static_cast<size_t>(variant)].bytes()};
}

std::span<std::byte> Worker::landing(Mode mode, int32_t edge, int32_t micro_batch, int32_t variant,
                                     uint64_t sequence) {
  const Edge& e = plan_->mode(mode).edges[static_cast<size_t>(edge)];
  return {static_cast<std::byte*>(at(program(mode), e.landing, micro_batch, sequence)) +
              offset_of_message(*plan_, rank_, e, micro_batch),
          e.desc[static_cast<size_t>(variant)].bytes()};
}

View Worker::delivered(const StepDescriptor& step, int32_t edge, int32_t micro_batch) {
  const int32_t v = variant_of(step, micro_batch);
  edge = delivered_by(plan_->mode(step.mode), edge, micro_batch);
  return {landing(step.mode, edge, micro_batch, v, step.sequence).data(),
          plan_->mode(step.mode).edges[static_cast<size_t>(edge)].desc[static_cast<size_t>(v)]};
}

Worker::ParamMemory Worker::param(ParamId id) {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (p.param != id) continue;
    ParamMemory out = memory_of(p);
    out.initial = &initial_;
    return out;
  }
  return {};
}

Worker::ParamMemory Worker::writable_param(ParamId id) {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (p.param != id) continue;
    set_packed(p, false);
    for (const ResidentTensor& t : p.tensors)
      if (t.by_rows)
        for (RowSet& rows : rows_.at(t.place.offset)) rows.insert_all();
  }
  return param(id);
}

Worker::ParamMemory Worker::memory_of(const ResidentParam& p) const {
  auto memory = [&](const Place& place) {
    return place ? reinterpret_cast<float*>(arena_.data() + place.offset) : nullptr;
  };
  const Shape& shape = plan_->model->param(p.param).shape;
  ParamMemory out{.value = StoredWeight(p, shape, arena_.data())};
  const auto state = p.of(ResidentTensor::Role::state);
  out.grad = memory(p.gradient());
  for (size_t s = 0; s < state.size(); ++s) out.slots[s] = memory(state[s].place);
  return out;
}

Status Worker::trace(size_t jobs) {
  spans_.clear();
  spans_wanted_ = 0;
  if (!attempt([&] { spans_.reserve(jobs); }).ok())
    return Status(Code::no_memory,
                  cat("rank ", rank_, " has no memory for the spans of ", jobs, " jobs"));
  spans_wanted_ = jobs;
  return {};
}

Status Worker::run(const WorkerTask& task) {
  if (task.job < 0) {
    copy(task.step, task.edge, task.micro_batch);
    return {};
  }
  const Job& job = program(task.step.mode).jobs[static_cast<size_t>(task.job)];
  sequence_ = task.step.sequence;
  initial_.draw_all();
  take_feeds(task.step, job);
  last_time_.begin = monotonic_ns();
  Status status = run_job(task.step, task.scale, job);
  last_time_.end = monotonic_ns();
  if (spans_.size() < spans_wanted_)
    spans_.push_back({.step = task.step.step,
                      .time = last_time_,
                      .job = task.job,
                      .mode = task.step.mode,
                      .sequence = static_cast<uint16_t>(task.step.sequence)});
  if (task.deliver && status.ok()) deliver(task.step, job);
  return status;
}

void Worker::feed(uint64_t sequence, const Batch* batch) {
  const std::lock_guard lock(feed_mutex_);
  batches_[sequence % kStepsAtOnce] = batch;
}

void Worker::drop_feeds() {
  const std::lock_guard lock(feed_mutex_);
  batches_ = {};
}

void Worker::take_feeds(const StepDescriptor& step, const Job& job) {
  if (job.kind != JobKind::action) return;
  const ModePlan& mode = plan_->mode(step.mode);
  for (int32_t e : program(step.mode).programs[static_cast<size_t>(job.program)].waits) {
    const Edge& edge = mode.edges[static_cast<size_t>(e)];
    if (edge.kind != EdgeKind::feed || !edge.has(job.micro_batch)) continue;
    const std::lock_guard lock(feed_mutex_);
    if (batches_[step.sequence % kStepsAtOnce]) copy(step, e, job.micro_batch);
  }
}

// What the job posts; for an update, the new values of tied parameters.
void Worker::deliver(const StepDescriptor& step, const Job& job) {
  const ModePlan& mode = plan_->mode(step.mode);
  const RankProgram& own = program(step.mode);
  if (job.kind == JobKind::action)
    for (int32_t e : own.programs[static_cast<size_t>(job.program)].posts) {
      if (mode.edges[static_cast<size_t>(e)].has(job.micro_batch)) copy(step, e, job.micro_batch);
    }
  else
    for (int32_t id : own.edges)
      if (const Edge& e = mode.edges[static_cast<size_t>(id)];
          e.kind == EdgeKind::tie_value && e.from_rank == rank_)
        copy(step, id, 0);
}

// Only between ranks of this process; other ranks have links.
void Worker::copy(const StepDescriptor& step, int32_t edge, int32_t micro_batch) {
  const Edge& e = plan_->mode(step.mode).edges[static_cast<size_t>(edge)];
  const auto worker_of = [this](int32_t rank) {
    if (rank == rank_) return this;
    return local_.empty() ? nullptr : local_[static_cast<size_t>(rank)];
  };
  Worker *sender = e.kind == EdgeKind::feed ? this : worker_of(e.from_rank),
         *receiver = worker_of(e.to_rank);
  if (!sender || !receiver) return;
  const int32_t variant = variant_of(step, micro_batch);
  const auto from = e.kind == EdgeKind::feed
                        ? input(step, edge, micro_batch)
                        : sender->outgoing(step.mode, edge, micro_batch, variant);
  copy_bytes(tiles_, receiver->landing(step.mode, edge, micro_batch, variant, step.sequence).data(),
             from.data(), from.size());
}

Status Worker::run_job(const StepDescriptor& step, double scale, const Job& job) {
  const ComputeScope scope;
  switch (job.kind) {
    case JobKind::clear:
      if (job.program < 0)  // the first job of a step; later the loop thread reads squares()
        summed_ = owned_ * static_cast<size_t>(std::max(updates_at(versions(), step), 1));
      clear(step);
      return {};
    case JobKind::action: return run_action(step, program(step.mode), job);
    case JobKind::reduce:
      if (step.per_update == 0)
        reduce(program(step.mode).buckets[static_cast<size_t>(job.program)], 0, 1);
      return {};
    case JobKind::update:
      if (step.per_update == 0)
        update_weights({.rate = rate_of(step, plan_->config.optim, step.step),
                        .number = step.step,
                        .scale = scale,
                        .micro_batches = step.micro_batches},
                       0, 0);
      else
        make_first(updates_at(versions(), step));
      return {};
    case JobKind::send_ties:
    case JobKind::finish: return {};  // of the engine
  }
  return {};
}

Status Worker::run_action(const StepDescriptor& step, const RankProgram& program, const Job& job) {
  const ActionProgram& action = program.programs[static_cast<size_t>(job.program)];
  if (action.kind == Kind::O) {
    run_update(step, job.micro_batch);
    return {};
  }
  if (job.micro_batch >= step.micro_batches) {
    clear_run(action);
    return {};
  }
  if (job.together != 1)
    return run_together(step, program, action, {&job, static_cast<size_t>(job.together)});
  const size_t variant = static_cast<size_t>(variant_of(step, job.micro_batch));
  BoundProgram& bound =
      bound_[static_cast<size_t>(step.mode)][variant][static_cast<size_t>(job.program)];
  for (size_t c = 0; c < action.calls.size(); ++c) {
    const int64_t begin = call_times_ ? monotonic_ns() : 0;
    WEFT_TRY(run_call(step, program, action.calls[c], bound[c], job.micro_batch));
    if (call_times_) call_times_->push_back(monotonic_ns() - begin);
  }
  return {};
}

void Worker::point(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                   int32_t micro_batch) {
  each_operand(call, bound, [&](const PlacedOperand& operand, View& view, bool written) {
    view.data = at(program, operand.place, micro_batch);
    if (!operand.converted || call.blocks) return;
    const View stored = view;
    view.data = at(program, operand.converted, micro_batch);
    if (!written) convert(tiles_, stored.data, view);
  });
}

void Worker::store(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                   int32_t micro_batch) {
  each_operand(call, bound, [&](const PlacedOperand& operand, View& view, bool written) {
    if (!operand.converted || call.blocks || !written) return;
    View stored = view;
    stored.data = at(program, operand.place, micro_batch);
    stored.desc.dtype = type_of_copy(view.desc.dtype);
    convert(tiles_, view.data, stored);
  });
}

Status Worker::run_call(const StepDescriptor& step, const RankProgram& program,
                        const ProgramCall& call, BoundCall& bound, int32_t micro_batch) {
  point(program, call, bound, micro_batch);
  const Status status = folds(call.kind) ? run_fold(program, call, bound, micro_batch)
                                         : run_op(step, program, call, bound, micro_batch);
  if (status.ok()) store(program, call, bound, micro_batch);
  return status;
}

Status Worker::run_fold(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                        int32_t micro_batch) {
  static const Op &add = *find_op("add"), &concat = *find_op("concat");
  Call fold;
  fold.attrs = &plan_->model->node(call.node).attrs;
  fold.in = bound.in;
  fold.out = bound.out;
  fold.scratch = at(program, call.scratch, micro_batch);
  fold.tiles = &tiles_;
  const Op& op = call.kind == CallKind::add ? add : concat;
  return run_kernel(program, call, bound, op, fold, micro_batch);
}

Status Worker::run_kernel(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                          const Op& op, const Call& whole, int32_t micro_batch) {
  if (call.blocks) return run_blocks(program, call, bound, op, whole, micro_batch);
  if (call.kind == CallKind::input_grad) return op.input_grad(whole);
  return call.kind == CallKind::weight_grad ? op.weight_grad(whole) : op.forward(whole);
}

void Worker::set_packed(const ResidentParam& param, bool packed) {
  for (const ResidentTensor& t : param.of(ResidentTensor::Role::packed))
    is_packed_[t.place.offset] = packed;
}

// Updates make kept copies again, and the first call after another change of the weight. A weight
// that is stored only packed is written so.
const void* Worker::packed_weight(const RankProgram& program, const ProgramCall& call,
                                  const BoundCall& bound, int32_t micro_batch) {
  if (!call.packed.place) return nullptr;
  void* out = at(program, call.packed.place, micro_batch);
  if (call.packed.only) return out;
  // BLIS reads the value faster.
  if (call.packed.dtype == DType::f32 && !gemm_is_fused()) return nullptr;
  if (call.packed.kept) {
    bool& made = is_packed_[call.packed.place.offset];
    if (made) return out;
    made = true;
  }
  pack_weight(bound.weights.front(), call.packed, out);
  return out;
}

void Worker::pack_weight(const View& weight, const PackedOperand& packed, void* out) {
  const bool transposed = packed.transposed;
  const int64_t rows = weight.desc.shape[0], columns = weight.desc.shape[1];
  const int64_t k = transposed ? columns : rows, n = transposed ? rows : columns;
  const auto pack_as_bf16 = [&](const auto* values) {
    kernels::pack_bf16({.k = k,
                        .n = n,
                        .b = values,
                        .stride = columns,
                        .transposed = transposed,
                        .out = static_cast<kernels::Bf16*>(out)},
                       tiles_);
  };
  if (packed.dtype == DType::f32)
    pack({weight.f32(), columns, transposed}, k, n, static_cast<float*>(out), tiles_);
  else if (weight.desc.dtype == DType::f32)
    pack_as_bf16(weight.f32());
  else
    pack_as_bf16(weight.bf16());
}

// Weights have a place per version.
void Worker::bind_weights(const StepDescriptor& step, const RankProgram& program,
                          const ProgramCall& call, BoundCall& bound, int32_t micro_batch) {
  const int64_t version = weights_at(versions(), step, micro_batch);
  for (size_t i = bound.stored.data ? 1 : 0; i < call.weights.size(); ++i) {
    const Place& place = call.weights[i].place;
    bound.weights[i].data = static_cast<std::byte*>(at(program, place, micro_batch)) +
                            (versions().has(place.offset) ? version : 0);
  }
}

// If the call is the first one that adds to a sum: returns whether the op writes it; otherwise
// clears it.
bool Worker::begin_sum(const ProgramCall& call, BoundCall& bound, const GroupSums& sums) {
  const bool empty = bound.empty && *bound.empty;
  if (empty) *bound.empty = false;
  const bool begins = empty || (call.acc.place && call.opens && (sums.is_fresh() || call.clears));
  if (!begins) return false;
  const bool writes = plan_->model->node(call.node).op->writes_sum(std::max(call.weight, 0));
  if (!writes) clear(call.acc, sums.depth());
  return writes;
}

Call Worker::make_call(const StepDescriptor& step, const RankProgram& program,
                       const ProgramCall& call, BoundCall& bound, int32_t micro_batch,
                       const GroupSums& sums) {
  bind_weights(step, program, call, bound, micro_batch);
  bound.acc.data = sum_at(call.acc.place, call.acc.desc[0], sums.depth());
  const Node& node = plan_->model->node(call.node);
  const CallKey key{plan_->config.seed, step_of(step, micro_batch),
                    static_cast<uint32_t>(micro_batch_of(step, micro_batch)),
                    static_cast<uint32_t>(node.origin)};
  return Call{.attrs = &node.attrs,
              .in = bound.in,
              .weights = bound.weights,
              .out = bound.out,
              .stash = bound.stash,
              .state = bound.state,
              .dout = bound.dout,
              .din = bound.din,
              .acc = bound.acc,
              .begins_sum = begin_sum(call, bound, sums),
              .rows = call.acc.place ? rows_at(call.acc.place, sums.depth()) : nullptr,
              .weight = std::max(call.weight, 0),
              .packed = packed_weight(program, call, bound, micro_batch),
              .stored = bound.stored,
              .scratch = at(program, call.scratch, micro_batch),
              .key = key,
              .training = step.mode == Mode::train,
              .denominator = denominator_of(step, micro_batch),
              .tiles = &tiles_};
}

Status Worker::run_op(const StepDescriptor& step, const RankProgram& program,
                      const ProgramCall& call, BoundCall& bound, int32_t micro_batch) {
  const GroupSums sums(*plan_, step, micro_batch);
  const Node& node = plan_->model->node(call.node);
  const Call op = make_call(step, program, call, bound, micro_batch, sums);
  const Status status = run_kernel(program, call, bound, *node.op, op, micro_batch);
  if (!status.ok())
    return status.within(
        cat("node '", node.name, "' (", node.op->name(), "), micro-batch ", micro_batch));
  if (call.acc.place && call.closes)
    sums.finish([&](int32_t depth) { clear(call.acc, depth); },
                [&](int32_t depth) { fold(call.acc, depth); });
  return {};
}

}  // namespace weft
