#include "support/digest_worker.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/group_sums.h"
#include "engine/steps.h"

namespace weft::test {

namespace {

using Role = ResidentTensor::Role;

// Of the value, and of the gradient and the optimizer state of a parameter that has them.
int64_t bytes_of(const Model& model, const ResidentParam& p) {
  return static_cast<int64_t>(Desc{p.dtype, model.param(p.param).local}.bytes());
}

int64_t edge_bytes(const Edge& edge, const StepDescriptor& step, int32_t micro_batch) {
  return static_cast<int64_t>(
      edge.desc[static_cast<size_t>(variant_of(step, micro_batch))].bytes());
}

}  // namespace

DigestWorker::DigestWorker(std::shared_ptr<const Plan> plan, int32_t rank)
    : plan_(std::move(plan)), rank_(rank) {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    const Param& param = plan_->model->param(p.param);
    if (p.value()) write(p.value().offset, bytes_of(*plan_->model, p), Provenance::initial(param));
    owned_ += p.owned;
    write_sent(p, Provenance::initial(param));
    for (const ResidentTensor& t : p.of(Role::state))
      write(t.place.offset, bytes_of(*plan_->model, p), Provenance::cleared());
  }
  squares_.resize(owned_ * static_cast<size_t>(std::max(plan_->config.segment, 1)));
}

int64_t DigestWorker::address(const RankProgram& program, const Place& place, int32_t micro_batch,
                              uint64_t sequence) const {
  return program.rings[static_cast<size_t>(place.ring)].at(micro_batch, sequence) + place.offset;
}

Result<Digest> DigestWorker::read(int64_t address, int64_t bytes, const std::string& what) const {
  auto it = memory_.find(address);
  if (it == memory_.end() || it->second.bytes != bytes)
    return Status(Code::internal, cat("rank ", rank_, ": ", what, " reads ", bytes, " bytes at ",
                                      address, " that do not contain a whole value"));
  return it->second.digest;
}

void DigestWorker::write(int64_t address, int64_t bytes, const Digest& digest) {
  auto it = memory_.lower_bound(address);
  if (it != memory_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > address) --it;
  while (it != memory_.end() && it->first < address + bytes) it = memory_.erase(it);
  memory_[address] = {bytes, digest};
}

void DigestWorker::write_sent(const ResidentParam& param, const Digest& value) {
  for (const ResidentTensor& t : param.of(Role::sent))
    write(t.place.offset, static_cast<int64_t>(t.desc.bytes()), value);
}

const ResidentParam* DigestWorker::find(ParamId param) const {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)])
    if (p.param == param) return &p;
  return nullptr;
}

Result<Digest> DigestWorker::weight(ParamId param) const {
  const ResidentParam* p = find(param);
  if (!p || !p->value())
    return Status(Code::not_found, cat("rank ", rank_, " does not keep parameter ", param));
  return read(p->value().offset, bytes_of(*plan_->model, *p), "weight");
}

Result<Digest> DigestWorker::grad(ParamId param) const {
  const ResidentParam* p = find(param);
  if (!p || !p->owned || !p->gradient())
    return Status(Code::not_found, cat("rank ", rank_, " has no gradient of parameter ", param));
  return read(p->gradient().offset, bytes_of(*plan_->model, *p), "gradient");
}

Result<Digest> DigestWorker::outgoing(const StepDescriptor& step, int32_t edge,
                                      int32_t micro_batch) const {
  const Edge& e = plan_->mode(step.mode).edges[static_cast<size_t>(edge)];
  if (e.kind == EdgeKind::feed)
    return Provenance::fed(plan_->mode(step.mode).graph.tensors[static_cast<size_t>(e.tensor)].node,
                           step, micro_batch);
  return read(address(program(step.mode), e.outgoing, micro_batch, step.sequence) +
                  offset_of_message(*plan_, rank_, e, micro_batch),
              edge_bytes(e, step, micro_batch), "a message");
}

