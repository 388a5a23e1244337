#include "partition/run_bytes.h"

#include <algorithm>
#include <set>

#include "lowering/parameters.h"
#include "lowering/recompute.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// Every stage reads a value of the stage before it.
StageTimes chained(const Schedule& schedule) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < schedule.stages; ++s)
    edges.push_back({.from = s, .to = s + 1, .gradient = !schedule.forward_only});
  return lock_step(schedule, edges);
}

}  // namespace

Result<RunBytes> RunBytes::make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                                Schedule train) {
  RunBytes out(model, config, ops);
  out.rank_of_stage_ = train.rank_of_stage;
  out.first_of_rank_0_ =
      static_cast<size_t>(std::find(train.rank_of_stage.begin(), train.rank_of_stage.end(), 0) -
                          train.rank_of_stage.begin());
  out.known_.resize(out.rank_of_stage_.size());
  out.split_ = split_stages(train);
  out.versions_.assign(out.rank_of_stage_.size(), 1);
  WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(config.recompute));
  out.segments_ = segments_of(recompute, train);
  if (train.updates > 0) {
    WEFT_TRY_ASSIGN(const std::vector<WeightVersions> versions,
                    weight_versions(train, config.vertical_sync));
    for (size_t s = 0; s < versions.size(); ++s) out.versions_[s] = versions[s].count;
  }
  std::vector<bool> again;
  for (int32_t segment : out.segments_) again.push_back(segment > 0);
  add_recompute(train, std::move(again));
  for (Mode mode : {Mode::train, Mode::eval, Mode::infer})
    if (makes(model, config, mode)) WEFT_TRY(out.add_mode(mode, train));
  return out;
}

Status RunBytes::add_mode(Mode mode, const Schedule& train) {
  auto info = std::make_unique<ModeInfo>();
  info->graph = build_step_graph(model_, mode, std::vector<int32_t>(model_.nodes().size(), 0));
  info->schedule = train;
  if (mode != Mode::train) {
    const int32_t micro_batches = mode == Mode::eval ? train.micro_batches : config_.micro_batches;
    WEFT_TRY_ASSIGN(info->schedule, make_forward(train, micro_batches));
  }
  info->times = chained(info->schedule);
  for (TensorId t : info->graph.sinks)
    info->sinks = sum_of_bytes(
        info->sinks,
        bytes_of_many(padded_bytes(shapes_.desc(info->graph, t, 0)), info->schedule.micro_batches));
  info->calls.resize(model_.nodes().size());
  info->first_maker.assign(model_.nodes().size(), -1);
  for (const StepCall& call : info->graph.calls) {
    const bool add = call.kind == CallKind::add;
    info->calls[static_cast<size_t>(add ? info->graph.tensors[static_cast<size_t>(call.in[1])].maker
                                        : call.node)]
        .push_back(&call);
    std::vector<TensorId> made = call.din;
    if (call.kind == CallKind::join) made.push_back(call.out);
    for (TensorId t : made)
      if (t >= 0)
        if (NodeId& first = info->first_maker[static_cast<size_t>(
                info->graph.tensors[static_cast<size_t>(t)].node)];
            first < 0)
          first = call.node;
  }
  info->places.resize(rank_of_stage_.size());
  modes_.push_back(std::move(info));
  return {};
}

// Inputs belong to the stage of their first use.
size_t RunBytes::index(NodeId node) const {
  if (model_.node(node).is_input() && !model_.node(node).uses.empty())
    node = model_.node(node).uses.front().node;
  return static_cast<size_t>(std::max(ops_.index[static_cast<size_t>(node)], 0));
}

