#include "partition/run_terms.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "lowering/parameters.h"
#include "lowering/units.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

Digest digest_of(const std::vector<int64_t>& key) {
  return hash_bytes(key.data(), key.size() * sizeof key.front());
}

}  // namespace

TensorId RunTerms::Part::number_of(TensorId t) const {
  return static_cast<TensorId>(std::lower_bound(tensors.begin(), tensors.end(), t) -
                               tensors.begin());
}

RunTerms::RunTerms(const Model& model, std::shared_ptr<const Model> pieces,
                   const PlanConfig& config, const OpNodes& ops, const Schedule& train)
    : pieces_(std::move(pieces)), config_(config) {
  index_nodes(model, ops);
  const Shapes shapes(*pieces_, config, train);
  for (Mode mode : kEveryMode)
    if (makes(model, config, mode)) add_mode(mode, shapes);
}

// Inputs belong to the stage of their first use.
void RunTerms::index_nodes(const Model& whole, const OpNodes& ops) {
  std::vector<size_t> of_whole;
  for (NodeId id = 0; id < static_cast<NodeId>(whole.nodes().size()); ++id) {
    const Node& node = whole.node(id);
    const NodeId at = node.is_input() && !node.uses.empty() ? node.uses.front().node : id;
    of_whole.push_back(static_cast<size_t>(std::max(ops.index[static_cast<size_t>(at)], 0)));
  }
  params_.resize(ops.ids.size());
  stateful_.resize(ops.ids.size());
  for (NodeId id = 0; id < static_cast<NodeId>(pieces_->nodes().size()); ++id) {
    const Node& piece = pieces_->node(id);
    const size_t i = of_whole[static_cast<size_t>(piece.origin)];
    index_.push_back(i);
    params_[i].insert(params_[i].end(), piece.weights.begin(), piece.weights.end());
    if (!piece.one.state.empty()) stateful_[i].push_back(id);
  }
  resident_before_ = {0};
  for (size_t i = 0; i < params_.size(); ++i)
    resident_before_.push_back(resident_before_.back() +
                               (params_[i].empty() && stateful_[i].empty() ? 0 : 1));
  for (const NodeId id : pieces_->inputs()) {
    const std::vector<Node::Use>& uses = pieces_->node(id).uses;
    if (uses.empty()) continue;
    const auto first = std::min_element(uses.begin(), uses.end(), [this](auto& a, auto& b) {
      return index_[static_cast<size_t>(a.node)] < index_[static_cast<size_t>(b.node)];
    });
    index_[static_cast<size_t>(id)] = index_[static_cast<size_t>(first->node)];
  }
  near_.resize(ops.ids.size());
  for (size_t id = 0; id < of_whole.size(); ++id)
    for (const Node::Use& use : whole.node(static_cast<NodeId>(id)).uses) {
      const size_t from = of_whole[id], to = of_whole[static_cast<size_t>(use.node)];
      near_[from].push_back(to);
      near_[to].push_back(from);
    }
}

void RunTerms::add_mode(Mode mode, const Shapes& shapes) {
  ModeGraph info;
  info.graph = build_step_graph(*pieces_, mode, std::vector<int32_t>(pieces_->nodes().size(), 0),
                                config_.graph_options(mode));
  info.readers.resize(info.graph.tensors.size());
  for (size_t c = 0; c < info.graph.calls.size(); ++c)
    each_read(info.graph.calls[c],
              [&](TensorId t) { info.readers[static_cast<size_t>(t)].push_back(c); });
  info.bytes = shapes.bytes(info.graph);
  info.sink.resize(info.graph.tensors.size());
  for (const TensorId t : info.graph.sinks) info.sink[static_cast<size_t>(t)] = true;
  index_calls(info);
  modes_.push_back(std::move(info));
}

std::vector<int64_t> RunTerms::sinks(Mode mode) const {
  std::vector<int64_t> out;
  for (const ModeGraph& of : modes_)
    for (TensorId t : of.graph.sinks)
      if (of.graph.mode == mode) out.push_back(of.bytes.tensors[static_cast<size_t>(t)]);
  return out;
}

size_t RunTerms::patterns(Mode mode) const {
  size_t out = 0;
  for (const ModeGraph& of : modes_)
    if (of.graph.mode == mode) out += of.alike.size();
  return out;
}