Status DigestWorker::land(const StepDescriptor& step, int32_t edge, int32_t micro_batch,
                          const Digest& value) {
  const Edge& e = plan_->mode(step.mode).edges[static_cast<size_t>(edge)];
  write(address(program(step.mode), e.landing, micro_batch, step.sequence) +
            offset_of_message(*plan_, rank_, e, micro_batch),
        edge_bytes(e, step, micro_batch), value);
  return {};
}

Result<Digest> DigestWorker::landed(const StepDescriptor& step, int32_t edge,
                                    int32_t micro_batch) const {
  const Edge& e = plan_->mode(step.mode).edges[static_cast<size_t>(edge)];
  return read(address(program(step.mode), e.landing, micro_batch, step.sequence),
              edge_bytes(e, step, micro_batch), "a delivery");
}

Status DigestWorker::read_sinks(const StepDescriptor& step, int32_t micro_batch,
                                std::vector<std::vector<Digest>>& out) const {
  const ModePlan& mode = plan_->mode(step.mode);
  size_t sink = 0;
  for (int32_t e : program(step.mode).edges) {
    const Edge& edge = mode.edges[static_cast<size_t>(e)];
    if (edge.kind != EdgeKind::sink || !edge.has(micro_batch)) continue;
    if (sink == out.size()) out.emplace_back(static_cast<size_t>(step.micro_batches));
    WEFT_TRY_ASSIGN(out[sink][static_cast<size_t>(micro_batch)], landed(step, e, micro_batch));
    ++sink;
  }
  return {};
}

Status DigestWorker::run(const StepDescriptor& step, double scale, int32_t job) {
  const RankProgram& p = program(step.mode);
  const Job& which = p.jobs[static_cast<size_t>(job)];
  switch (which.kind) {
    case JobKind::clear:
      summed_ = owned_ * static_cast<size_t>(std::max(updates_at(versions(), step), 1));
      clear();
      return {};
    case JobKind::action: return run_action(step, p, which);
    case JobKind::reduce:
      return step.per_update > 0 ? Status()
                                 : reduce(p.buckets[static_cast<size_t>(which.program)], 0, 1);
    case JobKind::update:
      return step.per_update > 0 ? make_first(updates_at(versions(), step))
                                 : update(step.step, 0, 0, scale);
    case JobKind::send_ties:
    case JobKind::finish: return {};
  }
  return {};
}

Status DigestWorker::run_action(const StepDescriptor& step, const RankProgram& program,
                                const Job& job) {
  const ActionProgram& action = program.programs[static_cast<size_t>(job.program)];
  if (action.kind == Kind::O) return run_update(step, job.micro_batch);
  if (job.micro_batch >= step.micro_batches) {  // zeros are what the replica adds
    for (const ProgramCall& call : action.calls)
      if (call.clears)
        write(call.acc.place.offset, static_cast<int64_t>(call.acc.desc[0].bytes()),
              Provenance::cleared());
    return {};
  }
  for (const ProgramCall& call : action.calls)
    WEFT_TRY(run_call(step, program, call, job.micro_batch)
                 .within(Action{action.stage, action.kind, job.micro_batch}.text()));
  return {};
}

Result<std::vector<Digest>> DigestWorker::operands_of(const StepDescriptor& step,
                                                      const RankProgram& program,
                                                      const ProgramCall& call,
                                                      int32_t micro_batch) {
  const auto variant = static_cast<size_t>(variant_of(step, micro_batch));
  const GroupSums sums(*plan_, step, micro_batch);
  const Node& node = plan_->model->node(call.node);
  std::vector<Digest> operands;
  Status status;
  auto take = [&](const PlacedOperand& o, int64_t offset = 0) {
    if (!o.place || !status.ok()) return;
    auto digest = read(address(program, o.place, micro_batch, step.sequence) + offset,
                       static_cast<int64_t>(o.desc[variant].bytes()), node.name);
    if (digest.ok())
      operands.push_back(digest.take());
    else
      status = digest.status();
  };
  for (const PlacedOperand& o : call.in) take(o);
  if (!folds(call.kind) && reads_weights(node, call.kind))
    for (const PlacedOperand& o : call.weights)
      take(o, versions().has(o.place.offset) ? weights_at(versions(), step, micro_batch) : 0);
  if (!makes_output(call.kind)) {
    take(call.out);
    for (const PlacedOperand& o : call.stash) take(o);
    take(call.dout);
    if (call.acc.place && call.opens && (sums.is_fresh() || call.clears))
      write(sum_at(call.acc, sums.depth()), static_cast<int64_t>(call.acc.desc[0].bytes()),
            Provenance::cleared());
    take(call.acc, sum_at(call.acc, sums.depth()) - call.acc.place.offset);
  }
  WEFT_TRY(std::move(status));
  return operands;
}

