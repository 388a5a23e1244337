#include "tune/draft.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "lowering/parameters.h"
#include "lowering/recompute.h"
#include "lowering/segments.h"
#include "partition/pipedream_stages.h"
#include "partition/schedule_costs.h"
#include "partition/stages.h"
#include "plan/asynchronous.h"
#include "plan/check_config.h"
#include "plan/schedule_choice.h"
#include "tune/recompute_search.h"

namespace weft {

namespace {

void set_mesh(PlanConfig& config, const PlanConfig& all) {
  config.ranks = all.ranks;
  config.data = all.data;
  config.micro_batches = all.micro_batches;
  config.gradient_groups = all.gradient_groups;
  config.memory_limit = all.memory_limit;
  config.machines = all.machines;
}

// `train`: of the pipeline.
Status make_mode(Plan& plan, Mode which, const Schedule& train) {
  const Model& model = *plan.model;
  ModePlan& mode = plan.modes[static_cast<size_t>(which)];
  mode.mode = which;
  mode.present = makes(model, plan.config, which);
  if (!mode.present) return {};
  mode.graph = build_step_graph(model, which, plan.stage_of_node, plan.config.graph_options(which));
  if (which != Mode::train) {
    WEFT_TRY_ASSIGN(const Schedule forward,
                    make_forward(train, forward_micro_batches(plan.config, which, train)));
    mode.schedule = with_segments(forward, plan.segments, plan.config.shard_ranks);
  } else {
    mode.schedule = with_segments(train, plan.segments, plan.config.shard_ranks);
  }
  return {};
}

// Store the cuts, so that every rank derives the same stages.
void keep_cuts(Plan& plan) {
  plan.config.cuts = cuts_of(*plan.whole, plan.stage_of_whole);
  plan.config.split = SplitBy::uniform;  // for a single stage, which has no cut
}

// The order of additions to a shared accumulator would depend on where stages begin.
Status check_shared_gradients(const Plan& plan) {
  const auto stage_of = [&plan](NodeId node) {
    return plan.stage_of_node[static_cast<size_t>(node)];
  };
  for (const Param& param : plan.model->params())
    for (const Param::Use& use : param.uses) {
      const NodeId first = param.first_node(use.sum);
      if (param.training.frozen || stage_of(use.node) == stage_of(first)) continue;
      const auto name = [&plan](NodeId node) -> const std::string& {
        return plan.whole->node(plan.model->node(node).origin).name;
      };
      return Status(Code::invalid,
                    cat("parameter '", param.piece.name, "' has one sum of the gradients of node '",
                        name(first), "' in stage ", stage_of(first), " and node '", name(use.node),
                        "' in stage ", stage_of(use.node), ", expected one stage"));
    }
  return {};
}

// The model that is run. All pieces of a node belong to its stage.
Status make_pieces(Plan& plan) {
  WEFT_TRY_ASSIGN(plan.model, pieces_of(plan.whole, plan.config.tensor));
  for (const Node& node : plan.model->nodes())
    plan.stage_of_node.push_back(plan.stage_of_whole[static_cast<size_t>(node.origin)]);
  plan.pieces.resize(plan.whole->params().size());
  for (ParamId p = 0; p < static_cast<ParamId>(plan.model->params().size()); ++p)
    plan.pieces[static_cast<size_t>(plan.model->param(p).piece.whole)].push_back(p);
  return check_shared_gradients(plan);
}

Status choose_versions(Plan& plan, const Schedule& train) {
  plan.config.segment = train.updates;
  WEFT_TRY_ASSIGN(const std::vector<WeightVersions> versions,
                  weight_versions(train, plan.config.vertical_sync));
  for (size_t s = 0; s < versions.size(); ++s)
    for (int32_t d = 0; d < plan.replicas_of(static_cast<int32_t>(s)); ++d)
      plan.versions[static_cast<size_t>(train.rank_of_stage[s] + d)] = versions[s];
  return {};
}

// A rank without a node of a stage would have no actions in the row of the stage.
Status check_shards(const Plan& plan, const Schedule& train) {
  std::vector<bool> found(static_cast<size_t>(train.stages * plan.config.shard_ranks), false);
  for (const Segment& s : plan.segments)
    found[static_cast<size_t>(s.stage * plan.config.shard_ranks + s.tensor_rank)] = true;
  const auto missing = std::find(found.begin(), found.end(), false);
  if (missing == found.end()) return {};
  const auto at = static_cast<int32_t>(missing - found.begin());
  return Status(Code::invalid, cat("stage ", at / plan.config.shard_ranks, " has no node for rank ",
                                   at % plan.config.shard_ranks, " of the ",
                                   plan.config.shard_ranks, " ranks that share it"));
}

// Per segment, as calls_per_block. `train`: of the pipeline.
Result<std::vector<int32_t>> again_of(const Plan& plan, const RunBytes::Again& chosen,
                                      const Schedule& train) {
  std::vector<int32_t> out;
  if (chosen.empty()) {
    WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(plan.config.recompute));
    const std::vector<int32_t> of_stages = calls_per_block(recompute, train);
    for (const Segment& segment : plan.segments)
      out.push_back(of_stages[static_cast<size_t>(segment.stage)]);
    return out;
  }
  for (const auto& stage : chosen) out.insert(out.end(), stage.begin(), stage.end());
  return out;
}

}  // namespace

