#include "lowering/mode_plans.h"

#include <algorithm>

#include "base/text.h"
#include "lowering/edges.h"
#include "lowering/lower.h"
#include "lowering/recompute.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// A schedule that was proved, with its edges. Evaluation and inference often share both; training
// has its own.
struct Proof {
  const Schedule* schedule = nullptr;  // of a mode of the plan that does not change; null: none
  std::vector<StageEdge> edges;
  Checked checked;
  StageTimes times;
};

// Every stage that may recompute has an R, also if it has nothing to recompute. `train`: of the
// pipeline.
Result<Schedule> pipeline_order(const Plan& plan, const ModePlan& mode, const Schedule& train,
                                const std::vector<int32_t>& again) {
  if (mode.mode != Mode::train) return make_forward(train, mode.schedule.micro_batches);
  std::vector<bool> wanted(static_cast<size_t>(train.stages), false);
  for (size_t s = 0; s < again.size(); ++s)
    if (again[s] > 0) wanted[static_cast<size_t>(plan.segments[s].stage)] = true;
  Schedule out = train;
  add_recompute(out, std::move(wanted));
  return out;
}

// A segment of a stage runs when the stage does. Schedules that only the tensors of this model
// permit are rare.
Result<StageTimes> times_of(const Plan& plan, const ModePlan& mode, const Schedule& train,
                            const std::vector<int32_t>& again,
                            const std::vector<StageEdge>& edges) {
  const bool same = plan.config.shard_ranks == 1 &&
                    std::all_of(again.begin(), again.end(), [](int32_t calls) { return !calls; });
  Schedule own;
  if (!same) {
    WEFT_TRY_ASSIGN(own, pipeline_order(plan, mode, train, again));
  }
  const Schedule& order = same ? mode.schedule : own;
  StageTimes chain = lock_step_of_chain(order);
  if (!chain.empty()) return chain;
  std::vector<StageEdge> of_stages;
  for (StageEdge edge : edges) {
    edge.from = plan.segments[static_cast<size_t>(edge.from)].stage;
    edge.to = plan.segments[static_cast<size_t>(edge.to)].stage;
    if (edge.from < edge.to) of_stages.push_back(edge);
  }
  return lock_step(order, of_stages);
}

Status prove(const Plan& plan, const ModePlan& mode, const Schedule& train,
             const std::vector<int32_t>& again, std::vector<StageEdge> edges, Proof& proof) {
  if (proof.schedule && *proof.schedule == mode.schedule && proof.edges == edges) return {};
  WEFT_TRY_ASSIGN(proof.checked, check_schedule(mode.schedule, edges, plan.config.slack)
                                     .within(cat("schedule of mode ", mode_name(mode.mode))));
  proof.schedule = mode.mode == Mode::train ? nullptr : &mode.schedule;
  WEFT_TRY_ASSIGN(proof.times, times_of(plan, mode, train, again, edges));
  proof.edges = std::move(edges);
  return {};
}

Result<ModeLayout> lay_out_mode(Plan& plan, const Shapes& shapes, const Schedule& train,
                                ModePlan& mode, const std::vector<int32_t>& again, Proof& proof) {
  std::vector<StageWork> work = make_work(mode.graph, plan.stage_of_node, mode.schedule, again);
  if (mode.mode == Mode::train) {
    std::vector<bool> needed;
    for (const StageWork& stage : work) needed.push_back(!stage.calls[kPhaseR].empty());
    add_recompute(mode.schedule, std::move(needed));
  }
  mode.edges = make_edges(plan, mode, work);
  std::vector<int32_t> edge_of;
  WEFT_TRY(prove(plan, mode, train, again, stage_edges(plan, mode, work, &edge_of), proof));
  ModeLayout layout = lay_out(plan, shapes, proof.times, std::move(work), mode);
  // The checker proved the schedule with these numbers of slots; the layout must provide at least
  // as many.
  for (size_t i = 0; i < proof.edges.size(); ++i) {
    if (edge_of[i] < 0) continue;
    const Edge& e = mode.edges[static_cast<size_t>(edge_of[i])];
    const EdgeSlots& proved = proof.checked.slots[i];
    // Replica 0 can have fewer micro-batches than the schedule.
    const int32_t least = std::min(e.kind == EdgeKind::gradient ? proved.gradient : proved.forward,
                                   plan.micro_batches_at(mode.mode, e.to_rank).count());
    if (e.landing_slots < least)
      return Status(Code::internal, cat("edge ", edge_of[i], " has ", e.landing_slots,
                                        " places, the schedule was proved with ", least));
  }
  return layout;
}

// Addresses have 64 bits, but no machine has the memory that a wrong dimension can require.
Status check_bytes(const std::vector<int64_t>& bytes) {
  for (size_t r = 0; r < bytes.size(); ++r)
    if (bytes[r] > kMostBytes)
      return Status(Code::invalid, cat("rank ", r, " needs ", bytes[r],
                                       bytes[r] < kEndless ? " bytes" : " bytes or more",
                                       ", expected at most ", kMostBytes));
  return {};
}

}  // namespace

Result<PlanLayout> lay_out_modes(Plan& plan, const Schedule& train,
                                 const std::vector<int32_t>& again) {
  WEFT_TRY(check_bytes(plan.permanent_bytes));
  PlanLayout out{.shapes = Shapes(*plan.model, plan.config, train), .modes = {}};
  plan.arena_bytes = plan.permanent_bytes;
  Proof proof;
  for (ModePlan& mode : plan.modes) {
    if (!mode.present) continue;
    ModeLayout& layout = out.modes[static_cast<size_t>(mode.mode)];
    WEFT_TRY_ASSIGN(layout, lay_out_mode(plan, out.shapes, train, mode, again, proof));
    for (size_t r = 0; r < mode.ranks.size(); ++r)
      plan.arena_bytes[r] =
          std::max(plan.arena_bytes[r], sum_of_bytes(plan.permanent_bytes[r], mode.ranks[r].bytes));
  }
  WEFT_TRY(check_bytes(plan.arena_bytes));
  return out;
}

void write_modes(Plan& plan, const PlanLayout& layout) {
  for (ModePlan& mode : plan.modes)
    if (mode.present)
      write_programs(plan, layout.shapes, layout.modes[static_cast<size_t>(mode.mode)], mode);
}

}  // namespace weft
