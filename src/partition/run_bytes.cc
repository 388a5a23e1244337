#include "partition/run_bytes.h"

#include <algorithm>
#include <set>

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
  WEFT_TRY_ASSIGN(out.model_, pieces_of({std::shared_ptr<const Model>(), &model}, config.tensor));
  out.shapes_ = Shapes(*out.model_, config);
  out.index_nodes();
  out.rank_of_stage_ = train.rank_of_stage;
  out.replicas_ = train.replicas;
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
  std::vector<std::set<Kind>> kinds(out.rank_of_stage_.size());
  out.turn_.assign(out.rank_of_stage_.size(), 0);
  for (const auto& row : train.rows)
    for (size_t i = 0; i < row.size(); ++i) {
      const auto stage = static_cast<size_t>(row[i].stage);
      kinds[stage].insert(row[i].kind);
      if (row[i].kind == Kind::B || row[i].kind == Kind::W) out.turn_[stage] = i;
    }
  for (const auto& of_stage : kinds) out.kinds_.emplace_back(of_stage.begin(), of_stage.end());
  for (Mode mode : {Mode::train, Mode::eval, Mode::infer})
    if (makes(model, config, mode)) WEFT_TRY(out.add_mode(mode, train));
  return out;
}

// Inputs belong to the stage of their first use.
void RunBytes::index_nodes() {
  for (const Node& piece : model_->nodes()) {
    NodeId node = piece.origin;
    if (whole_->node(node).is_input() && !whole_->node(node).uses.empty())
      node = whole_->node(node).uses.front().node;
    index_.push_back(static_cast<size_t>(std::max(ops_.index[static_cast<size_t>(node)], 0)));
  }
}

int32_t RunBytes::replicas_of(size_t s) const {
  return replicas_.empty() ? config_.data : replicas_[s];
}

Status RunBytes::add_mode(Mode mode, const Schedule& train) {
  auto info = std::make_unique<ModeInfo>();
  info->graph = build_step_graph(*model_, mode, std::vector<int32_t>(model_->nodes().size(), 0));
  info->schedule = train;
  if (mode != Mode::train) {
    WEFT_TRY_ASSIGN(info->schedule,
                    make_forward(train, forward_micro_batches(config_, mode, train)));
  }
  info->times = chained(info->schedule);
  const int32_t all = config_.data > 1 ? config_.micro_batches : info->schedule.micro_batches;
  for (TensorId t : info->graph.sinks)
    info->sinks = sum_of_bytes(info->sinks,
                               bytes_of_many(padded_bytes(shapes_.desc(info->graph, t, 0)), all));
  info->places.resize(rank_of_stage_.size());
  modes_.push_back(std::move(info));
  return {};
}

RunBytes::Cut RunBytes::cut_at(size_t begin, size_t end) const {
  std::vector<int32_t> stage_of_node;
  for (const size_t i : index_) stage_of_node.push_back(i < begin ? 0 : i < end ? 1 : 2);
  Cut out{.segmented = cut_segments(*model_, stage_of_node, config_.shard_ranks), .own = {}};
  for (size_t i = 0; i < out.segmented.segments.size(); ++i)
    if (out.segmented.segments[i].stage == 1) out.own.push_back(i);
  return out;
}

// Also sets the stages of the folds of the mode's graph.
RunBytes::Works RunBytes::works_of(ModeInfo& mode, size_t s, const Cut& cut) const {
  const std::vector<int32_t>& segment_of = cut.segmented.segment_of_node;
  place_folds(mode.graph, *model_, segment_of);
  std::map<size_t, std::vector<const StepCall*>> calls;
  for (const size_t i : cut.own) calls[i] = {};
  for (const StepCall& call : mode.graph.calls) {
    const auto at = calls.find(static_cast<size_t>(segment_of[static_cast<size_t>(call.where)]));
    if (at != calls.end()) at->second.push_back(&call);
  }
  const bool train = mode.graph.mode == Mode::train;
  Works out;
  for (const auto& [i, own] : calls)
    out.emplace(i, make_stage_work(own, train && split_[s], train ? segments_[s] : 0));
  return out;
}

