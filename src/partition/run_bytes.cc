#include "partition/run_bytes.h"

#include <algorithm>
#include <set>

#include "lowering/recompute.h"
#include "partition/schedule_costs.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// If the schedule requires stages that are no chain, any order of them.
StageTimes times_of(const Schedule& schedule) {
  StageTimes chain = lock_step_of_chain(schedule);
  return chain.empty() ? lock_step(schedule, {}) : chain;
}

}  // namespace

Result<RunBytes> RunBytes::make(const Model& model, const PlanConfig& config, const OpNodes& ops,
                                Schedule train) {
  if (!config.schedule_text.empty())
    WEFT_TRY(check_schedule(train, {}).status().within("schedule of mode train"));
  RunBytes out(model, config, ops);
  WEFT_TRY_ASSIGN(out.model_, pieces_of({std::shared_ptr<const Model>(), &model}, config.tensor));
  out.shapes_ = Shapes(*out.model_, config);
  out.index_nodes();
  const auto stages = static_cast<size_t>(train.stages);
  out.split_ = split_stages(train);
  out.versions_.assign(stages, 1);
  if (train.updates > 0) {
    WEFT_TRY_ASSIGN(const std::vector<WeightVersions> versions,
                    weight_versions(train, config.vertical_sync));
    for (size_t s = 0; s < stages; ++s) out.versions_[s] = versions[s].count;
  }
  WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(config.recompute));
  for (const int32_t calls : segments_of(recompute, train)) out.again_.push_back({calls});
  std::vector<std::set<Kind>> kinds(stages);
  for (const auto& row : train.rows)
    for (const Action& action : row) kinds[static_cast<size_t>(action.stage)].insert(action.kind);
  for (const auto& of_stage : kinds) out.kinds_.emplace_back(of_stage.begin(), of_stage.end());
  out.train_ = std::move(train);
  for (Mode mode : {Mode::train, Mode::eval, Mode::infer})
    if (makes(model, config, mode)) WEFT_TRY(out.add_mode(mode));
  out.set_times();
  return out;
}

// Inputs belong to the stage of their first use.
void RunBytes::index_nodes() {
  std::vector<size_t> of_whole;
  for (NodeId id = 0; id < static_cast<NodeId>(whole_->nodes().size()); ++id) {
    const Node& node = whole_->node(id);
    const NodeId at = node.is_input() && !node.uses.empty() ? node.uses.front().node : id;
    of_whole.push_back(static_cast<size_t>(std::max(ops_.index[static_cast<size_t>(at)], 0)));
  }
  for (const Node& piece : model_->nodes())
    index_.push_back(of_whole[static_cast<size_t>(piece.origin)]);
  near_.resize(ops_.ids.size());
  for (size_t id = 0; id < of_whole.size(); ++id)
    for (const Node::Use& use : whole_->node(static_cast<NodeId>(id)).uses) {
      const size_t from = of_whole[id], to = of_whole[static_cast<size_t>(use.node)];
      near_[from].push_back(to);
      near_[to].push_back(from);
    }
}

int32_t RunBytes::replicas_of(size_t s) const {
  return train_.replicas.empty() ? config_.data : train_.replicas[s];
}

Status RunBytes::add_mode(Mode mode) {
  auto info = std::make_unique<ModeInfo>();
  info->graph = build_step_graph(*model_, mode, std::vector<int32_t>(model_->nodes().size(), 0));
  info->readers.resize(info->graph.tensors.size());
  for (size_t c = 0; c < info->graph.calls.size(); ++c)
    for (TensorId t : reads_of(info->graph.calls[c]))
      info->readers[static_cast<size_t>(t)].push_back(c);
  info->schedule = train_;
  if (mode != Mode::train) {
    WEFT_TRY_ASSIGN(info->schedule,
                    make_forward(train_, forward_micro_batches(config_, mode, train_)));
    info->times = times_of(info->schedule);
  }
  const int32_t all = config_.data > 1 ? config_.micro_batches : info->schedule.micro_batches;
  for (TensorId t : info->graph.sinks)
    info->sinks = sum_of_bytes(info->sinks,
                               bytes_of_many(padded_bytes(shapes_.desc(info->graph, t, 0)), all));
  modes_.push_back(std::move(info));
  return {};
}