// In canonical order. A fold runs here if all its gradients are made here, or if its value is made
// here and the first gradients come from later stages.
std::vector<const StepCall*> RunBytes::calls_of(const ModeInfo& mode, size_t begin,
                                                size_t end) const {
  std::vector<const StepCall*> out;
  for (size_t i = begin; i < end; ++i)
    for (const StepCall* call : mode.calls[static_cast<size_t>(ops_.ids[i])])
      if (call->kind == CallKind::forward) out.push_back(call);
  for (size_t i = end; i-- > begin;)
    for (const StepCall* call : mode.calls[static_cast<size_t>(ops_.ids[i])]) {
      if (call->kind == CallKind::forward) continue;
      const bool here = call->kind != CallKind::add ||
                        index(mode.first_maker[static_cast<size_t>(call->node)]) < end ||
                        index(call->node) >= begin;
      if (here) out.push_back(call);
    }
  return out;
}

StageWork RunBytes::work_of(const ModeInfo& mode, size_t s, size_t begin, size_t end) const {
  const bool train = mode.graph.mode == Mode::train;
  return make_stage_work(calls_of(mode, begin, end), train && split_[s], train ? segments_[s] : 0);
}

void RunBytes::add_parameters(Run& run, size_t begin, size_t end) const {
  std::set<ParamId> used;
  for (size_t i = begin; i < end; ++i)
    for (ParamId p : model_.node(ops_.ids[i]).weights) used.insert(p);
  const auto here = [&](const Param::Use& use) {
    return index(use.node) >= begin && index(use.node) < end;
  };
  for (ParamId p : used) {
    std::vector<bool> local(static_cast<size_t>(model_.param(p).sums));
    for (const Param::Use& use : model_.param(p).uses)
      if (here(use)) local[static_cast<size_t>(use.sum)] = true;
    for (const ResidentTensor& t :
         resident_param(model_, config_, p, local.front(), local).tensors) {
      int64_t& sum = t.role == ResidentTensor::Role::value ? run.values : run.others;
      sum = sum_of_bytes(sum, t.bytes());
    }
  }
}

void RunBytes::add_terms(Run& run, const ModeInfo& mode, size_t s, size_t begin, size_t end) const {
  const StageWork work = work_of(mode, s, begin, end);
  StageTraffic traffic;
  std::set<TensorId> read;
  for (const auto& calls : work.calls)
    for (const StepCall* call : calls)
      for (TensorId t : reads_of(*call)) read.insert(t);
  for (const auto& [t, life] : work.lives) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    if (!life.made) {
      traffic.arrivals.push_back(t);
    } else if (tensor.role == StepTensor::Role::grad) {
      if (!read.contains(t)) traffic.shared[t] = {{-1, kPhaseI}};
    } else if (tensor.role == StepTensor::Role::value) {
      const auto& uses = model_.node(tensor.node).uses;
      const bool behind = std::any_of(uses.begin(), uses.end(), [&](const Node::Use& use) {
        return index(use.node) >= end && mode.graph.value[static_cast<size_t>(use.node)] >= 0;
      });
      if (behind) traffic.shared[t] = {{1, kPhaseF}};
    }
  }
  for (TensorId t : mode.graph.sinks) {
    if (!work.lives.contains(t) || !work.lives.at(t).made) continue;
    auto& readers = traffic.shared[t];
    if (mode.graph.tensors[static_cast<size_t>(t)].role == StepTensor::Role::grad)
      readers.clear();  // of an input: the controller
  }
  const StageHoldings held = holdings_of(work, traffic, model_, mode.graph, shapes_);
  const auto m = static_cast<size_t>(mode.graph.mode);
  run.scratch[m] = held.scratch;
  for (const Holding& h : held.list) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(h.tensors.front().id)];
    const int32_t arrives = h.kind != Holding::Kind::landing        ? 0
                            : tensor.role == StepTensor::Role::grad ? 1
                                                                    : -1;
    const Term term{h.kind, h.first, h.last, h.readers.empty() ? arrives : h.readers.front().stage,
                    h.bytes};
    run.terms[m].push_back(term);
  }
}

const RunBytes::Run& RunBytes::run(size_t s, size_t begin, size_t end) {
  const auto [at, fresh] = runs_.try_emplace({begin, end, split_[s], segments_[s]});
  if (!fresh) return at->second;
  add_parameters(at->second, begin, end);
  for (const auto& mode : modes_) add_terms(at->second, *mode, s, begin, end);
  return at->second;
}