Status DigestWorker::run_call(const StepDescriptor& step, const RankProgram& program,
                              const ProgramCall& call, int32_t micro_batch) {
  const int32_t variant = variant_of(step, micro_batch);
  auto put = [&](const PlacedOperand& o, const Digest& digest) {
    if (o.place)
      write(address(program, o.place, micro_batch, step.sequence),
            static_cast<int64_t>(o.desc[static_cast<size_t>(variant)].bytes()), digest);
  };
  WEFT_TRY_ASSIGN(const std::vector<Digest> operands,
                  operands_of(step, program, call, micro_batch));
  if (folds(call.kind)) {
    put(call.out, call.kind == CallKind::add ? Provenance::add(operands[0], operands[1])
                                             : Provenance::join(call.node, operands));
    return {};
  }
  const Digest made = Provenance::call(*plan_->model, call.kind, call.node, call.weight, step,
                                       micro_batch, operands);
  // No other call uses the scratch memory of a call while it runs.
  const int64_t scratch =
      static_cast<int64_t>(plan_->model->infer(call.node, plan_->samples(variant)).scratch);
  if (call.scratch && scratch > 0)
    write(address(program, call.scratch, micro_batch, step.sequence), scratch, made);
  if (call.kind == CallKind::forward) {
    put(call.out, Provenance::result(made, 0));
    for (size_t k = 0; k < call.stash.size(); ++k)
      put(call.stash[k], Provenance::result(made, static_cast<int32_t>(k) + 1));
  }
  for (size_t i = 0; i < call.din.size(); ++i)
    put(call.din[i], Provenance::result(made, static_cast<int32_t>(i)));
  if (call.kind != CallKind::weight_grad) return {};
  return add_to_sum(step, call, micro_batch, Provenance::result(made, 0));
}

Status DigestWorker::add_to_sum(const StepDescriptor& step, const ProgramCall& call,
                                int32_t micro_batch, const Digest& sum) {
  const GroupSums sums(*plan_, step, micro_batch);
  const auto bytes = static_cast<int64_t>(call.acc.desc[0].bytes());
  write(sum_at(call.acc, sums.depth()), bytes, sum);
  Status status;
  if (!call.closes) return status;
  sums.finish([&](int32_t depth) { write(sum_at(call.acc, depth), bytes, Provenance::cleared()); },
              [&](int32_t depth) {
                if (status.ok())
                  status = fold(sum_at(call.acc, depth), sum_at(call.acc, depth - 1), bytes);
              });
  return status;
}

int64_t DigestWorker::sum_at(const PlacedOperand& accumulator, int32_t depth) {
  return accumulator.place.offset + depth * padded_bytes(accumulator.desc[0]);
}

// Adds the value at `from` to the value at `to`.
Status DigestWorker::fold(int64_t from, int64_t to, int64_t bytes) {
  WEFT_TRY_ASSIGN(const Digest later, read(from, bytes, "fold"));
  WEFT_TRY_ASSIGN(const Digest earlier, read(to, bytes, "fold"));
  write(to, bytes, Provenance::add(later, earlier));
  return {};
}

void DigestWorker::clear() {
  for (const ResidentParam& r : plan_->resident[static_cast<size_t>(rank_)])
    for (const ResidentTensor& t : r.of(Role::accumulator))
      if (t.local && t.run < 0)
        write(t.place.offset, static_cast<int64_t>(t.desc.bytes()), Provenance::cleared());
}