// The folds for one value place one another, and so do those for slices of it.
void RunTerms::index_calls(ModeGraph& mode) const {
  struct Folds {
    std::vector<size_t> calls;
    std::set<size_t> at;  // nodes of OpNodes
  };
  std::map<NodeId, Folds> folds_for;  // per value
  std::set<TensorId> folded;
  mode.calls.resize(near_.size());
  mode.folds.resize(near_.size());
  for (size_t c = 0; c < mode.graph.calls.size(); ++c) {
    const StepCall& call = mode.graph.calls[c];
    if (!folds(call.kind)) {
      mode.calls[index(call.node)].push_back(c);
      continue;
    }
    const NodeId value = mode.graph.tensors[static_cast<size_t>(call.out)].node;
    Folds& here = folds_for[value];
    here.calls.push_back(c);
    here.at.insert({index(value), index(call.node)});
    for (const TensorId t : call.in) {
      const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
      if (!folded.contains(t)) {
        here.at.insert(index(tensor.maker));
      } else if (tensor.node != value) {
        Folds& slice = folds_for[tensor.node];
        here.at.insert(slice.at.begin(), slice.at.end());
        slice.at.insert({index(value), index(call.node)});
      }
    }
    folded.insert(call.out);
  }
  for (const auto& [value, here] : folds_for)
    for (const size_t i : here.at)
      mode.folds[i].insert(mode.folds[i].end(), here.calls.begin(), here.calls.end());
}

std::vector<int32_t> RunTerms::surroundings(const RunOfNodes& at,
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
int32_t RunTerms::distance(const RunOfNodes& at, const std::vector<size_t>* first, size_t node) {
  if (at.begin <= node && node < at.end) return 0;
  if (!first) return node < at.begin ? -1 : 1;
  const auto stage = std::upper_bound(first->begin(), first->end(), node) - first->begin() - 1;
  return static_cast<int32_t>(stage) - static_cast<int32_t>(at.stage);
}

// Many runs are tried. Where ranks do not share stages, only the nodes of a run are visited.
RunTerms::Cut RunTerms::cut_at(const RunOfNodes& at, const std::vector<size_t>* first) const {
  Cut out{.at = at, .first = first, .own = {0}, .segmented = {}};
  if (config_.shard_ranks == 1 && !drops_gradients(*pieces_, config_)) return out;
  std::vector<int32_t> stage_of_node;
  for (const size_t i : index_) stage_of_node.push_back(distance(at, first, i));
  out.segmented = cut_segments(*pieces_, stage_of_node, config_.shard_ranks);
  out.own.clear();
  for (size_t i = 0; i < out.segmented.segments.size(); ++i)
    if (out.segmented.segments[i].stage == 0) out.own.push_back(static_cast<int32_t>(i));
  return out;
}

int32_t RunTerms::segment_of(const Cut& cut, NodeId node) const {
  return cut.segmented.segments.empty() ? distance(cut.at, cut.first, index(node))
                                        : cut.segmented.segment_of_node[static_cast<size_t>(node)];
}

Segment RunTerms::segment_at(const Cut& cut, int32_t segment) {
  return cut.segmented.segments.empty() ? Segment{.stage = segment, .index = 0, .tensor_rank = 0}
                                        : cut.segmented.segments[static_cast<size_t>(segment)];
}

// Also sets the stages of the folds of the mode's graph that concern the run.
RunTerms::Parts RunTerms::parts_of(ModeGraph& mode, const StageForm& form, const Cut& cut) const {
  std::vector<size_t> near, folds;
  for (size_t i = cut.at.begin; i < cut.at.end; ++i) {
    near.insert(near.end(), mode.calls[i].begin(), mode.calls[i].end());
    folds.insert(folds.end(), mode.folds[i].begin(), mode.folds[i].end());
  }
  std::sort(folds.begin(), folds.end());
  folds.erase(std::unique(folds.begin(), folds.end()), folds.end());
  for (const size_t c : folds)
    place_fold(mode.graph, *pieces_, mode.graph.calls[c],
               [&](NodeId node) { return segment_of(cut, node); });
  near.insert(near.end(), folds.begin(), folds.end());
  std::sort(near.begin(), near.end());
  std::map<int32_t, Part> found;
  for (const int32_t i : cut.own) found[i] = {};
  for (const size_t c : near) {
    const StepCall& call = mode.graph.calls[c];
    const auto at = found.find(segment_of(cut, call.where));
    if (at != found.end()) at->second.calls.push_back(&call);
  }
  const bool train = mode.graph.mode == Mode::train;
  Parts out;
  for (auto& [i, part] : found) {
    const size_t next = std::min(out.size(), form.again.size() - 1);
    part.split = train && form.split();
    part.again = train ? form.again[next] : 0;
    std::vector<int64_t> key = {static_cast<int64_t>(part.split), part.again};
    for (const StepCall* call : part.calls) key.push_back(call - mode.graph.calls.data());
    std::shared_ptr<const Part>& known = found.size() > 1 ? mode.parts[digest_of(key)] : out[i];
    if (!known) {
      index_part(mode, part);
      if (found.size() > 1) part.lives = part.work().lives;
      known = std::make_shared<const Part>(std::move(part));
    }
    out[i] = known;
  }
  return out;
}

void RunTerms::index_part(const ModeGraph& mode, Part& part) const {
  for (const StepCall* call : part.calls)
    each_tensor(*call, [&part](TensorId t, bool) { part.tensors.push_back(t); });
  std::sort(part.tensors.begin(), part.tensors.end());
  part.tensors.erase(std::unique(part.tensors.begin(), part.tensors.end()), part.tensors.end());
  part.made.resize(part.tensors.size());
  const auto forward =
      std::count_if(part.calls.begin(), part.calls.end(),
                    [](const StepCall* call) { return call->kind == CallKind::forward; });
  // A block that is longer has all forward calls.
  std::vector<int64_t> key = {static_cast<int64_t>(part.calls.size()),
                              static_cast<int64_t>(part.split),
                              std::min<int64_t>(part.again, forward)};
  for (const StepCall* call : part.calls) {
    key.push_back(-1 - static_cast<int64_t>(call->kind));
    key.push_back(mode.bytes.calls[static_cast<size_t>(call - mode.graph.calls.data())]);
    each_tensor(*call, [&](TensorId t, bool written) {
      const TensorId number = part.number_of(t);
      key.push_back(2 * int64_t{number} + (written ? 1 : 0));
      if (written) part.made[static_cast<size_t>(number)] = true;
    });
  }
  for (const TensorId t : part.tensors) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    key.insert(key.end(),
               {mode.bytes.tensors[static_cast<size_t>(t)], static_cast<int64_t>(tensor.role),
                static_cast<int64_t>(is_fed(tensor))});
  }
  part.digest = digest_of(key);
}

