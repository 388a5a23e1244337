#include "partition/stages.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/text.h"
#include "lowering/recompute.h"
#include "lowering/segments.h"
#include "partition/balance.h"
#include "partition/cut_loads.h"
#include "partition/cut_search.h"
#include "partition/pipedream_stages.h"
#include "partition/step_time.h"
#include "plan/schedule_choice.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// A cut is the name of a node, or of a group of nodes: the part of their names before a dot. "h.3"
// begins at "h.3.ln_1".
NodeId find_cut(const Model& model, const std::string& name) {
  if (const NodeId id = model.find_node(name); id >= 0) return id;
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id)
    if (model.node(id).name.starts_with(name + ".")) return id;
  return -1;
}

Result<Partition> split_at_names(const Model& model, const OpNodes& ops, const NodeCosts& costs,
                                 const std::vector<std::string>& cuts, int32_t stages) {
  std::vector<int32_t> begins;
  for (const std::string& name : cuts) {
    const NodeId id = find_cut(model, name);
    if (id < 0 || model.node(id).is_input())
      return Status(
          Code::not_found,
          cat("cut '", name, "' is not the name of a node or a group of nodes of the model"));
    begins.push_back(ops.index[static_cast<size_t>(id)]);
    const size_t i = begins.size() - 1;
    if (begins[i] == 0)
      return Status(Code::invalid, cat("cut '", name, "' is at the first node, '",
                                       model.node(id).name, "', where stage 0 begins"));
    if (i > 0 && begins[i] <= begins[i - 1])
      return Status(Code::invalid, cat("cut '", name, "' is at node '", model.node(id).name,
                                       "', expected one after that of cut '", cuts[i - 1], "'"));
  }
  if (static_cast<int32_t>(begins.size()) + 1 != stages)
    return Status(Code::invalid, cat(begins.size(), " cuts make ", begins.size() + 1,
                                     " stages, the plan has ", stages));
  return partition_at(costs, begins);
}

// Blocks of the type, one per node whose op has that name. A block begins with the group of names
// that contains this node and no other node of the type: "h.3" for attention in a GPT, because "h"
// contains all of them.
Result<std::vector<int32_t>> blocks_of_type(const Model& model, const OpNodes& ops,
                                            const std::string& type) {
  std::vector<NodeId> found;
  std::string known;
  for (NodeId id : ops.ids) {
    const std::string op(model.node(id).op->name());
    if (op == type) found.push_back(id);
    if (cat(" ", known, ",").find(cat(" ", op, ",")) == std::string::npos)
      known += cat(known.empty() ? "" : ", ", op);
  }
  if (found.empty())
    return Status(Code::not_found, cat("no node has the type '", type, "'; the model has ", known));
  std::vector<int32_t> begins;
  for (NodeId id : found) {
    const std::string& name = model.node(id).name;
    NodeId begin = id;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string group = name.substr(0, dot + 1);
      if (std::any_of(found.begin(), found.end(), [&](NodeId other) {
            return other != id && model.node(other).name.starts_with(group);
          }))
        continue;
      const auto first = std::find_if(ops.ids.begin(), ops.ids.end(), [&](NodeId n) {
        return model.node(n).name.starts_with(group);
      });
      begin = std::min(begin, *first);
      break;
    }
    const int32_t index = ops.index[static_cast<size_t>(begin)];
    begins.push_back(
        begins.empty()
            ? 0
            : std::max(index,
                       begins.back() + 1));  // the nodes before the first block belong to it
  }
  return begins;
}

Result<Partition> split_by_type(const Model& model, const OpNodes& ops, const NodeCosts& costs,
                                const std::string& type, int32_t stages) {
  WEFT_TRY_ASSIGN(const std::vector<int32_t> blocks, blocks_of_type(model, ops, type));
  if (stages > static_cast<int32_t>(blocks.size()))
    return Status(Code::invalid, cat(stages, " stages need at least as many nodes of type '", type,
                                     "', found ", blocks.size()));
  return partition_uniform(costs, stages, blocks);
}

Result<Partition> split_by_parameters(const Model& model, const PlanConfig& config,
                                      const OpNodes& ops, int32_t stages,
                                      Among among = Among::smallest) {
  std::vector<double> elements;
  for (NodeId id : ops.ids) {
    double sum = 0;
    for (ParamId w : model.node(id).weights)
      sum += static_cast<double>(model.param(w).shape.elements());
    elements.push_back(sum);
  }
  std::vector<StageRoom> rooms(static_cast<size_t>(stages));
  for (int32_t s = 0; s < stages; ++s) rooms[static_cast<size_t>(s)].rank = s;
  const CutLoads cuts(model, config, ops);
  const ChainLoads loads{.cut_time = {}, .bytes = {}, .cut_bytes = cuts.bytes()};
  return partition_for({.cost = elements, .edges = ops.edges}, loads, rooms, among);
}