Result<Draft> draft_of(Outline outline) {
  Draft out{.plan = std::make_shared<Plan>(std::move(outline.plan)), .layout = {}};
  Plan& plan = *out.plan;
  const Schedule& train = outline.train;
  SegmentedStages cut = cut_segments(*plan.model, plan.stage_of_node, plan.config.shard_ranks);
  plan.segments = std::move(cut.segments);
  plan.stage_of_node = std::move(cut.segment_of_node);
  WEFT_TRY(check_shards(plan, train));
  const Schedule segmented = with_segments(train, plan.segments, plan.config.shard_ranks);
  plan.position_of_stage = segmented.rank_of_stage;
  plan.stage_replicas = segmented.replicas;
  plan.versions.assign(static_cast<size_t>(plan.config.ranks), {});
  if (train.updates > 0)
    WEFT_TRY(check_schedule(train, {}).status().within("schedule of mode train"));
  WEFT_TRY(check_asynchronous(plan, train));
  if (train.updates > 0) {
    WEFT_TRY(choose_versions(plan, train));
    WEFT_TRY(check_tied_versions(plan));
  }
  for (Mode m : kEveryMode) WEFT_TRY(make_mode(plan, m, train));
  place_parameters(plan);
  WEFT_TRY_ASSIGN(const std::vector<int32_t> again, again_of(plan, outline.again, train));
  WEFT_TRY_ASSIGN(out.layout, lay_out_modes(plan, train, again));
  return out;
}

