#include "lowering/mode_plans.h"

#include <algorithm>

#include "base/text.h"
#include "lowering/edges.h"
#include "lowering/lower.h"
#include "lowering/recompute.h"
#include "lowering/segments.h"
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

// `recompute` auto: drops the activations that take the least time to recompute, so that the rank
// does not exceed its limit. Each option is tried on the j-th stage of all ranks at the same time.
// The bytes of combinations are estimated first and then computed. The times are estimates, which
// are the same for all ranks.
class Fit {
 public:
  Fit(Plan& plan, const Shapes& shapes, const Schedule& order, const Schedule& schedule,
      std::vector<int32_t>& segments, Proof& proof, ModeLayout& layout)
      : plan_(plan),
        shapes_(shapes),
        order_(order),
        schedule_(schedule),
        segments_(segments),
        proof_(proof),
        layout_(layout),
        stages_of_(static_cast<size_t>(plan.positions())) {
    for (size_t s = 0; s < segments.size(); ++s)
      stages_of_[static_cast<size_t>(plan.position_of_stage[s])].push_back(s);
  }

  Status run() {
    const std::vector<int32_t> written =
        segments_;  // stages with an R in the schedule recompute in any case
    if (!over()) return {};
    WEFT_TRY(find_options(written));
    std::vector<std::vector<std::vector<int32_t>>> ways(stages_of_.size());
    for (size_t r = 0; r < ways.size(); ++r) {
      std::vector<std::vector<RecomputeOption>> options;
      for (size_t s : stages_of_[r]) options.push_back(options_[s]);
      if (!options.empty())
        ways[r] = ways_of(options, plan_.config.memory_limit - permanent_bytes(r));
    }
    std::vector<size_t> pick(ways.size(), 0);
    std::vector<int64_t> least(ways.size(), INT64_MAX);
    constexpr size_t kMostPicks = 256;
    for (;;) {
      for (size_t r = 0; r < ways.size(); ++r)
        for (size_t i = 0; i < stages_of_[r].size(); ++i)
          segments_[stages_of_[r][i]] = ways[r][pick[r]][i];
      WEFT_TRY(again());
      if (!over()) return {};
      for (size_t r = 0; r < ways.size(); ++r) {
        if (bytes(r) <= plan_.config.memory_limit) continue;
        least[r] = std::min(least[r], bytes(r));
        if (++pick[r] == std::min(ways[r].size(), kMostPicks))
          return Status(Code::invalid,
                        cat("rank ", fullest(r), " needs ", least[r],
                            " bytes with everything recomputed that can be, the limit is ",
                            plan_.config.memory_limit));
      }
    }
  }

 private:
  ModePlan& train() { return plan_.modes[static_cast<size_t>(Mode::train)]; }
  std::vector<size_t> ranks_at(size_t position) const {
    const auto first = static_cast<int32_t>(position);
    std::vector<size_t> out;
    for (int32_t d = 0; d < plan_.replicas_at(first); ++d)
      out.push_back(static_cast<size_t>(plan_.rank_at(first, d)));
    return out;
  }
  // For a position: the maximum over its ranks.
  int64_t permanent_bytes(size_t position) const {
    int64_t most = 0;
    for (size_t r : ranks_at(position)) most = std::max(most, plan_.permanent_bytes[r]);
    return most;
  }
  int64_t bytes_of(size_t rank) {
    return sum_of_bytes(plan_.permanent_bytes[rank], train().ranks[rank].bytes);
  }
  // The rank of a position with the most bytes, and the bytes.
  size_t fullest(size_t position) {
    size_t out = position;
    for (size_t r : ranks_at(position))
      if (bytes_of(r) > bytes_of(out)) out = r;
    return out;
  }
  int64_t bytes(size_t position) { return bytes_of(fullest(position)); }
  bool over() {
    bool out = false;
    for (size_t r = 0; r < stages_of_.size(); ++r)
      out = out || (plan_.config.memory_limit > 0 && bytes(r) > plan_.config.memory_limit);
    return out;
  }
  Status again() {
    train().schedule = schedule_;
    WEFT_TRY_ASSIGN(layout_, lay_out_mode(plan_, shapes_, order_, train(), segments_, proof_));
    return {};
  }