std::vector<Peer> RunTerms::peers_of(const ModeGraph& mode, TensorId t, bool made,
                                     const Cut& cut) const {
  const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
  std::set<Peer> out;
  const auto add = [&](NodeId node) {
    const Segment segment = segment_at(cut, segment_of(cut, node));
    if (segment.stage != 0) out.insert({segment.stage, segment.tensor_rank});
  };
  if (made)
    for (const size_t c : mode.readers[static_cast<size_t>(t)]) add(mode.graph.calls[c].where);
  else if (!is_fed(tensor))
    add(tensor.maker);
  return {out.begin(), out.end()};
}

bool RunTerms::is_fed(const StepTensor& tensor) const {
  return tensor.role != StepTensor::Role::grad && pieces_->node(tensor.node).is_input();
}

std::vector<RunTerms::Border> RunTerms::borders_of(const ModeGraph& mode, const Parts& parts,
                                                   int32_t segment, const Cut& cut) const {
  const Part& part = *parts.at(segment);
  std::vector<Border> out(part.tensors.size());
  const int32_t tensor_rank = segment_at(cut, segment).tensor_rank;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto t = static_cast<size_t>(part.tensors[i]);
    const StepTensor& tensor = mode.graph.tensors[t];
    Border& border = out[i];
    if (!part.made[i]) {
      const Segment maker = segment_at(cut, segment_of(cut, tensor.maker));
      border.outside = is_fed(tensor) || maker.stage != 0 || maker.tensor_rank != tensor_rank;
      continue;
    }
    border.outside = mode.sink[t];
    for (const size_t c : mode.readers[t]) {
      const int32_t at = segment_of(cut, mode.graph.calls[c].where);
      if (at == segment) continue;
      border.outside = true;
      const Segment reader = segment_at(cut, at);
      if (reader.stage != 0) continue;
      const int32_t last = reader.tensor_rank == tensor_rank
                               ? parts.at(at)->lives.at(part.tensors[i]).last
                           : tensor.role == StepTensor::Role::grad ? kPhaseI
                                                                   : kPhaseF;
      border.until = std::max(border.until, last);
    }
  }
  return out;
}