RunBytes::Borders RunBytes::borders_of(const ModeInfo& mode, const Works& works, size_t segment,
                                       const Cut& cut) const {
  const std::vector<Segment>& segments = cut.segmented.segments;
  const auto segment_at = [&](NodeId node) -> const Segment& {
    const int32_t at = cut.segmented.segment_of_node[static_cast<size_t>(node)];
    return segments[static_cast<size_t>(at)];
  };
  const int32_t place = segments[segment].place;
  const StageWork& work = works.at(segment);
  Borders out;
  std::set<TensorId> read, sinks(mode.graph.sinks.begin(), mode.graph.sinks.end());
  for (const auto& calls : work.calls)
    for (const StepCall* call : calls)
      for (TensorId t : reads_of(*call)) read.insert(t);
  for (const auto& [t, life] : work.lives) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    const bool gradient = tensor.role == StepTensor::Role::grad;
    if (!life.made) {
      const Segment& maker = segment_at(tensor.maker);
      const bool fed = !gradient && model_->node(tensor.node).is_input(),
                 own = !fed && maker.stage == 1;
      if (!own || maker.place != place) out.traffic.arrivals.push_back(t);
      out.side[t] = fed || own ? 0 : gradient ? 1 : -1;
      continue;
    }
    bool shared = sinks.contains(t);
    for (const auto& [reader, there] : works) {
      const auto at = there.lives.find(t);
      if (reader == segment || at == there.lives.end()) continue;
      const bool same_rank = segments[reader].place == place;
      out.until[t] = std::max(out.until[t], same_rank ? at->second.last : at->second.first);
      shared = true;
    }
    if (tensor.role == StepTensor::Role::value) {
      const auto& uses = model_->node(tensor.node).uses;
      const bool behind = std::any_of(uses.begin(), uses.end(), [&](const Node::Use& use) {
        return segment_at(use.node).stage == 2 &&
               mode.graph.value[static_cast<size_t>(use.node)] >= 0;
      });
      if (behind) out.side[t] = 1;
      shared = shared || behind;
    } else if (gradient && !shared && !read.contains(t)) {
      out.side[t] = -1;
      shared = true;
    }
    if (shared) out.traffic.shared[t] = {};
  }
  return out;
}

void RunBytes::add_terms(Run& run, ModeInfo& mode, size_t s, const Cut& cut) {
  const auto m = static_cast<size_t>(mode.graph.mode);
  const Works works = works_of(mode, s, cut);
  for (const auto& [i, work] : works) {
    Borders borders = borders_of(mode, works, i, cut);
    Share& share = run.shares[static_cast<size_t>(cut.segmented.segments[i].place)];
    const StageHoldings held = holdings_of(work, borders.traffic, *model_, mode.graph, shapes_);
    share.scratch[m] = std::max(share.scratch[m], held.scratch);
    for (const Holding& h : held.list) {
      Term term{h.kind, h.first, h.last, 0, h.bytes};
      if (h.kind != Holding::Kind::kept) {
        term.last = std::max(term.last, borders.until[h.tensors.front().id]);
        term.side = borders.side[h.tensors.front().id];
      }
      share.terms[m].push_back(term);
    }
    if (config_.shard == "parameters") add_reads(share, mode, s, work);
  }
}