Status DigestWorker::reduce(const Bucket& bucket, int32_t update, int32_t parts) {
  size_t at = static_cast<size_t>(update) * owned_;
  auto part = bucket.parts.begin();
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (!p.owned) continue;
    double& squares = squares_[at++];
    if (part == bucket.parts.end() || part->param != p.param) continue;
    WEFT_TRY(add_sums(p, *part, update));
    if (part++->first > 0) continue;
    const int64_t bytes = bytes_of(*plan_->model, p);
    WEFT_TRY_ASSIGN(Digest grad, read(p.gradient().offset, bytes, "gradient"));
    if (parts > 1) {
      grad = Provenance::mean(grad, parts);
      write(p.gradient().offset, bytes, grad);
    }
    squares = Provenance::square(grad);
  }
  return {};
}

Status DigestWorker::add_sums(const ResidentParam& p, const Bucket::Part& part, int32_t update) {
  const int64_t bytes = bytes_of(*plan_->model, p);
  const auto accumulators = p.of(Role::accumulator);
  const int32_t replicas = plan_->replicas_at(rank_);
  const auto sums = static_cast<int32_t>(accumulators.size()) / replicas;
  Status status;
  const auto at = [&](int32_t sum, int32_t replica) {
    return accumulators[static_cast<size_t>(sum * replicas + replica)].sum_of(update);
  };
  for (int32_t sum = part.end - 1; sum >= part.first; --sum) {
    add_tree(0, replicas, [&](int32_t from, int32_t to) {
      if (status.ok()) status = fold(at(sum, from), at(sum, to), bytes);
    });
    WEFT_TRY(std::move(status));
    WEFT_TRY_ASSIGN(Digest total, read(at(sum, 0), bytes, "gradient"));
    if (sum + 1 < sums) {
      WEFT_TRY_ASSIGN(const Digest later, read(p.gradient().offset, bytes, "gradient"));
      total = Provenance::add(later, total);
    }
    write(p.gradient().offset, bytes, total);
  }
  return {};
}

// `from`, `to`: versions.
Status DigestWorker::update(uint64_t step, int32_t from, int32_t to, double scale) {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (!p.updated) continue;
    const int64_t bytes = bytes_of(*plan_->model, p);
    WEFT_TRY_ASSIGN(const Digest grad, read(p.gradient().offset, bytes, "gradient"));
    WEFT_TRY_ASSIGN(const Digest old,
                    read(p.value().offset + versions().offset(from), bytes, "weight"));
    Digest state = Provenance::cleared();
    const auto states = p.of(Role::state);
    if (!states.empty()) {
      WEFT_TRY_ASSIGN(state, read(states[0].place.offset, bytes, "optimizer state"));
    }
    const Digest fresh = Provenance::update(old, grad, state, step, scale);
    write(p.value().offset + versions().offset(to), bytes, fresh);
    write_sent(p, fresh);
    if (!states.empty()) write(states[0].place.offset, bytes, Provenance::result(fresh, 1));
  }
  return {};
}

Status DigestWorker::run_update(const StepDescriptor& step, int32_t update) {
  const int32_t replicas = plan_->replicas_at(rank_);
  WEFT_TRY(reduce(program(step.mode).buckets.front(), update, replicas));
  return this->update(step.step + static_cast<uint64_t>(update) * static_cast<uint64_t>(replicas),
                      update, update + 1, 1);
}

Status DigestWorker::make_first(int32_t version) {
  for (const ResidentParam& p : plan_->resident[static_cast<size_t>(rank_)]) {
    if (!versions().has(p.value().offset)) continue;
    const int64_t bytes = bytes_of(*plan_->model, p);
    WEFT_TRY_ASSIGN(const Digest newest,
                    read(p.value().offset + versions().offset(version), bytes, "weight"));
    write(p.value().offset, bytes, newest);
  }
  return {};
}

}  // namespace weft::test
