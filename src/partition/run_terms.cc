// The part of RunBytes that finds the tensors that a run of nodes holds.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "partition/run_bytes.h"

namespace weft {

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

// Many runs are tried. Where ranks do not share stages, only the nodes of a run are visited.
RunBytes::Cut RunBytes::cut_at(const RunOfNodes& at, const std::vector<size_t>* first) const {
  Cut out{.at = at, .first = first, .own = {0}, .segmented = {}};
  if (config_.shard_ranks == 1 && !drops_gradients(*model_, config_)) return out;
  std::vector<int32_t> stage_of_node;
  for (const size_t i : index_) stage_of_node.push_back(distance(at, first, i));
  out.segmented = cut_segments(*model_, stage_of_node, config_.shard_ranks);
  out.own.clear();
  for (size_t i = 0; i < out.segmented.segments.size(); ++i)
    if (out.segmented.segments[i].stage == 0) out.own.push_back(static_cast<int32_t>(i));
  return out;
}

int32_t RunBytes::segment_of(const Cut& cut, NodeId node) const {
  return cut.segmented.segments.empty()
             ? distance(cut.at, cut.first, index_[static_cast<size_t>(node)])
             : cut.segmented.segment_of_node[static_cast<size_t>(node)];
}

Segment RunBytes::segment_at(const Cut& cut, int32_t segment) {
  return cut.segmented.segments.empty() ? Segment{.stage = segment, .index = 0, .tensor_rank = 0}
                                        : cut.segmented.segments[static_cast<size_t>(segment)];
}

// Also sets the stages of the folds of the mode's graph that concern the run.
RunBytes::Works RunBytes::works_of(ModeInfo& mode, size_t s, const Cut& cut) const {
  std::vector<size_t> near, folds;
  for (size_t i = cut.at.begin; i < cut.at.end; ++i) {
    near.insert(near.end(), mode.calls[i].begin(), mode.calls[i].end());
    folds.insert(folds.end(), mode.folds[i].begin(), mode.folds[i].end());
  }
  std::sort(folds.begin(), folds.end());
  folds.erase(std::unique(folds.begin(), folds.end()), folds.end());
  for (const size_t c : folds)
    place_fold(mode.graph, *model_, mode.graph.calls[c],
               [&](NodeId node) { return segment_of(cut, node); });
  near.insert(near.end(), folds.begin(), folds.end());
  std::sort(near.begin(), near.end());
  std::map<int32_t, std::vector<const StepCall*>> calls;
  for (const int32_t i : cut.own) calls[i] = {};
  for (const size_t c : near) {
    const StepCall& call = mode.graph.calls[c];
    const auto at = calls.find(segment_of(cut, call.where));
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

RunBytes::Borders RunBytes::borders_of(const ModeInfo& mode, const Works& works, int32_t segment,
                                       const Cut& cut) const {
  const int32_t tensor_rank = segment_at(cut, segment).tensor_rank;
  Borders out;
  const std::set<TensorId> sinks(mode.graph.sinks.begin(), mode.graph.sinks.end());
  for (const auto& [t, life] : works.at(segment).lives) {
    const StepTensor& tensor = mode.graph.tensors[static_cast<size_t>(t)];
    const bool gradient = tensor.role == StepTensor::Role::grad;
    std::set<Peer> peers;
    if (!life.made) {
      const Segment maker = segment_at(cut, segment_of(cut, tensor.maker));
      const bool fed = !gradient && model_->node(tensor.node).is_input();
      if (!fed && maker.stage != 0) peers.insert({maker.stage, maker.tensor_rank});
      if (fed || maker.stage != 0 || maker.tensor_rank != tensor_rank)
        out.traffic.arrivals.push_back(t);
    } else {
      bool shared = sinks.contains(t);
      for (const size_t c : mode.readers[static_cast<size_t>(t)]) {
        const int32_t at = segment_of(cut, mode.graph.calls[c].where);
        if (at == segment) continue;
        shared = true;
        const Segment reader = segment_at(cut, at);
        if (reader.stage != 0) {
          peers.insert({reader.stage, reader.tensor_rank});
          continue;
        }
        int32_t& until = out.until[t];
        until = std::max(until, reader.tensor_rank == tensor_rank ? works.at(at).lives.at(t).last
                                : gradient                        ? kPhaseI
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
    Share& share = run.shares[static_cast<size_t>(segment_at(cut, i).tensor_rank)];
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
  for (const int32_t i : cut.own) found[static_cast<size_t>(segment_at(cut, i).tensor_rank)] = true;
  out.complete = std::find(found.begin(), found.end(), false) == found.end();
  add_sums(out, cut);
  for (const auto& mode : modes_) add_terms(out, *mode, at.stage, cut);
  return out;
}

}  // namespace weft