const RunBytes::Run& RunBytes::run(size_t s, size_t begin, size_t end) {
  const auto [at, fresh] = runs_.try_emplace({begin, end, kinds_[s], segments_[s], replicas_of(s)});
  if (!fresh) return at->second;
  Run& out = at->second;
  const Cut cut = cut_at(begin, end);
  out.shares.resize(static_cast<size_t>(config_.shard_ranks));
  std::vector<bool> found(out.shares.size(), false);
  for (const size_t i : cut.own) found[static_cast<size_t>(cut.segmented.segments[i].place)] = true;
  out.complete = std::find(found.begin(), found.end(), false) == found.end();
  add_sums(out, cut);
  for (const auto& mode : modes_) add_terms(out, *mode, s, cut);
  return out;
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

int32_t RunBytes::own_micro_batches(const ModeInfo& mode, size_t s, int32_t replica) const {
  const int32_t all = mode.schedule.micro_batches, replicas = replicas_of(s);
  if (!replicas_.empty()) return (all - replica + replicas - 1) / replicas;
  if (replicas == 1) return all;
  const GradientGroups groups{config_.micro_batches, config_.gradient_groups};
  const int32_t own = config_.gradient_groups / replicas;
  return groups.begin((replica + 1) * own) - groups.begin(replica * own);
}

BytesOfRun RunBytes::sum_of(std::span<const RunOfNodes> stages) {
  const size_t first = stages.front().stage;
  const int32_t replicas = replicas_of(first);
  const Parameters parameters = parameters_of(stages);
  BytesOfRun out;
  for (size_t rank = 0; rank < parameters.values.size(); ++rank) {
    const size_t place = rank / static_cast<size_t>(replicas);
    const auto d = static_cast<int32_t>(rank % static_cast<size_t>(replicas));
    const int64_t fixed = sum_of_bytes(bytes_of_many(parameters.values[rank], versions_[first]),
                                       parameters.others[rank]);
    for (const auto& mode : modes_) {
      const auto m = static_cast<size_t>(mode->graph.mode);
      const bool controls = rank == 0 && rank_of_stage_[first] == 0 &&
                            (stages.size() > 1 || first == first_of_rank_0_);
      int64_t all = sum_of_bytes(fixed, controls ? mode->sinks : 0), kept = 0, scratch = 0;
      for (const RunOfNodes& stage : stages) {
        const Share& share = run(stage.stage, stage.begin, stage.end).shares[place];
        scratch = std::max(scratch, share.scratch[m]);
        for (const Term& term : share.terms[m]) {
          const int32_t count =
              std::min(places(*mode, stage.stage, term), own_micro_batches(*mode, stage.stage, d));
          const int64_t bytes = bytes_of_many(term.bytes, count);
          all = sum_of_bytes(all, bytes);
          if (term.kind == Holding::Kind::kept) kept = sum_of_bytes(kept, bytes);
        }
      }
      all = sum_of_bytes(all, scratch);
      all =
          sum_of_bytes(all, slots_of(stages, *mode, place, static_cast<int32_t>(rank), parameters));
      // With one more node, another replica may own a parameter.
      out = {std::max(out.all, all),
             std::max(out.least, replicas > 1 ? kept : sum_of_bytes(fixed, kept))};
    }
  }
  return out;
}

BytesOfRun RunBytes::of(const RunOfNodes& at) {
  const auto [known, fresh] =
      known_[at.stage].try_emplace(at.begin * (ops_.ids.size() + 1) + at.end);
  if (!fresh) return known->second;
  const Run& nodes = run(at.stage, at.begin, at.end);
  known->second = sum_of({&at, 1});
  if (!nodes.complete) known->second.all = kEndless;
  return known->second;
}

int64_t RunBytes::of_rank(const std::vector<RunOfNodes>& stages) {
  if (stages.size() == 1) return of(stages.front()).all;
  std::vector<size_t> key;
  for (const RunOfNodes& run : stages) key.insert(key.end(), {run.stage, run.begin, run.end});
  const auto [known, fresh] = known_ranks_.try_emplace(std::move(key));
  if (!fresh) return known->second;
  bool complete = true;
  for (const RunOfNodes& at : stages)
    complete = run(at.stage, at.begin, at.end).complete && complete;
  known->second = complete ? sum_of(stages).all : kEndless;
  return known->second;
}

void RunBytes::add_to(ScheduleCosts& costs, const RunOfNodes& at) {
  const size_t s = at.stage;
  double held = 0, parked = 0, kept = 0;
  for (const Share& share : run(s, at.begin, at.end).shares) {
    double held_here = 0, parked_here = 0, kept_here = 0;
    for (const Term& term : share.terms[static_cast<size_t>(Mode::train)]) {
      const auto bytes = static_cast<double>(term.bytes);
      const bool is_held = term.first == kPhaseF && term.last > kPhaseF,
                 is_parked = term.first < kPhaseW && term.last == kPhaseW;
      if (is_held) held_here += bytes;
      if (is_parked) parked_here += bytes;
      if (is_held && is_parked) kept_here += bytes;
    }
    held = std::max(held, held_here);
    parked = std::max(parked, parked_here);
    kept = std::max(kept, kept_here);
  }
  const Parameters parameters = parameters_of({&at, 1});
  int64_t fixed = 0;
  for (size_t rank = 0; rank < parameters.values.size(); ++rank)
    fixed = std::max(fixed, sum_of_bytes(parameters.values[rank], parameters.others[rank]));
  costs.held[s] += held;
  costs.parked[s] += parked;
  costs.kept[s] += kept;
  costs.fixed[s] += static_cast<double>(fixed);
}

NodeTimes RunBytes::remade(const RunOfNodes& at, const std::vector<NodeTimes>& times) {
  NodeTimes out;
  if (segments_[at.stage] == 0) return out;
  const std::vector<NodeTimes> of_pieces =
      times_of_pieces(*model_, config_.micro_batch_size, times);
  for (const auto& [i, work] : works_of(*modes_.front(), at.stage, cut_at(at.begin, at.end))) {
    const NodeTimes again = remade_seconds(work, of_pieces);
    out.input += again.input;
    out.weight += again.weight;
  }
  return out;
}

int64_t RunBytes::kept(size_t begin, size_t end) {
  int64_t sum = 0;
  for (const Share& share : run(0, begin, end).shares)
    for (const Term& term : share.terms[static_cast<size_t>(Mode::train)])
      if (term.first == kPhaseF && term.last > kPhaseF && term.kind != Holding::Kind::feed &&
          term.kind != Holding::Kind::landing)
        sum = sum_of_bytes(sum, term.bytes);
  return sum;
}

}  // namespace weft
