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

// `order`: of the pipeline. A segment of a stage runs when the stage does. Schedules that only the
// tensors of this model permit are rare.
StageTimes times_of(const Plan& plan, const Schedule& order, const std::vector<StageEdge>& edges) {
  StageTimes chain = lock_step_of_chain(order);
  if (!chain.empty()) return chain;
  std::vector<StageEdge> own;
  for (StageEdge edge : edges) {
    edge.from = plan.segments[static_cast<size_t>(edge.from)].stage;
    edge.to = plan.segments[static_cast<size_t>(edge.to)].stage;
    if (edge.from < edge.to) own.push_back(edge);
  }
  return lock_step(order, own);
}

Status prove(const Plan& plan, const ModePlan& mode, const Schedule& order,
             std::vector<StageEdge> edges, Proof& proof) {
  if (proof.schedule && *proof.schedule == mode.schedule && proof.edges == edges) return {};
  auto checked = check_schedule(mode.schedule, edges, plan.config.slack);
  if (!checked.ok()) return checked.status().within(cat("schedule of mode ", mode_name(mode.mode)));
  proof.schedule = mode.mode == Mode::train ? nullptr : &mode.schedule;
  proof.times = times_of(plan, order, edges);
  proof.edges = std::move(edges);
  proof.checked = checked.take();
  return {};
}

// `order`: of the pipeline, without actions for recompute.
Result<ModeLayout> lay_out_mode(Plan& plan, const Shapes& shapes, Schedule order, ModePlan& mode,
                                const std::vector<int32_t>& segments, Proof& proof) {
  std::vector<StageWork> work = make_work(mode.graph, plan.stage_of_node, mode.schedule, segments);
  if (mode.mode == Mode::train) {
    std::vector<bool> again, wanted(static_cast<size_t>(order.stages), false);
    for (size_t s = 0; s < work.size(); ++s) {
      again.push_back(!work[s].calls[kPhaseR].empty());
      if (segments[s] > 0) wanted[static_cast<size_t>(plan.segments[s].stage)] = true;
    }
    add_recompute(mode.schedule, std::move(again));
    add_recompute(order, std::move(wanted));
  }
  mode.edges = make_edges(plan, mode, work);
  std::vector<int32_t> edge_of;
  WEFT_TRY(prove(plan, mode, order, stage_edges(plan, mode, work, &edge_of), proof));
  ModeLayout layout = lay_out(plan, shapes, proof.times, std::move(work), mode);
  // The checker proved the schedule with these numbers of places; the layout must provide at least
  // as many.
  for (size_t i = 0; i < proof.edges.size(); ++i) {
    if (edge_of[i] < 0) continue;
    const Edge& e = mode.edges[static_cast<size_t>(edge_of[i])];
    const EdgePlaces& proved = proof.checked.places[i];
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
  PlanLayout out{.shapes = Shapes(*plan.model, plan.config), .modes = {}};
  plan.arena_bytes = plan.permanent_bytes;
  Proof proof;
  for (ModePlan& mode : plan.modes) {
    if (!mode.present) continue;
    ModeLayout& layout = out.modes[static_cast<size_t>(mode.mode)];
    Schedule order = train;
    if (mode.mode != Mode::train) {
      WEFT_TRY_ASSIGN(order, make_forward(train, mode.schedule.micro_batches));
    }
    WEFT_TRY_ASSIGN(layout, lay_out_mode(plan, out.shapes, std::move(order), mode, again, proof));
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