  // All lengths of short stages; of long ones, those a quarter apart.
  std::vector<int32_t> lengths() {
    std::vector<int32_t> calls(segments_.size(), 0);
    for (const StepCall& c : train().graph.calls)
      if (c.kind == CallKind::forward)
        ++calls[static_cast<size_t>(plan_.stage_of_node[static_cast<size_t>(c.where)])];
    std::vector<int32_t> out;
    for (int32_t length = 1; length < *std::max_element(calls.begin(), calls.end());
         length += std::max(1, length / 4))
      out.push_back(length);
    out.push_back(Recompute::kWhole);
    return out;
  }

  Status find_options(const std::vector<int32_t>& written) {
    const std::vector<NodeTimes> times =
        analysed_times(*plan_.model, plan_.config.micro_batch_size);
    options_.resize(segments_.size());
    for (size_t s = 0; s < options_.size(); ++s) options_[s].push_back(measured(s, written[s], 0));
    for (const int32_t length : lengths()) {
      const std::vector<StageWork> work = make_work(train().graph, plan_.stage_of_node, schedule_,
                                                    std::vector<int32_t>(segments_.size(), length));
      for (size_t j = 0, any = 1; any; ++j) {
        any = 0;
        segments_ = written;
        for (const auto& stages : stages_of_) {
          if (j >= stages.size()) continue;
          segments_[stages[j]] = length;
          any = 1;
        }
        if (any) WEFT_TRY(again());
        for (const auto& stages : stages_of_)
          if (j < stages.size() && written[stages[j]] == 0 &&
              !work[stages[j]].calls[kPhaseR].empty())
            options_[stages[j]].push_back(
                measured(stages[j], length, remade_seconds(work[stages[j]], times).total()));
      }
    }
    return {};
  }

  RecomputeOption measured(size_t stage, int32_t length, double seconds) {
    // Other replicas may have more micro-batches than the first.
    const size_t position = static_cast<size_t>(plan_.position_of_stage[stage]);
    const RankProgram& rank = train().ranks[fullest(position)];
    const int64_t scratch = rank.rings[kScratchRing].stride;
    return {
        .segment = length, .seconds = seconds, .kept = rank.bytes - scratch, .scratch = scratch};
  }

  Plan& plan_;
  const Shapes& shapes_;
  const Schedule &order_, &schedule_;
  std::vector<int32_t>& segments_;
  Proof& proof_;
  ModeLayout& layout_;
  std::vector<std::vector<size_t>> stages_of_;         // per position
  std::vector<std::vector<RecomputeOption>> options_;  // per stage
};

}  // namespace

Result<PlanLayout> lay_out_modes(Plan& plan, const Schedule& train) {
  WEFT_TRY(check_bytes(plan.permanent_bytes));
  PlanLayout out{.shapes = Shapes(*plan.model, plan.config), .modes = {}};
  WEFT_TRY_ASSIGN(const Recompute recompute, parse_recompute(plan.config.recompute));
  const Schedule segmented = with_segments(train, plan.segments, plan.config.shard_ranks);
  std::vector<int32_t> segments = segments_of(recompute, segmented);
  plan.arena_bytes = plan.permanent_bytes;
  Proof proof;
  for (ModePlan& mode : plan.modes) {
    if (!mode.present) continue;
    ModeLayout& layout = out.modes[static_cast<size_t>(mode.mode)];
    Schedule order = train;
    if (mode.mode != Mode::train) {
      WEFT_TRY_ASSIGN(order, make_forward(train, mode.schedule.micro_batches));
    }
    WEFT_TRY_ASSIGN(layout, lay_out_mode(plan, out.shapes, order, mode, segments, proof));
    if (mode.mode == Mode::train && recompute.kind == Recompute::Kind::fit)
      WEFT_TRY(Fit(plan, out.shapes, order, segmented, segments, proof, layout).run());
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
