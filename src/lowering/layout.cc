#include "lowering/layout.h"

#include <algorithm>
#include <cassert>

#include "lowering/edges.h"
#include "lowering/parameters.h"
#include "lowering/units.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

class RankLayout {
 public:
  RankLayout(const Plan& plan, const GraphBytes& bytes, const StageTimes& times, ModePlan& mode,
             ModeLayout& layout, int32_t rank)
      : plan_(plan),
        bytes_(bytes),
        times_(times),
        mode_(mode),
        layout_(layout),
        crossings_(layout.crossings),
        rank_(rank),
        own_(plan.micro_batches_at(mode.mode, rank)),
        program_(mode.ranks[static_cast<size_t>(rank)]) {
    program_.rings = {{0, plan.permanent_bytes[static_cast<size_t>(rank)], 1}, {0, 0, 1}};
    program_.edges = crossings_.edges_of_rank[static_cast<size_t>(rank)];
  }

  void run() {
    const std::vector<int32_t>& stages =
        crossings_.stages_at[static_cast<size_t>(plan_.position_of(rank_))];
    std::vector<StageHoldings> held;
    for (int32_t s : stages) {
      const auto stage = static_cast<size_t>(s);
      held.push_back(holdings_of(layout_.work[stage], crossings_.traffic[stage], *plan_.model,
                                 mode_.graph, bytes_));
    }
    for (const bool made : {false, true})
      for (size_t i = 0; i < stages.size(); ++i)
        for (const Holding& holding : held[i].list)
          if (made ==
              (holding.kind == Holding::Kind::kept || holding.kind == Holding::Kind::shared))
            place(stages[i], holding);
    for (size_t i = 0; i < stages.size(); ++i) place_scratch(stages[i], held[i]);
    place_sinks();
    place_ties();
    place_gathers();
    int64_t top = program_.rings[0].stride;
    for (size_t i = 1; i < program_.rings.size(); ++i) {
      program_.rings[i].base = top;
      top = sum_of_bytes(top, bytes_of_many(program_.rings[i].stride, program_.rings[i].count));
    }
    program_.bytes = top - program_.rings[0].stride;
  }

 private:
  size_t cell(int32_t stage) const { return crossings_.cell(plan_.replica_of(rank_), stage); }
  StagePlaces& places(int32_t stage) { return layout_.places[cell(stage)]; }
  Edge& edge(int32_t id) { return mode_.edges[static_cast<size_t>(id)]; }

  Place add_ring(int64_t stride, int32_t count, int32_t turn) {
    program_.rings.push_back({.stride = stride, .count = count, .turn = turn});
    return {static_cast<int32_t>(program_.rings.size() - 1), 0};
  }

  int32_t stage_of(int32_t segment) const {
    return plan_.segments[static_cast<size_t>(segment)].stage;
  }
  int32_t slots(const Holding& holding, int32_t stage) const {
    std::vector<Holding::Reader> readers = holding.readers;
    for (Holding::Reader& reader : readers) reader.stage = stage_of(reader.stage);
    return slots_of(holding, stage_of(stage), readers, times_, plan_.config.slack, own_.stride);
  }

  void place(int32_t stage, const Holding& holding) {
    const bool overlaps = arrives_early(plan_.config, mode_.mode, holding.kind);
    const int32_t count = slots_in(slots(holding, stage), own_.count(), overlaps);
    const Place ring = add_ring(holding.bytes, count, own_.stride);
    program_.rings.back().shift = overlaps ? count / 2 : 0;
    for (const Holding::Tensor& t : holding.tensors)
      (t.again ? places(stage).again : places(stage).first)[t.id] = {ring.ring, t.offset};
    const TensorId tensor = holding.tensors.front().id;
    if (holding.kind == Holding::Kind::feed || holding.kind == Holding::Kind::landing) {
      for (int32_t i : crossings_.edges_into[cell(stage)]) {
        if (edge(i).tensor != tensor) continue;
        edge(i).landing = ring;
        edge(i).landing_slots = count;
        edge(i).open = std::min(own_.first + count * own_.stride, own_.end);
      }
    } else if (holding.kind == Holding::Kind::shared) {
      for (int32_t i : crossings_.edges_out_of[cell(stage)]) {
        if (edge(i).tensor != tensor) continue;
        edge(i).outgoing = ring;
        edge(i).out_slots = count;
      }
      for (const Holding::Reader& reader : holding.readers)
        if (plan_.position_of_stage[static_cast<size_t>(reader.stage)] == plan_.position_of(rank_))
          places(reader.stage).first[tensor] = ring;
    }
  }

  void place_scratch(int32_t stage, const StageHoldings& held) {
    for (const auto& [at, offset] : held.temporaries)
      (at.first ? places(stage).again : places(stage).first)[at.second] = {kScratchRing, offset};
    for (const auto& [at, offset] : held.call_scratch)
      places(stage).call_scratch[at] = {kScratchRing, offset};
    int64_t& size = program_.rings[kScratchRing].stride;
    size = std::max(size, held.scratch);
  }

  // The controller keeps the deliveries of a step until the end of the step.
  void place_sinks() {
    if (rank_ != 0) return;
    for (int32_t i : program_.edges) {
      if (edge(i).kind != EdgeKind::sink) continue;
      const MicroBatches& all = edge(i).micro_batches;
      edge(i).landing_slots = all.count();
      edge(i).open = all.end;
      edge(i).landing = add_ring(align_up(static_cast<int64_t>(edge(i).desc[0].bytes())),
                                 edge(i).landing_slots, all.stride);
    }
  }