void RunBytes::set_order(Schedule train) {
  train_ = std::move(train);
  set_times();
}

void RunBytes::set_recompute(Again again) {
  again_ = std::move(again);
  set_times();
}

void RunBytes::set_times() {
  Schedule order = train_;
  std::vector<bool> wanted;
  form_.clear();
  for (size_t s = 0; s < again_.size(); ++s) {
    wanted.push_back(*std::max_element(again_[s].begin(), again_[s].end()) > 0);
    form_.push_back(forms_.try_emplace({kinds_[s], again_[s]}, forms_.size()).first->second);
  }
  add_recompute(order, std::move(wanted));
  turn_.assign(again_.size(), 0);
  for (const auto& row : order.rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i].kind == Kind::B || row[i].kind == Kind::W)
        turn_[static_cast<size_t>(row[i].stage)] = i;
  for (auto& mode : modes_) {
    if (mode->graph.mode == Mode::train) {
      mode->times = times_of(order);
      mode->schedule = order;
    }
    mode->places.assign(again_.size(), {});
  }
  known_.assign(again_.size(), {});
  known_ranks_.clear();
}

std::vector<int32_t> RunBytes::surroundings(const RunOfNodes& at,
                                            const std::vector<size_t>& first) const {
  std::vector<int32_t> out;
  bool near = true;
  for (size_t i = at.begin; i < at.end; ++i)
    for (const size_t other : near_[i]) {
      if (at.begin <= other && other < at.end) continue;
      out.push_back(distance(at, &first, other));
      near = near && std::abs(out.back()) == 1;
    }
  if (near) out.clear();
  return out;
}

// From the run to the stage of a node.
int32_t RunBytes::distance(const RunOfNodes& at, const std::vector<size_t>* first, size_t node) {
  if (at.begin <= node && node < at.end) return 0;
  if (!first) return node < at.begin ? -1 : 1;
  const auto stage = std::upper_bound(first->begin(), first->end(), node) - first->begin() - 1;
  return static_cast<int32_t>(stage) - static_cast<int32_t>(at.stage);
}

RunBytes::Cut RunBytes::cut_at(const RunOfNodes& at, const std::vector<size_t>* first) const {
  Cut out;
  for (const size_t i : index_) out.stage_of_node.push_back(distance(at, first, i));
  out.segmented = cut_segments(*model_, out.stage_of_node, config_.shard_ranks);
  for (size_t i = 0; i < out.segmented.segments.size(); ++i)
    if (out.segmented.segments[i].stage == 0) out.own.push_back(i);
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
  size_t next = 0;
  for (const auto& [i, own] : calls) {
    const int32_t again = again_[s][std::min(next++, again_[s].size() - 1)];
    out.emplace(i, make_stage_work(own, train && split_[s], train ? again : 0));
  }
  return out;
}

