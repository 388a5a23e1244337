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
#include "partition/schedule_costs.h"
#include "plan/schedule_choice.h"
#include "schedule/chain_time.h"
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

Result<Partition> split_by_parameters(const Model& model, const OpNodes& ops, int32_t stages) {
  std::vector<double> elements;
  for (NodeId id : ops.ids) {
    double sum = 0;
    for (ParamId w : model.node(id).weights)
      sum += static_cast<double>(model.param(w).shape.elements());
    elements.push_back(sum);
  }
  return partition_by_cost({.cost = elements, .edges = ops.edges}, stages);
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

// Estimates are not exact enough for smaller differences.
constexpr double kLess = 0.99;

std::vector<size_t> first_nodes(const Partition& partition) {
  return {partition.first_node.begin(), partition.first_node.end()};
}

Result<Partition> partition_of(const NodeCosts& costs, const std::vector<size_t>& first) {
  const std::vector<int32_t> cuts(first.begin() + 1, first.end());
  return partition_at(costs, cuts);
}

// Searches from these cuts, and from cuts by parameters and into equal numbers of nodes. The
// results of all of these.
Result<std::vector<std::vector<size_t>>> search_from(const Model& model, const OpNodes& ops,
                                                     const Partition& cuts, CutSearch& search) {
  const NodeCosts costs{.cost = ops.costs, .edges = ops.edges};
  WEFT_TRY_ASSIGN(const Partition by_parameters, split_by_parameters(model, ops, cuts.stages()));
  WEFT_TRY_ASSIGN(const Partition even, partition_uniform(costs, cuts.stages()));
  std::vector<std::vector<size_t>> out;
  for (const Partition* from : {&cuts, &by_parameters, &even})
    out.push_back(search.start(first_nodes(*from)));
  return out;
}

// If no cuts are within the limits, the result is the nearest to them.
Result<Partition> split_by_search(const Model& model, const OpNodes& ops, const NodeCosts& costs,
                                  const Partition& from, CutSearch& search) {
  WEFT_TRY(search_from(model, ops, from, search).status());
  if (!search.fits()) search.try_all();
  return partition_of(costs, search.best());
}

using StepTime = std::function<double(const std::vector<size_t>& first_nodes)>;

// Of a plan whose stages are cut at these nodes.
double step_time(const Model& model, const PlanConfig& config, const OpNodes& ops,
                 const Schedule& order, const std::vector<StageRoom>& rooms,
                 const CutTime& cut_time, const std::vector<size_t>& first) {
  std::vector<int32_t> stage_of_node(model.nodes().size(), 0);
  double slowest_cut = 0;
  for (size_t s = 0; s < first.size(); ++s) {
    const size_t end = s + 1 < first.size() ? first[s + 1] : ops.ids.size();
    for (size_t i = first[s]; i < end; ++i)
      stage_of_node[static_cast<size_t>(ops.ids[i])] = static_cast<int32_t>(s);
    if (s > 0 && order.rank_of_stage[s] != order.rank_of_stage[s - 1])
      slowest_cut = std::max(slowest_cut, cut_time({s, first[s], end}));
  }
  ScheduleCosts times = schedule_costs(model, config, config.times, stage_of_node);
  for (auto* list : {&times.forward, &times.input, &times.weight})
    for (size_t s = 0; s < list->size(); ++s) (*list)[s] /= rooms[s].speed;
  return std::max(chain_time(order, times), order.micro_batches * slowest_cut);
}

// The cuts with the shortest step, of these and of those that a search for the least busy ranks
// finds: for ranks with several stages.
Result<Partition> split_by_ranks(const Model& model, const OpNodes& ops, const StepTime& time_of,
                                 const Partition& by_stages, CutSearch& search) {
  WEFT_TRY_ASSIGN(const auto found, search_from(model, ops, by_stages, search));
  std::vector<size_t> best = first_nodes(by_stages);
  double least = time_of(best);
  for (const std::vector<size_t>& first : found) {
    const double time = search.fits(first) ? time_of(first) : least;
    if (time >= least * kLess) continue;
    least = time;
    best = first;
  }
  return partition_of({.cost = ops.costs, .edges = ops.edges}, best);
}

// Of the partitions that count what stages recompute, and that do not, because ranks recompute
// while they wait for a gradient: the one with the shorter step.
Result<Partition> split_by_stages(const NodeCosts& costs, const ChainLoads& loads,
                                  std::vector<StageRoom> rooms, const StepTime& time_of) {
  WEFT_TRY_ASSIGN(Partition counted, partition_for(costs, loads, rooms));
  const auto recomputes = [](const StageRoom& room) { return room.recomputes; };
  if (std::none_of(rooms.begin(), rooms.end(), recomputes)) return counted;
  for (StageRoom& room : rooms) room.recomputes = false;
  WEFT_TRY_ASSIGN(Partition hidden, partition_for(costs, loads, rooms));
  return time_of(first_nodes(hidden)) < time_of(first_nodes(counted)) ? hidden : counted;
}

// Whether partition_by_cost() has the result of partition_for() without limits, in less time.
bool is_plain(const PlanConfig& all, const PlanConfig& pipeline) {
  const auto recompute = parse_recompute(pipeline.recompute);
  return recompute.ok() && recompute.value().every == 0 && !pipeline.machines.any() &&
         pipeline.stage_replicas.empty() && all.shard_ranks == 1;
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
  const CutLoads cuts(model, config, ops);
  WEFT_TRY_ASSIGN(std::vector<size_t> shared, shared_nodes(model, all, ops));
  // A rank may also have all of another node of the stage.
  if (shared.size() < rooms.size()) shared.clear();
  ChainLoads loads{.cut_time = {}, .bytes = {}, .needed = shared, .forward = ops.forward};
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
  const StepTime time_of = [&](const std::vector<size_t>& first) {
    return step_time(model, config, ops, order, rooms, cut_time, first);
  };
  const bool one_each = schedule.stages <= schedule.ranks(), limited = cuts_by_bytes(config);
  const auto search_with = [&](RunBytes* bytes) {
    return CutSearch(ops, schedule, all.shard_ranks, rooms, loads.cut_time, shared, bytes);
  };
  std::optional<RunBytes> bytes;
  if (limited) {
    WEFT_TRY_ASSIGN(bytes, RunBytes::make(model, all, ops, schedule, known));
  }
  if (limited && one_each) loads.bytes = [&bytes](const RunOfNodes& run) { return bytes->of(run); };
  WEFT_TRY_ASSIGN(Partition partition, is_plain(all, config) && !loads.bytes
                                           ? partition_by_cost(costs, schedule.stages)
                                           : split_by_stages(costs, loads, rooms, time_of));
  if (!one_each) {
    CutSearch search = search_with(nullptr);
    WEFT_TRY_ASSIGN(partition, split_by_ranks(model, ops, time_of, partition, search));
  }
  if (!limited) return partition;
  CutSearch search = search_with(&*bytes);
  if (search.fits(first_nodes(partition))) return partition;
  return split_by_search(model, ops, costs, partition, search);
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
      case SplitBy::parameters: return split_by_parameters(model, ops, stages);
      case SplitBy::type: return split_by_type(model, ops, costs, config.split_type, stages);
      case SplitBy::pipedream: return partition_pipedream(model, config, ops, costs, stages);
      case SplitBy::cost: break;
    }
    return is_plain(all, config) && !cuts_by_bytes(config) && stages <= config.ranks
               ? partition_by_cost(costs, stages)
               : split_for_machines(model, all, config, ops, costs, known);
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