// A tensor between two stages of a rank has one ring. The producing stage holds it until the last
// read of the other stage.
int32_t RunBytes::places(ModeInfo& mode, size_t s, const Term& term) {
  const int32_t key =
      ((static_cast<int32_t>(term.kind) * kPhases + term.first) * kPhases + term.last) * 3 +
      term.side + 1;
  const auto [at, fresh] = mode.places[s].try_emplace(key, 0);
  if (!fresh) return at->second;
  const auto other = static_cast<size_t>(static_cast<int64_t>(s) + term.side);
  if (other >= rank_of_stage_.size()) return at->second;
  const bool same_rank = term.side != 0 && rank_of_stage_[other] == rank_of_stage_[s];
  if (same_rank && term.kind == Holding::Kind::landing) return at->second;
  Holding holding{
      .kind = term.kind, .first = term.first, .last = term.last, .tensors = {}, .readers = {}};
  if (term.kind == Holding::Kind::shared && term.side != 0) {
    const int32_t last = mode.graph.mode != Mode::train ? kPhaseF
                         : split_[other]                ? kPhaseW
                                                        : kPhaseI;
    holding.readers = {{static_cast<int32_t>(other), same_rank       ? last
                                                     : term.side < 0 ? kPhaseI
                                                                     : kPhaseF}};
  }
  const int32_t slack = std::max(config_.slack, 1);
  const auto stage = static_cast<int32_t>(s);
  return at->second =
             places_of(holding, stage, mode.times, slack, mode.schedule.replicas_of(stage));
}

BytesOfRun RunBytes::of(const RunOfNodes& at) {
  const size_t s = at.stage;
  const auto [known, fresh] = known_[s].try_emplace(at.begin * (ops_.ids.size() + 1) + at.end);
  BytesOfRun& out = known->second;
  if (!fresh) return out;
  const Run& nodes = run(s, at.begin, at.end);
  const int64_t fixed = sum_of_bytes(bytes_of_many(nodes.values, versions_[s]), nodes.others);
  out = {fixed, fixed, 0};
  for (const auto& mode : modes_) {
    const auto m = static_cast<size_t>(mode->graph.mode);
    const int64_t sinks = sum_of_bytes(fixed, s == first_of_rank_0_ ? mode->sinks : 0);
    int64_t all = sum_of_bytes(sinks, nodes.scratch[m]), least = sinks;
    for (const Term& term : nodes.terms[m]) {
      const int64_t bytes = bytes_of_many(term.bytes, places(*mode, s, term));
      all = sum_of_bytes(all, bytes);
      if (term.kind == Holding::Kind::kept) least = sum_of_bytes(least, bytes);
    }
    out = {std::max(out.all, all), std::max(out.least, least),
           all > out.all ? nodes.scratch[m] : out.scratch};
  }
  return out;
}

void RunBytes::add_to(ScheduleCosts& costs, const RunOfNodes& at) {
  const size_t s = at.stage;
  const Run& nodes = run(s, at.begin, at.end);
  for (const Term& term : nodes.terms[static_cast<size_t>(Mode::train)]) {
    const auto bytes = static_cast<double>(term.bytes);
    const bool held = term.first == kPhaseF && term.last > kPhaseF,
               parked = term.first < kPhaseW && term.last == kPhaseW;
    if (held) costs.held[s] += bytes;
    if (parked) costs.parked[s] += bytes;
    if (held && parked) costs.kept[s] += bytes;
  }
  costs.fixed[s] += static_cast<double>(sum_of_bytes(nodes.values, nodes.others));
}

int64_t RunBytes::kept(size_t begin, size_t end) {
  int64_t sum = 0;
  for (const Term& term : run(0, begin, end).terms[static_cast<size_t>(Mode::train)])
    if (term.first == kPhaseF && term.last > kPhaseF && term.kind != Holding::Kind::feed &&
        term.kind != Holding::Kind::landing)
      sum = sum_of_bytes(sum, term.bytes);
  return sum;
}

}  // namespace weft