RunBytes::Borders RunBytes::borders_of(const ModeInfo& mode, const Works& works, size_t segment,
                                       const Cut& cut) const {
  const auto segment_at = [&](NodeId node) -> const Segment& {
    const int32_t at = cut.segmented.segment_of_node[static_cast<size_t>(node)];
    return cut.segmented.segments[static_cast<size_t>(at)];
  };
  const int32_t place = cut.segmented.segments[segment].place;
  Borders out;
  const std::set<TensorId> sinks(mode.graph.sinks.begin(), mode.graph.sinks.end());
  for (const auto& [t, life] : works.at(segment).lives) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    const bool gradient = tensor.role == StepTensor::Role::grad;
    std::set<Peer> peers;
    if (!life.made) {
      const Segment& maker = segment_at(tensor.maker);
      const bool fed = !gradient && model_->node(tensor.node).is_input();
      if (!fed && maker.stage != 0) peers.insert({maker.stage, maker.place});
      if (fed || maker.stage != 0 || maker.place != place) out.traffic.arrivals.push_back(t);
    } else {
      bool shared = sinks.contains(t);
      for (const size_t c : mode.readers[static_cast<size_t>(t)]) {
        const NodeId where = mode.graph.calls[c].where;
        const auto at =
            static_cast<size_t>(cut.segmented.segment_of_node[static_cast<size_t>(where)]);
        if (at == segment) continue;
        shared = true;
        const Segment& reader = cut.segmented.segments[at];
        if (reader.stage != 0) {
          peers.insert({reader.stage, reader.place});
          continue;
        }
        int32_t& until = out.until[t];
        until = std::max(until, reader.place == place ? works.at(at).lives.at(t).last
                                : gradient            ? kPhaseI
                                                      : kPhaseF);
      }
      if (shared) out.traffic.shared[t] = {};
    }
    out.peers[t].assign(peers.begin(), peers.end());
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
      Term term{h.kind, h.first, h.last, h.bytes};
      if (h.kind != Holding::Kind::kept) {
        term.tensor = h.tensors.front().id;
        const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(term.tensor)];
        if (tensor.role == StepTensor::Role::grad) term.read = kPhaseI;
        term.last = std::max(term.last, borders.until[term.tensor]);
        term.peers = std::move(borders.peers[term.tensor]);
      }
      if (h.kind == Holding::Kind::landing) {
        int32_t& until = share.until[m][term.tensor];
        until = std::max(until, term.last);
      }
      share.terms[m].push_back(std::move(term));
    }
    if (config_.shard == "parameters") add_reads(share, mode, s, work);
  }
}

const RunBytes::Run& RunBytes::run(const RunOfNodes& at, const std::vector<size_t>* first) {
  const auto [known, fresh] =
      runs_.try_emplace({at.begin, at.end, form_[at.stage],
                         first ? surroundings(at, *first) : std::vector<int32_t>()});
  if (!fresh) return known->second;
  Run& out = known->second;
  const Cut cut = cut_at(at, first);
  out.shares.resize(static_cast<size_t>(config_.shard_ranks));
  std::vector<bool> found(out.shares.size(), false);
  for (const size_t i : cut.own) found[static_cast<size_t>(cut.segmented.segments[i].place)] = true;
  out.complete = std::find(found.begin(), found.end(), false) == found.end();
  add_sums(out, cut);
  for (const auto& mode : modes_) add_terms(out, *mode, at.stage, cut);
  return out;
}

// A tensor between two stages of a rank has one ring. The producing stage holds it until the last
// read of the other stages.
int32_t RunBytes::places(ModeInfo& mode, std::span<const Place> stages, size_t s, const Term& term,
                         int32_t place) {
  std::vector<Holding::Reader> readers;
  for (const Peer& peer : term.peers) {
    Holding::Reader reader{.stage = static_cast<int32_t>(s) + peer.stage, .phase = term.read};
    if (reader.stage < 0 || reader.stage >= train_.stages) return 0;
    const auto there = std::find_if(stages.begin(), stages.end(), [&](const Place& p) {
      return static_cast<int32_t>(p.at.stage) == reader.stage;
    });
    if (there != stages.end() && peer.place == place) {
      if (term.kind == Holding::Kind::landing) return 0;
      const auto& until = there->run->shares[static_cast<size_t>(place)]
                              .until[static_cast<size_t>(mode.graph.mode)];
      if (const auto at = until.find(term.tensor); at != until.end()) reader.phase = at->second;
    }
    if (term.kind != Holding::Kind::landing) readers.push_back(reader);
  }
  std::vector<int32_t> key = {static_cast<int32_t>(term.kind), term.first, term.last, slack_};
  for (const Holding::Reader& reader : readers) key.insert(key.end(), {reader.stage, reader.phase});
  const auto [known, fresh] = mode.places[s].try_emplace(std::move(key), 0);
  if (!fresh) return known->second;
  const auto stage = static_cast<int32_t>(s);
  const Holding holding{
      .kind = term.kind, .first = term.first, .last = term.last, .tensors = {}, .readers = {}};
  return known->second = places_of(holding, stage, readers, mode.times, slack_,
                                   mode.schedule.replicas_of(stage));
}