namespace {

// PipeDream's partitioner chooses the number of ranks of each stage, unless it is given.
Status choose_replicas(const Model& model, PlanConfig& config) {
  if (config.split != SplitBy::pipedream || config.schedule != "pipedream" ||
      !config.schedule_text.empty() || !config.cuts.empty() || !config.stage_replicas.empty())
    return {};
  WEFT_TRY_ASSIGN(const ReplicatedStages found, replicated_stages(model, config));
  for (size_t s = 0; s < found.replicas.size(); ++s) {
    config.stage_replicas += cat(s > 0 ? "," : "", found.replicas[s]);
    if (s > 0) config.cuts.push_back(model.node(found.first[s]).name);
  }
  return check_replicas(model, config);
}

// The stages are chosen by what training keeps, so this comes first.
Status check_trains(const Model& model, const PlanConfig& config, const ScheduleChoice& choice) {
  const bool forward_only = choice.kind ? choice.kind->forward_only : choice.written.forward_only;
  if (!forward_only || !makes(model, config, Mode::train)) return {};
  const std::string name = choice.kind ? cat("schedule '", choice.kind->name, "'") : "the schedule";
  return Status(Code::invalid, cat(name, " has no backward and cannot train"));
}

bool made_from_costs(const ScheduleChoice& choice) {
  return choice.kind && choice.kind->from_costs;
}

// Whether the schedule is chosen by costs, or what is recomputed, by bytes.
bool chooses_by_bytes(const Model& model, const PlanConfig& config) {
  return config.memory_limit > 0 &&
         (is_from_costs(config.schedule) || config.recompute == "auto") &&
         makes(model, config, Mode::train);
}

// The bytes of an order of the pipeline above the limits, per rank of the pipeline.
std::vector<double> excess_of(const Schedule& order, int32_t shares,
                              const std::vector<size_t>& first, RunBytes& bytes) {
  bytes.set_order(order);
  std::vector<double> out(order.rows.size(), 0);
  for (const RankBytes& rank : bytes.of_ranks(first)) {
    double& most = out[rank.position / static_cast<size_t>(shares)];
    most = std::max(most, static_cast<double>(rank.over()));
  }
  return out;
}

// The training schedule. If it is made from costs, its rows are stored: other ranks do not have all
// that it depends on.
Status choose_order(Outline& out, const ScheduleChoice& choice, const PlanConfig& all,
                    KnownRuns& known) {
  PlanConfig& config = out.plan.config;
  const Model& model = *out.plan.whole;
  const std::vector<int32_t>& stage_of_whole = out.plan.stage_of_whole;
  const ScheduleCosts times = schedule_costs(model, config, config.times, stage_of_whole);
  ScheduleCosts costs = times;
  const OpNodes ops(model, all.micro_batch_size, all.times);
  const std::vector<size_t> first = first_nodes(ops, stage_of_whole);
  std::optional<RunBytes> bytes;
  const bool chooses = chooses_by_bytes(model, all);
  if (chooses || made_from_costs(choice)) {
    ScheduleChoice any = choice;
    if (made_from_costs(choice)) any.kind = find_schedule("zb-h1");
    WEFT_TRY_ASSIGN(Schedule order, make_schedule(any, config, {}));
    WEFT_TRY_ASSIGN(bytes, RunBytes::make(model, all, ops, std::move(order), known));
    add_bytes(model, all, first, *bytes, costs);
  }
  costs = at_speeds(std::move(costs), config.machines.speeds);
  if (chooses && config.recompute != "auto")
    costs.excess = [&](const Schedule& order) {
      return excess_of(order, all.shard_ranks, first, *bytes);
    };
  WEFT_TRY_ASSIGN(out.train, make_schedule(choice, config, costs));
  if (config.slack == 0) config.slack = slack_for(times, out.train.rank_of_stage, config);
  if (made_from_costs(choice)) config.schedule_text = out.train.text();
  if (!chooses) return {};
  costs.cap = 0;
  out.costs = std::move(costs);
  bytes->set_order(out.train);
  if (config.recompute == "auto") {
    WEFT_TRY_ASSIGN(out.again, fit_recompute(all, first, *bytes));
  }
  out.bytes = bytes->of_ranks(first);
  return {};
}

Result<Outline> outline_with(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                             KnownRuns& known) {
  Outline out;
  Plan& plan = out.plan;
  plan.whole = model;
  plan.config = pipeline_config(config);
  WEFT_TRY(choose_replicas(*model, plan.config));
  PlanConfig all = config;
  all.cuts = plan.config.cuts;
  all.stage_replicas = plan.config.stage_replicas;
  WEFT_TRY_ASSIGN(const ScheduleChoice choice, choose_schedule(plan.config));
  WEFT_TRY(check_trains(*model, config, choice));
  WEFT_TRY_ASSIGN(plan.stage_of_whole, choose_stages(*model, all, choice.stages, known));
  keep_cuts(plan);
  WEFT_TRY(make_pieces(plan));
  WEFT_TRY(choose_order(out, choice, all, known));
  if (out.train.replicas.empty()) plan.config.stage_replicas.clear();
  if (out.train.updates > 0) plan.config.packed.clear();
  set_mesh(plan.config, config);
  return out;
}

}  // namespace

// With recompute "auto", stages are cut by time, and then as much is recomputed as the limit
// requires. If that is not enough, they are cut as if everything was recomputed.
Result<Outline> outline_of(const std::shared_ptr<const Model>& model, const PlanConfig& config,
                           KnownRuns& known) {
  auto by_time = outline_with(model, config, known);
  PlanConfig cut = config;
  cut.recompute = "stage";
  if (by_time.ok() || config.recompute != "auto" || !cuts_by_bytes(cut)) return by_time;
  const auto by_bytes = outline_with(model, cut, known);
  if (!by_bytes.ok()) return by_time;
  cut.recompute = config.recompute;
  cut.cuts = by_bytes.value().plan.config.cuts;
  auto again = outline_with(model, cut, known);
  return again.ok() ? std::move(again) : std::move(by_time);
}

}  // namespace weft
