#include "lowering/segments.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace weft {

namespace {

using Key = std::tuple<int32_t, int32_t, int32_t>;  // stage, index, rank among those of the stage

}  // namespace

SegmentedStages cut_segments(const Model& model, const std::vector<int32_t>& stage_of_node,
                             int32_t shard_ranks) {
  const auto shards = int64_t{model.shards()};
  std::vector<Key> key_of_node(stage_of_node.size());
  std::map<Key, int32_t> number;
  for (size_t id = 0; id < stage_of_node.size(); ++id) {
    const Node& node = model.nodes()[id];
    if (node.is_input()) continue;
    const auto place = static_cast<int32_t>(node.shard * shard_ranks / shards);
    int32_t index = 0;
    for (NodeId from : node.in) {
      const auto i = static_cast<size_t>(from);
      if (model.node(from).is_input() || stage_of_node[i] != stage_of_node[id]) continue;
      const auto& [stage, before, other] = key_of_node[i];
      index = std::max(index, before + (other == place ? 0 : 1));
    }
    key_of_node[id] = {stage_of_node[id], index, place};
    number[key_of_node[id]] = 0;
  }
  SegmentedStages out;
  for (auto& [key, segment] : number) {
    const auto& [stage, index, place] = key;
    segment = static_cast<int32_t>(out.segments.size());
    out.segments.push_back({.stage = stage, .index = index, .place = place});
  }
  out.segment_of_node.assign(stage_of_node.size(), 0);
  for (size_t id = 0; id < stage_of_node.size(); ++id) {
    const Node& node = model.nodes()[id];
    if (!node.is_input()) out.segment_of_node[id] = number.at(key_of_node[id]);
  }
  // The gradient of an input is folded where it is used first, so that gradients travel back only.
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
  for (auto& places : own) places.resize(static_cast<size_t>(shard_ranks));
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto stage = static_cast<size_t>(segments[s].stage);
    const auto place = static_cast<size_t>(segments[s].place);
    own[stage][place].push_back(static_cast<int32_t>(s));
    out.rank_of_stage.push_back(schedule.rank_of_stage[stage] * shard_ranks + segments[s].place);
  }
  out.rows.assign(schedule.rows.size() * static_cast<size_t>(shard_ranks), {});
  for (size_t r = 0; r < out.rows.size(); ++r) {
    const auto place = r % static_cast<size_t>(shard_ranks);
    const auto& row = schedule.rows[r / static_cast<size_t>(shard_ranks)];
    out.rows[r].reserve(row.size());
    for (const Action& action : row) {
      const auto& mine = own[static_cast<size_t>(action.stage)][place];
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