int32_t RunBytes::own_micro_batches(const ModeInfo& mode, size_t s, int32_t replica) const {
  const int32_t all = mode.schedule.micro_batches, replicas = replicas_of(s);
  if (!train_.replicas.empty()) return (all - replica + replicas - 1) / replicas;
  if (replicas == 1) return all;
  const GradientGroups groups{config_.micro_batches, config_.gradient_groups};
  const int32_t own = config_.gradient_groups / replicas;
  return groups.begin((replica + 1) * own) - groups.begin(replica * own);
}

RankBytes RunBytes::sum_of(std::span<const Place> stages, ModeInfo& mode, size_t rank,
                           const Parameters& parameters) {
  const size_t first = stages.front().at.stage;
  const int32_t replicas = replicas_of(first);
  const auto place = static_cast<int32_t>(rank) / replicas,
             d = static_cast<int32_t>(rank) % replicas;
  const auto m = static_cast<size_t>(mode.graph.mode);
  const int64_t fixed = sum_of_bytes(bytes_of_many(parameters.values[rank], versions_[first]),
                                     parameters.others[rank]);
  const bool controls = rank == 0 && train_.rank_of_stage[first] == 0;
  int64_t all = sum_of_bytes(fixed, controls ? mode.sinks : 0), kept = 0, scratch = 0;
  for (const Place& stage : stages) {
    const size_t s = stage.at.stage;
    const Share& share = stage.run->shares[static_cast<size_t>(place)];
    scratch = std::max(scratch, share.scratch[m]);
    for (const Term& term : share.terms[m]) {
      const int32_t count =
          std::min(places(mode, stages, s, term, place), own_micro_batches(mode, s, d));
      const int64_t bytes = bytes_of_many(term.bytes, count);
      all = sum_of_bytes(all, bytes);
      if (term.kind == Holding::Kind::kept) kept = sum_of_bytes(kept, bytes);
    }
  }
  all = sum_of_bytes(all, slots_of(stages, mode, static_cast<size_t>(place),
                                   static_cast<int32_t>(rank), parameters));
  // With one more node, another replica may own a parameter.
  RankBytes out{.all = sum_of_bytes(all, scratch),
                .least = replicas > 1 ? kept : sum_of_bytes(fixed, kept)};
  if (mode.graph.mode != Mode::train) return out;
  out.train = out.all;
  out.scratch = scratch;
  return out;
}

const std::vector<RankBytes>& RunBytes::sum_of(std::span<const Place> stages) {
  std::vector<size_t> key = {static_cast<size_t>(slack_)};
  bool complete = true;
  for (const Place& stage : stages) {
    key.insert(key.end(), {stage.at.stage, reinterpret_cast<size_t>(stage.run)});
    complete = complete && stage.run->complete;
  }
  const auto [known, fresh] = known_ranks_.try_emplace(std::move(key));
  std::vector<RankBytes>& out = known->second;
  if (!fresh) return out;
  const Parameters& parameters = parameters_of(stages);
  out.resize(parameters.values.size());
  for (size_t rank = 0; rank < out.size(); ++rank)
    for (const auto& mode : modes_) {
      const RankBytes next = sum_of(stages, *mode, rank, parameters);
      RankBytes& most = out[rank];
      most.train = std::max(most.train, next.train);
      most.scratch = std::max(most.scratch, next.scratch);
      most.all = complete ? std::max(most.all, next.all) : kEndless;
      most.least = std::max(most.least, next.least);
    }
  return out;
}

BytesOfRun RunBytes::of(const RunOfNodes& at) {
  const auto [known, fresh] =
      known_[at.stage].try_emplace(at.begin * (ops_.ids.size() + 1) + at.end);
  if (!fresh) return known->second;
  const Place place{at, &run(at, nullptr)};
  for (const RankBytes& rank : sum_of({&place, 1}))
    known->second = {std::max(known->second.all, rank.all),
                     std::max(known->second.least, rank.least)};
  return known->second;
}

int64_t RunBytes::least_of(const std::vector<RunOfNodes>& stages) {
  std::vector<Place> places;
  for (const RunOfNodes& at : stages) places.push_back({at, &run(at, nullptr)});
  int64_t most = 0;
  for (const RankBytes& rank : sum_of(places)) most = std::max(most, rank.least);
  return most;
}