// A model repeats its blocks, and ranks that share a stage have pieces of the same nodes, so that
// many segments are alike. Which parameters calls read, for values that are gathered, is not part
// of a pattern.
void RunTerms::add_terms(Run& run, ModeGraph& mode, const StageForm& form, const Cut& cut) const {
  const Parts parts = parts_of(mode, form, cut);
  for (const auto& [i, part] : parts) {
    const std::vector<Border> borders = borders_of(mode, parts, i, cut);
    std::vector<int64_t> key = {static_cast<int64_t>(part->digest.high),
                                static_cast<int64_t>(part->digest.low)};
    for (const Border& border : borders) key.push_back(2 * border.until + (border.outside ? 1 : 0));
    const auto [known, fresh] = mode.alike.try_emplace(digest_of(key));
    if (fresh) known->second = lower(mode, *part, borders);
    Share& share = run.shares[static_cast<size_t>(segment_at(cut, i).tensor_rank)];
    add_alike(share, mode, known->second, *part, cut);
    if (config_.shard == "parameters") add_reads(share, mode.graph.mode, form, part->work());
  }
}

RunTerms::AlikeTerms RunTerms::lower(const ModeGraph& mode, const Part& part,
                                     const std::vector<Border>& borders) const {
  StageTraffic traffic;
  for (size_t i = 0; i < borders.size(); ++i) {
    if (!borders[i].outside) continue;
    if (part.made[i])
      traffic.shared[part.tensors[i]] = {};
    else
      traffic.arrivals.push_back(part.tensors[i]);
  }
  const StageHoldings held = holdings_of(part.work(), traffic, *pieces_, mode.graph, mode.bytes);
  AlikeTerms out;
  out.scratch = held.scratch;
  for (const Holding& h : held.list) {
    Term term{h.kind, h.first, h.last, h.bytes};
    if (h.kind != Holding::Kind::kept) {
      const TensorId t = h.tensors.front().id;
      term.tensor = part.number_of(t);
      if (mode.graph.tensors[static_cast<size_t>(t)].role == StepTensor::Role::grad)
        term.read = kPhaseI;
      term.last = std::max(term.last, borders[static_cast<size_t>(term.tensor)].until);
    }
    out.terms.push_back(std::move(term));
  }
  return out;
}

namespace {

// What no other stage exchanges is one term for all tensors that are held equally long.
void add_term(Term term, std::vector<Term>& terms) {
  if (term.peers.empty()) {
    term.tensor = -1;
    term.read = kPhaseF;
    const auto same = std::find_if(terms.begin(), terms.end(), [&term](const Term& other) {
      return other.peers.empty() && other.kind == term.kind && other.first == term.first &&
             other.last == term.last;
    });
    if (same != terms.end()) {
      same->bytes = sum_of_bytes(same->bytes, term.bytes);
      return;
    }
  }
  terms.push_back(std::move(term));
}

}  // namespace

void RunTerms::add_alike(Share& share, const ModeGraph& mode, const AlikeTerms& alike,
                         const Part& part, const Cut& cut) const {
  const auto m = static_cast<size_t>(mode.graph.mode);
  share.scratch[m] = std::max(share.scratch[m], alike.scratch);
  for (Term term : alike.terms) {
    if (term.tensor >= 0) {
      term.tensor = part.tensors[static_cast<size_t>(term.tensor)];
      term.peers = peers_of(mode, term.tensor, term.kind == Holding::Kind::shared, cut);
    }
    if (term.kind == Holding::Kind::landing && !term.peers.empty()) {
      int32_t& until = share.until[m][term.tensor];
      until = std::max(until, term.last);
    }
    add_term(std::move(term), share.terms[m]);
  }
}