  void place_ties() {
    for (int32_t i : program_.edges) {
      if (edge(i).param < 0 || (edge(i).kind == EdgeKind::gather && edge(i).to_rank == rank_))
        continue;
      const ResidentParam& resident = resident_of(plan_, rank_, edge(i).param);
      const auto sent = resident.of(ResidentTensor::Role::sent);
      Place place = sent.empty() ? resident.value() : sent.front().place;
      if (edge(i).kind == EdgeKind::tie_grad)
        place = accumulator_of(plan_, rank_, edge(i).param, edge(i).sum,
                               plan_.replica_of(edge(i).from_rank))
                    .place;
      if (edge(i).kind == EdgeKind::tie_sum) place = resident.gradient();
      (edge(i).from_rank == rank_ ? edge(i).outgoing : edge(i).landing) = place;
    }
  }

  void place_gathers() {
    GatherSlots slots;
    const Edge* before = nullptr;
    for (const int32_t i : program_.edges) {
      Edge& e = edge(i);
      if (e.kind != EdgeKind::gather || e.to_rank != rank_) continue;
      const bool same = before && before->to_stage == e.to_stage && before->action == e.action;
      if (!same) slots.begin_action();
      if (!same || before->unit != e.unit) slots.begin_unit();
      const auto [slot, offset] = slots.add(padded_bytes(e.desc[0]));
      e.landing = {static_cast<int32_t>(program_.rings.size()) + slot, offset};
      before = &e;
    }
    if (!before) return;
    for (const int64_t bytes : slots.bytes()) add_ring(bytes, 1, 1);
  }

  const Plan& plan_;
  const GraphBytes& bytes_;
  const StageTimes& times_;
  ModePlan& mode_;
  ModeLayout& layout_;
  const Crossings& crossings_;
  const int32_t rank_;
  const MicroBatches own_;
  RankProgram& program_;
};

}  // namespace

Crossings::Crossings(const Plan& plan, const ModePlan& mode, const std::vector<StageWork>& work)
    : traffic(work.size()),
      edges_into(work.size() * static_cast<size_t>(plan.most_replicas())),
      edges_out_of(edges_into.size()),
      edges_of_rank(static_cast<size_t>(plan.config.ranks)),
      stages_at(static_cast<size_t>(plan.positions())) {
  for (int32_t s = 0; s < plan.stages(); ++s)
    stages_at[static_cast<size_t>(plan.position_of_stage[static_cast<size_t>(s)])].push_back(s);
  const auto life = [&work](int32_t stage, TensorId t) -> const Life& {
    return work[static_cast<size_t>(stage)].lives.at(t);
  };
  const auto readers = readers_of(plan, mode, work);
  for (TensorId t = 0; t < static_cast<TensorId>(readers.size()); ++t) {
    const int32_t stage =
        plan.stage_of_node[static_cast<size_t>(mode.graph.tensors[static_cast<size_t>(t)].maker)];
    if (!work[static_cast<size_t>(stage)].lives.contains(t) || !life(stage, t).made)
      continue;  // a feed
    for (int32_t reader : readers[static_cast<size_t>(t)])
      if (plan.position_of_stage[static_cast<size_t>(reader)] ==
          plan.position_of_stage[static_cast<size_t>(stage)])
        traffic[static_cast<size_t>(stage)].shared[t].push_back({reader, life(reader, t).last});
  }
  for (size_t i = 0; i < mode.edges.size(); ++i) {
    const Edge& e = mode.edges[i];
    const int32_t id = static_cast<int32_t>(i);
    edges_of_rank[static_cast<size_t>(e.from_rank)].push_back(id);
    if (e.to_rank != e.from_rank) edges_of_rank[static_cast<size_t>(e.to_rank)].push_back(id);
    if (e.tensor < 0) continue;
    const int32_t from = e.from_stage >= 0 ? plan.replica_of(e.from_rank) : 0,
                  to = e.to_stage >= 0 ? plan.replica_of(e.to_rank) : 0;
    if (e.from_stage >= 0) edges_out_of[cell(from, e.from_stage)].push_back(id);
    if (e.to_stage >= 0) edges_into[cell(to, e.to_stage)].push_back(id);
    if (from > 0 || to > 0) continue;  // replicas are alike
    if (e.from_stage >= 0) {
      auto& readers_there = traffic[static_cast<size_t>(e.from_stage)].shared[e.tensor];
      // The controller always has memory for them.
      if (e.to_stage >= 0)
        readers_there.push_back({e.to_stage, e.kind == EdgeKind::gradient ? kPhaseI : kPhaseF});
    }
    if (e.to_stage >= 0) traffic[static_cast<size_t>(e.to_stage)].arrivals.push_back(e.tensor);
  }
}

ModeLayout lay_out(const Plan& plan, const Shapes& shapes, const StageTimes& times,
                   std::vector<StageWork> work, ModePlan& mode) {
  ModeLayout out{.work = std::move(work), .crossings = {}, .places = {}};
  out.crossings = Crossings(plan, mode, out.work);
  out.places.resize(out.crossings.edges_into.size());
  mode.ranks.assign(static_cast<size_t>(plan.config.ranks), {});
  const GraphBytes bytes = shapes.bytes(mode.graph);
  for (int32_t r = 0; r < plan.config.ranks; ++r)
    RankLayout(plan, bytes, times, mode, out, r).run();
  return out;
}

}  // namespace weft
