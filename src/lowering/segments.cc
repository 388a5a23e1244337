#include "lowering/segments.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/expand.h"
#include "graph/shard.h"

namespace weft {

namespace {

using Key = std::tuple<int32_t, int32_t, int32_t>;  // stage, index, tensor rank

// The nodes from `begin` on that are the same for one shard after another, and do not use each
// other.
size_t end_of_pieces(const Model& model, size_t begin) {
  const std::vector<Node>& nodes = model.nodes();
  const auto continues = [&](size_t id) {
    const Node &first = nodes[begin], &node = nodes[id];
    const bool same = !node.is_input() && node.op == first.op && node.origin == first.origin &&
                      node.shard > nodes[id - 1].shard;
    return same && std::all_of(node.in.begin(), node.in.end(),
                               [&](NodeId from) { return static_cast<size_t>(from) < begin; });
  };
  size_t end = begin + 1;
  while (end < nodes.size() && !nodes[begin].is_input() && continues(end)) ++end;
  return end;
}

}  // namespace

Result<std::shared_ptr<const Model>> pieces_of(const std::shared_ptr<const Model>& whole,
                                               int32_t tensor) {
  return whole->axes().empty() ? shard(whole, tensor) : expand(*whole);
}

// With an asynchronous schedule, a step of evaluation fills the pipeline like one of training.
// Deliveries of outputs, which are large, are not multiplied.
int32_t forward_micro_batches(const PlanConfig& config, Mode mode, const Schedule& train) {
  if (mode != Mode::infer || train.updates == 0) return train.micro_batches;
  int32_t most = config.micro_batches;
  for (const int32_t replicas : train.replicas) most = std::max(most, replicas);
  return most;
}

int32_t tensor_rank_of(const Model& model, NodeId node, int32_t shard_ranks) {
  const int64_t shard = model.node(node).shard;
  return static_cast<int32_t>(shard * shard_ranks / model.shards());
}

SegmentedStages cut_segments(const Model& model, const std::vector<int32_t>& stage_of_node,
                             int32_t shard_ranks) {
  const auto tensor_rank_at = [&](size_t id) {
    return tensor_rank_of(model, static_cast<NodeId>(id), shard_ranks);
  };
  std::vector<Key> key_of_node(stage_of_node.size());
  // Of the stage, that a value passes on its way to the node.
  const auto exchanges_before = [&](size_t id) {
    int32_t index = 0;
    for (NodeId from : model.nodes()[id].in) {
      const auto i = static_cast<size_t>(from);
      if (model.node(from).is_input() || stage_of_node[i] != stage_of_node[id]) continue;
      const auto& [stage, before, other] = key_of_node[i];
      index = std::max(index, before + (other == tensor_rank_at(id) ? 0 : 1));
    }
    // Uses that share an accumulator add to it in the order of the nodes.
    for (const ParamId w : model.nodes()[id].weights) {
      const Param& param = model.param(w);
      if (!param.shares) continue;
      for (const Param::Use& use : param.uses) {
        const auto i = static_cast<size_t>(use.node);
        if (i < id && stage_of_node[i] == stage_of_node[id] &&
            model.node(use.node).shard == model.nodes()[id].shard)
          index = std::max(index, std::get<1>(key_of_node[i]));
      }
    }
    return index;
  };
  std::map<Key, int32_t> number;
  for (size_t id = 0; id < stage_of_node.size();) {
    // The pieces of a node belong to one index. A rank whose piece could be computed earlier would
    // send its result no earlier than the others, and from then on they would take turns.
    const size_t end = end_of_pieces(model, id);
    int32_t index = 0;
    for (size_t i = id; i < end; ++i) index = std::max(index, exchanges_before(i));
    for (; id < end; ++id) {
      if (model.nodes()[id].is_input()) continue;
      key_of_node[id] = {stage_of_node[id], index, tensor_rank_at(id)};
      number[key_of_node[id]] = 0;
    }
  }
  SegmentedStages out;
  for (auto& [key, segment] : number) {
    const auto& [stage, index, tensor_rank] = key;
    segment = static_cast<int32_t>(out.segments.size());
    out.segments.push_back({.stage = stage, .index = index, .tensor_rank = tensor_rank});
  }
  out.segment_of_node.assign(stage_of_node.size(), 0);
  for (size_t id = 0; id < stage_of_node.size(); ++id) {
    const Node& node = model.nodes()[id];
    if (!node.is_input()) out.segment_of_node[id] = number.at(key_of_node[id]);
  }
  // The gradient of an input is folded in its first stage, so that gradients are sent back only.
  for (NodeId id : model.inputs()) {
    const std::vector<Node::Use>& uses = model.node(id).uses;
    if (uses.empty()) continue;
    int32_t first = INT32_MAX;
    for (const Node::Use& use : uses)
      first = std::min(first, out.segment_of_node[static_cast<size_t>(use.node)]);
    out.segment_of_node[static_cast<size_t>(id)] = first;
  }
  return out;
}

Schedule with_segments(const Schedule& schedule, const std::vector<Segment>& segments,
                       int32_t shard_ranks) {
  Schedule out = schedule;
  out.stages = static_cast<int32_t>(segments.size());
  out.rank_of_stage.clear();
  std::vector<std::vector<std::vector<int32_t>>> own(static_cast<size_t>(schedule.stages));
  for (auto& stage : own) stage.resize(static_cast<size_t>(shard_ranks));
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto stage = static_cast<size_t>(segments[s].stage);
    const auto tensor_rank = static_cast<size_t>(segments[s].tensor_rank);
    own[stage][tensor_rank].push_back(static_cast<int32_t>(s));
    out.rank_of_stage.push_back(schedule.rank_of_stage[stage] * shard_ranks +
                                segments[s].tensor_rank);
  }
  out.rows.assign(schedule.rows.size() * static_cast<size_t>(shard_ranks), {});
  for (size_t r = 0; r < out.rows.size(); ++r) {
    const auto tensor_rank = r % static_cast<size_t>(shard_ranks);
    const auto& row = schedule.rows[r / static_cast<size_t>(shard_ranks)];
    out.rows[r].reserve(row.size());
    for (const Action& action : row) {
      const auto& mine = own[static_cast<size_t>(action.stage)][tensor_rank];
      const bool backward =
          action.kind == Kind::I || action.kind == Kind::W || action.kind == Kind::B;
      for (size_t i = 0; i < mine.size(); ++i) {
        const int32_t segment = mine[backward ? mine.size() - 1 - i : i];
        out.rows[r].push_back({segment, action.kind, action.micro_batch});
      }
    }
  }
  return out;
}

}  // namespace weft