// The nodes of which every rank that shares their stage computes a piece.
Result<std::vector<size_t>> shared_nodes(const Model& model, const PlanConfig& config,
                                         const OpNodes& ops) {
  WEFT_TRY_ASSIGN(const std::shared_ptr<const Model> pieces,
                  pieces_of({std::shared_ptr<const Model>(), &model}, config.tensor));
  std::vector<std::set<int32_t>> tensor_ranks(model.nodes().size());
  for (NodeId id = 0; id < static_cast<NodeId>(pieces->nodes().size()); ++id)
    tensor_ranks[static_cast<size_t>(pieces->node(id).origin)].insert(
        tensor_rank_of(*pieces, id, config.shard_ranks));
  std::vector<size_t> out;
  for (size_t i = 0; i < ops.ids.size(); ++i)
    if (tensor_ranks[static_cast<size_t>(ops.ids[i])].size() ==
        static_cast<size_t>(config.shard_ranks))
      out.push_back(i);
  return out;
}

std::vector<size_t> first_nodes(const Partition& partition) {
  return {partition.first_node.begin(), partition.first_node.end()};
}

Result<Partition> partition_of(const NodeCosts& costs, const std::vector<size_t>& first) {
  const std::vector<int32_t> cuts(first.begin() + 1, first.end());
  return partition_at(costs, cuts);
}

using Cuts = std::vector<std::vector<size_t>>;  // first nodes of stages

// The partitions with the smallest bottleneck: the smallest and the earliest of them. If stages
// recompute, also without the times for that, because ranks may do it while they wait for a
// gradient.
Result<Cuts> cuts_by_stages(const NodeCosts& costs, const ChainLoads& loads,
                            std::vector<StageRoom> rooms) {
  Cuts out;
  const auto add = [&]() -> Status {
    for (const Among among : {Among::smallest, Among::earliest}) {
      WEFT_TRY_ASSIGN(const Partition partition, partition_for(costs, loads, rooms, among));
      out.push_back(first_nodes(partition));
    }
    return {};
  };
  WEFT_TRY(add());
  const auto recomputes = [](const StageRoom& room) { return room.recomputes; };
  if (std::none_of(rooms.begin(), rooms.end(), recomputes)) return out;
  for (StageRoom& room : rooms) room.recomputes = false;
  WEFT_TRY(add());
  return out;
}

// Of these cuts, those within the limits if there are any; of these, the ones whose step takes the
// least time, or up to 1 % more, because estimates are not more exact than that; and of these, the
// ones whose largest rank needs the fewest bytes. `bytes` may be null: not counted.
std::vector<size_t> best_of(const Cuts& cuts, StepTime& step, RunBytes* bytes) {
  constexpr double kMost = 1.01;
  struct Judged {
    bool exceeds = false;
    double time = 0;
    int64_t largest = 0;
  };
  std::vector<Judged> judged;
  std::pair<bool, double> least = {true, INFINITY};
  for (const std::vector<size_t>& first : cuts) {
    Judged& one = judged.emplace_back(Judged{.time = step.of(first)});
    for (const RankBytes& rank : bytes ? bytes->of_ranks(first) : std::vector<RankBytes>()) {
      one.exceeds = one.exceeds || rank.over() > 0;
      one.largest = std::max(one.largest, rank.all);
    }
    least = std::min(least, {one.exceeds, one.time});
  }
  size_t best = cuts.size();
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (judged[i].exceeds != least.first || judged[i].time > least.second * kMost) continue;
    if (best == cuts.size() || judged[i].largest < judged[best].largest) best = i;
  }
  return cuts[best];
}

// The speeds of stages, and whether they recompute.
std::vector<StageRoom> rooms_of(const PlanConfig& all, const PlanConfig& config,
                                const Schedule& schedule, const std::vector<int32_t>& again) {
  std::vector<StageRoom> rooms;
  for (int32_t s = 0; s < schedule.stages; ++s) {
    StageRoom room{.rank = schedule.rank_of(s, 0) * all.shard_ranks,
                   .speed = 1,
                   .recomputes = again[static_cast<size_t>(s)] > 0};
    // Replicas run in turn: a stage with r of them is as fast as r of the slowest one.
    for (int32_t i = 0; !config.machines.speeds.empty() && i < schedule.replicas_of(s); ++i) {
      const double speed = config.machines.speeds[static_cast<size_t>(schedule.rank_of(s, i))];
      room.speed = i > 0 ? std::min(room.speed, speed) : speed;
    }
    room.speed *= schedule.replicas_of(s);
    rooms.push_back(room);
  }
  return rooms;
}