void RunTerms::add_sums(Run& run, const Cut& cut) const {
  if (!drops_gradients(*pieces_, config_)) return;
  const std::vector<Segment>& segments = cut.segmented.segments;
  const auto sums = sums_of_stages(*pieces_, modes_.front().graph, cut.segmented.segment_of_node,
                                   static_cast<int32_t>(segments.size()));
  for (size_t i = cut.own.size(); i-- > 0;) {
    const auto segment = static_cast<size_t>(cut.own[i]);
    std::vector<StageSum>& made =
        run.shares[static_cast<size_t>(segments[segment].tensor_rank)].sums;
    made.insert(made.end(), sums[segment].begin(), sums[segment].end());
  }
}

void RunTerms::add_reads(Share& share, Mode mode, const StageForm& form,
                         const StageWork& work) const {
  RunOfSum runs;
  add_runs(*pieces_, config_, share.sums, runs);
  std::set<Kind> kinds = {Kind::F};
  if (mode == Mode::train) kinds.insert(form.kinds.begin(), form.kinds.end());
  if (!work.calls[kPhaseR].empty()) kinds.insert(Kind::R);
  for (const Kind kind : kinds) {
    Reads& action = share.reads[static_cast<size_t>(mode)].emplace_back();
    for (const auto& unit : units_of(*pieces_, config_, work, kind, runs))
      action.push_back(reads_of(*pieces_, work, unit));
  }
}

size_t RunTerms::form(StageForm form) {
  const auto [at, fresh] = forms_.try_emplace(std::move(form), form_.size());
  if (fresh) form_.push_back(&at->first);
  return at->second;
}

const RunTerms::Run& RunTerms::run(const RunOfNodes& at, size_t form,
                                   const std::vector<size_t>* first) {
  std::map<size_t, Run>& forms =
      runs_[{at.begin, at.end, first ? surroundings(at, *first) : std::vector<int32_t>()}];
  const Run* other = forms.empty() ? nullptr : &forms.begin()->second;
  const auto [known, fresh] = forms.try_emplace(form);
  if (!fresh) return known->second;
  Run& out = known->second;
  const Cut cut = cut_at(at, first);
  out.shares.resize(static_cast<size_t>(config_.shard_ranks));
  std::vector<bool> found(out.shares.size(), false);
  for (const int32_t i : cut.own) found[static_cast<size_t>(segment_at(cut, i).tensor_rank)] = true;
  out.complete = std::find(found.begin(), found.end(), false) == found.end();
  add_sums(out, cut);
  for (ModeGraph& mode : modes_)
    if (other && mode.graph.mode != Mode::train)
      copy_mode(*other, static_cast<size_t>(mode.graph.mode), out);
    else
      add_terms(out, mode, *form_[form], cut);
  return out;
}

// Only training depends on the form.
void RunTerms::copy_mode(const Run& from, size_t mode, Run& to) {
  for (size_t t = 0; t < to.shares.size(); ++t) {
    const Share& share = from.shares[t];
    to.shares[t].terms[mode] = share.terms[mode];
    to.shares[t].until[mode] = share.until[mode];
    to.shares[t].scratch[mode] = share.scratch[mode];
    to.shares[t].reads[mode] = share.reads[mode];
  }
}

std::vector<RemadeCalls> RunTerms::remade(const RunOfNodes& at, size_t form,
                                          const std::vector<size_t>& first,
                                          const std::vector<NodeTimes>& times) {
  std::vector<RemadeCalls> out;
  const Cut cut = cut_at(at, &first);
  for (const auto& [i, part] : parts_of(modes_.front(), *form_[form], cut)) {
    const StageWork work = part->work();
    out.push_back({.tensor_rank = segment_at(cut, i).tensor_rank,
                   .position = 0,
                   .forward = static_cast<int32_t>(work.calls[kPhaseF].size()),
                   .any = !work.calls[kPhaseR].empty(),
                   .time = remade_seconds(work, times)});
  }
  return out;
}

Result<std::shared_ptr<RunTerms>> KnownRuns::of(const Model& model, const PlanConfig& config,
                                                const OpNodes& ops, const Schedule& train) {
  if (!pieces_) {
    WEFT_TRY_ASSIGN(pieces_, pieces_of({std::shared_ptr<const Model>(), &model}, config.tensor));
  }
  auto& known = runs_[{config.packed, most_together(train, config.micro_batches)}];
  if (!known) known = std::make_shared<RunTerms>(model, pieces_, config, ops, train);
  return known;
}

}  // namespace weft