std::vector<RunOfNodes> RunBytes::runs_at(const std::vector<size_t>& first) const {
  std::vector<RunOfNodes> out;
  for (size_t s = 0; s < first.size(); ++s)
    out.push_back({s, first[s], s + 1 < first.size() ? first[s + 1] : ops_.ids.size()});
  return out;
}

std::vector<RankBytes> RunBytes::of_ranks(const std::vector<size_t>& first) {
  slack_ = slack_at(first);
  std::vector<std::vector<Place>> stages(train_.rows.size());
  for (const RunOfNodes& at : runs_at(first))
    stages[static_cast<size_t>(train_.rank_of_stage[at.stage])].push_back({at, &run(at, &first)});
  const auto shares = static_cast<size_t>(config_.shard_ranks), positions = stages.size() * shares;
  std::vector<RankBytes> out(static_cast<size_t>(config_.ranks));
  for (size_t r = 0; r < stages.size(); ++r) {
    if (stages[r].empty()) continue;
    const std::vector<RankBytes>& own = sum_of(stages[r]);
    const size_t replicas = own.size() / shares;
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t position = r * shares + i / replicas, d = i % replicas;
      RankBytes& rank = out[position + d * (train_.replicas.empty() ? positions : 1)];
      rank = own[i];
      rank.position = position;
    }
  }
  slack_ = std::max(config_.slack, 1);
  return out;
}

// As the plan of these stages chooses it.
int32_t RunBytes::slack_at(const std::vector<size_t>& first) const {
  if (config_.slack > 0 || config_.machines.latency <= 0) return std::max(config_.slack, 1);
  std::vector<int32_t> stage_of_node(whole_->nodes().size(), 0);
  for (const RunOfNodes& at : runs_at(first))
    for (size_t i = at.begin; i < at.end; ++i)
      stage_of_node[static_cast<size_t>(ops_.ids[i])] = static_cast<int32_t>(at.stage);
  const PlanConfig pipeline = pipeline_config(config_);
  return slack_for(schedule_costs(*whole_, pipeline, config_.times, stage_of_node),
                   train_.rank_of_stage, pipeline);
}

void RunBytes::add_to(ScheduleCosts& costs, const std::vector<size_t>& first) {
  for (const RunOfNodes& at : runs_at(first)) {
    const Place place{at, &run(at, &first)};
    double held = 0, parked = 0, kept = 0;
    for (const Share& share : place.run->shares) {
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
    const Parameters& parameters = parameters_of({&place, 1});
    int64_t fixed = 0;
    for (size_t rank = 0; rank < parameters.values.size(); ++rank)
      fixed = std::max(fixed, sum_of_bytes(parameters.values[rank], parameters.others[rank]));
    costs.held[at.stage] += held;
    costs.parked[at.stage] += parked;
    costs.kept[at.stage] += kept;
    costs.fixed[at.stage] += static_cast<double>(fixed);
  }
}

std::vector<RemadeCalls> RunBytes::remade(size_t stage, const std::vector<size_t>& first,
                                          const std::vector<NodeTimes>& times) {
  std::vector<RemadeCalls> out;
  const Cut cut = cut_at(runs_at(first)[stage], &first);
  for (const auto& [i, work] : works_of(*modes_.front(), stage, cut))
    out.push_back(
        {.position = static_cast<size_t>(train_.rank_of_stage[stage] * config_.shard_ranks +
                                         cut.segmented.segments[i].place),
         .forward = static_cast<int32_t>(work.calls[kPhaseF].size()),
         .any = !work.calls[kPhaseR].empty(),
         .time = remade_seconds(work, times)});
  return out;
}

int64_t RunBytes::kept(size_t begin, size_t end) {
  int64_t sum = 0;
  for (const Share& share : run({0, begin, end}, nullptr).shares)
    for (const Term& term : share.terms[static_cast<size_t>(Mode::train)])
      if (term.first == kPhaseF && term.last > kPhaseF && term.kind != Holding::Kind::feed &&
          term.kind != Holding::Kind::landing)
        sum = sum_of_bytes(sum, term.bytes);
  return sum;
}

}  // namespace weft