// Per stage: the link from the stage before it, of several the slowest.
std::vector<LinkSpeed> links_into(const Schedule& schedule, const Machines& machines) {
  std::vector<LinkSpeed> out(static_cast<size_t>(schedule.stages));
  for (int32_t s = 1; s < schedule.stages; ++s)
    for (int32_t i = 0; i < schedule.replicas_of(s - 1); ++i)
      for (int32_t j = 0; j < schedule.replicas_of(s); ++j)
        out[static_cast<size_t>(s)].keep_slower(
            machines.between(static_cast<size_t>(schedule.rank_of(s - 1, i)),
                             static_cast<size_t>(schedule.rank_of(s, j))));
  return out;
}

Result<Partition> split_for_machines(const Model& model, const PlanConfig& all,
                                     const PlanConfig& config, const OpNodes& ops,
                                     const NodeCosts& costs, KnownRuns& known) {
  WEFT_TRY_ASSIGN(const ScheduleChoice choice, choose_schedule(config));
  WEFT_TRY_ASSIGN(const Schedule schedule, make_schedule(choice, config, {}));
  WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(config.recompute));
  const std::vector<int32_t> again = calls_per_block(recompute, schedule);
  const std::vector<StageRoom> rooms = rooms_of(all, config, schedule, again);
  const CutLoads cuts(model, config, ops);
  WEFT_TRY_ASSIGN(std::vector<size_t> shared, shared_nodes(model, all, ops));
  // A rank may also have all of another node of the stage.
  if (shared.size() < rooms.size()) shared.clear();
  ChainLoads loads{.cut_time = {},
                   .bytes = {},
                   .cut_bytes = cuts.bytes(),
                   .needed = shared,
                   .forward = ops.forward};
  const std::vector<LinkSpeed> links = links_into(schedule, config.machines);
  const CutTime cut_time = [&](const RunOfNodes& run) {
    const bool from_first = schedule.rank_of_stage[run.stage - 1] == 0;
    return cuts.time(run.begin, run.end, from_first, links[run.stage]);
  };
  if (config.machines.latency > 0 || config.machines.bandwidth > 0) loads.cut_time = cut_time;
  Schedule order = schedule;
  std::vector<bool> recomputes;
  for (const StageRoom& room : rooms) recomputes.push_back(room.recomputes);
  add_recompute(order, recomputes);
  const bool one_each = schedule.stages <= schedule.ranks(), limited = cuts_by_bytes(config);
  const auto search_with = [&](RunBytes* bytes) {
    return CutSearch(ops, schedule, all.shard_ranks, rooms, loads.cut_time, shared, bytes);
  };
  std::optional<RunBytes> bytes;
  if (limited || (schedule.stages > 1 && config.recompute != "auto")) {
    WEFT_TRY_ASSIGN(bytes, RunBytes::make(model, all, ops, schedule, known));
  }
  RunBytes* const counted = bytes ? &*bytes : nullptr;
  StepTime step(model, config, ops, order, rooms, cut_time, links, counted);
  if (bytes && one_each) loads.bytes = [&bytes](const RunOfNodes& run) { return bytes->of(run); };
  WEFT_TRY_ASSIGN(Cuts found, cuts_by_stages(costs, loads, rooms));
  Cuts starts = found;
  for (const Among among : {Among::smallest, Among::earliest}) {
    WEFT_TRY_ASSIGN(const Partition by_parameters,
                    split_by_parameters(model, config, ops, schedule.stages, among));
    starts.push_back(first_nodes(by_parameters));
  }
  WEFT_TRY_ASSIGN(const Partition even, partition_uniform(costs, schedule.stages));
  starts.push_back(first_nodes(even));
  if (!one_each) {
    CutSearch busiest = search_with(nullptr);
    for (const std::vector<size_t>& start : starts) found.push_back(busiest.start(start));
  }
  // The time of a step lacks the updates of asynchronous schedules, and messages of ranks that
  // share a stage.
  if (schedule.updates == 0 && all.shard_ranks == 1) {
    std::vector<std::pair<double, std::vector<size_t>>> fastest;
    for (const std::vector<size_t>& one : std::set(found.begin(), found.end()))
      fastest.emplace_back(step.of(one), one);
    std::sort(fastest.begin(), fastest.end());
    for (const auto& [seconds, one] : fastest) found.push_back(step.with_moved_cuts(one, shared));
  }
  const std::vector<size_t> best = best_of(found, step, counted);
  if (!limited) return partition_of(costs, best);
  CutSearch search = search_with(counted);
  if (search.fits(best)) return partition_of(costs, best);
  for (const std::vector<size_t>& start : starts) search.start(start);
  // If no cuts are within the limits, the result is the nearest to them.
  if (!search.fits()) search.try_all();
  return partition_of(costs, search.best());
}

}  // namespace

OpNodes::OpNodes(const Model& model, int64_t samples, const std::vector<NodeTimes>& times)
    : index(model.nodes().size(), -1) {
  const std::vector<NodeTimes> analysed =
      times.empty() ? analysed_times(model, samples) : std::vector<NodeTimes>();
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    const Node& node = model.node(id);
    if (node.is_input()) continue;
    index[static_cast<size_t>(id)] = static_cast<int32_t>(ids.size());
    for (NodeId i : node.in)
      if (const int32_t from = index[static_cast<size_t>(i)]; from >= 0)
        edges.push_back({from, static_cast<int32_t>(ids.size())});
    ids.push_back(id);
    const NodeTimes& seconds = (times.empty() ? analysed : times)[static_cast<size_t>(id)];
    costs.push_back(seconds.total());
    forward.push_back(seconds.forward);
  }
}

int64_t limit_of(const PlanConfig& config, size_t rank) {
  const int64_t own = config.machines.memory.empty() ? 0 : config.machines.memory[rank];
  return std::min(config.memory_limit > 0 ? config.memory_limit : kNoLimit,
                  own > 0 ? own : kNoLimit);
}

bool cuts_by_bytes(const PlanConfig& config) {
  bool limited = false;
  for (size_t r = 0; r < static_cast<size_t>(config.ranks); ++r)
    limited = limited || limit_of(config, r) < kNoLimit;
  return limited && config.split == SplitBy::cost && config.cuts.empty() &&
         config.recompute != "auto";
}

PlanConfig pipeline_config(const PlanConfig& config) {
  PlanConfig out = replica_config(config);
  out.ranks /= config.shard_ranks;
  const auto shared = static_cast<size_t>(config.shard_ranks);
  out.machines.keep_least(
      static_cast<size_t>(out.ranks), shared,
      [shared](size_t stage, size_t tensor_rank) { return stage * shared + tensor_rank; });
  return out;
}

Result<std::vector<int32_t>> choose_stages(const Model& model, const PlanConfig& all,
                                           int32_t stages, KnownRuns& known) {
  const PlanConfig config = pipeline_config(all);
  const OpNodes ops(model, config.micro_batch_size, config.times);
  const NodeCosts costs{.cost = ops.costs, .edges = ops.edges};
  const auto split = [&]() -> Result<Partition> {
    if (!config.cuts.empty()) return split_at_names(model, ops, costs, config.cuts, stages);
    switch (config.split) {
      case SplitBy::uniform: return partition_uniform(costs, stages);
      case SplitBy::parameters: return split_by_parameters(model, config, ops, stages);
      case SplitBy::type: return split_by_type(model, ops, costs, config.split_type, stages);
      case SplitBy::pipedream: return partition_pipedream(model, config, ops, costs, stages);
      case SplitBy::cost: break;
    }
    return split_for_machines(model, all, config, ops, costs, known);
  };
  WEFT_TRY_ASSIGN(const Partition partition, split());
  std::vector<int32_t> stage_of_node(model.nodes().size(), 0);
  for (size_t i = 0; i < ops.ids.size(); ++i)
    stage_of_node[static_cast<size_t>(ops.ids[i])] = partition.stage_of_node[i];
  for (NodeId id : model.inputs())
    if (!model.node(id).uses.empty())
      stage_of_node[static_cast<size_t>(id)] =
          stage_of_node[static_cast<size_t>(model.node(id).uses.front().node)];
  return stage_of_node;
}

std::vector<size_t> first_nodes(const OpNodes& ops, const std::vector<int32_t>& stage_of_node) {
  std::vector<size_t> out;
  for (size_t i = 0; i < ops.ids.size(); ++i)
    if (stage_of_node[static_cast<size_t>(ops.ids[i])] == static_cast<int32_t>(out.size()))
      out.push_back(i);
  return out;
}

std::vector<std::string> cuts_of(const Model& model, const std::vector<int32_t>& stage_of_node) {
  std::vector<std::string> cuts;
  for (size_t id = 0; id < stage_of_node.size();
       ++id)  // nodes are in topological order, so stages ascend
    if (!model.nodes()[id].is_input() && stage_of_node[id] == static_cast<int32_t>(cuts.size()) + 1)
      cuts.push_back(model.nodes()[id].name);
  return cuts;
}

}  // namespace weft
