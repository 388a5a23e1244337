#include "plan/lower.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>

#include "plan/edges.h"
#include "plan/packer.h"

namespace weft {

namespace {

class RankLowering {
 public:
  RankLowering(const Lowering& from, ModePlan& mode, int32_t rank) : from_(from), plan_(from.plan), mode_(mode), rank_(rank) {
    program_.rings.push_back({0, plan_.permanent_bytes[static_cast<size_t>(rank)], 1});
    program_.rings.push_back({0, 0, 1});  // scratch, sized at the end
    program_.edges = from.edges_of_rank[static_cast<size_t>(rank)];
  }

  RankProgram run() {
    const std::vector<int32_t>& stages = from_.stages_of_rank[static_cast<size_t>(rank_)];
    for (int32_t s : stages) place_landings(s);
    for (int32_t s : stages) place_made(s);
    for (int32_t s : stages) lower_stage(s);
    place_sinks();
    place_ties();
    add_jobs();
    int64_t top = program_.rings[0].stride;
    for (size_t i = 1; i < program_.rings.size(); ++i) {
      program_.rings[i].base = top;
      top = sum_of_bytes(top, bytes_of_many(program_.rings[i].stride, program_.rings[i].count));
    }
    program_.bytes = top - program_.rings[0].stride;
    return std::move(program_);
  }

 private:
  static constexpr int32_t kScratch = kScratchRing;

  // Where the tensors of a stage lie: as made or received first, and as made again.
  struct Placed {
    std::map<TensorId, Place> first, second;
  };

  int64_t bytes_of(TensorId t) const { return static_cast<int64_t>(desc(t, 0).bytes()); }
  Desc desc(TensorId t, size_t variant) const { return from_.shapes.desc(mode_.graph, t, variant); }
  const StageWork& work(int32_t stage) const { return from_.work[static_cast<size_t>(stage)]; }
  Placed& placed(int32_t stage) { return placed_[stage]; }

  Place add_ring(int64_t stride, int32_t count) {
    program_.rings.push_back({0, align_up(stride), count});
    return {static_cast<int32_t>(program_.rings.size() - 1), 0};
  }

  int32_t cap(int32_t places) const { return std::clamp(places, 1, mode_.schedule.micro_batches); }
  const std::vector<int32_t>& when(int32_t stage, int32_t phase) const {
    return (*from_.times)[static_cast<size_t>(stage)][static_cast<size_t>(phase)];
  }

  // What comes from another rank lies in a ring of its own. The places beyond those that the program holds at once let the next messages
  // land while this rank computes.
  void place_landings(int32_t stage) {
    for (int32_t i : from_.edges_into[static_cast<size_t>(stage)]) {
      Edge& e = mode_.edges[static_cast<size_t>(i)];
      const Life& life = work(stage).lives.at(e.tensor);
      // The checker takes every gradient to be held from I on, also one that W alone reads.
      const int32_t first = e.kind == EdgeKind::gradient ? kPhaseI : life.first;
      e.landing_places = cap(places_needed(when(stage, first), when(stage, life.last)) + plan_.config.slack);
      placed(stage).first[e.tensor] = e.landing = add_ring(bytes_of(e.tensor), e.landing_places);
    }
  }

  // What is made here and sent, kept to a later phase, or used by another stage of this rank.
  void place_made(int32_t stage) {
    std::map<std::pair<int32_t, int32_t>, int32_t> frames;  // (first, last phase) -> ring
    for (const auto& [t, life] : work(stage).lives)
      if (life.made && !place_shared(stage, t, life)) placed(stage).first[t] = place_kept(stage, t, life, frames);
    for (const auto& [t, life] : work(stage).remade) placed(stage).second[t] = place_kept(stage, t, life, frames);
  }

  // Empty for what lives within one phase: that goes into scratch.
  Place place_kept(int32_t stage, TensorId t, const Life& life, std::map<std::pair<int32_t, int32_t>, int32_t>& frames) {
    if (life.first == life.last) return {};
    auto [it, fresh] = frames.try_emplace({life.first, life.last}, -1);
    if (fresh) it->second = add_ring(0, cap(places_needed(when(stage, life.first), when(stage, life.last)))).ring;
    Ring& ring = program_.rings[static_cast<size_t>(it->second)];
    const Place place{it->second, ring.stride};
    ring.stride = sum_of_bytes(ring.stride, align_up(bytes_of(t)));
    return place;
  }

  // A tensor that other ranks or other stages of this rank use as well has a ring of its own; false if there is no such use.
  bool place_shared(int32_t stage, TensorId t, const Life& life) {
    std::vector<int32_t> end = when(stage, life.last);
    const auto last_until = [&end](const std::vector<int32_t>& used) {
      for (size_t mb = 0; mb < end.size(); ++mb) end[mb] = std::max(end[mb], used[mb]);
    };
    std::vector<int32_t> here;
    for (int32_t reader : from_.readers[static_cast<size_t>(t)])
      if (plan_.rank_of_stage[static_cast<size_t>(reader)] == rank_) {
        here.push_back(reader);
        last_until(when(reader, work(reader).lives.at(t).last));
      }
    const std::vector<int32_t>& sent = from_.edges_of_tensor[static_cast<size_t>(t)];
    if (sent.empty() && here.empty()) return false;
    for (int32_t i : sent) {
      const Edge& e = mode_.edges[static_cast<size_t>(i)];
      if (e.kind != EdgeKind::sink)  // which always has room at the receiver
        last_until(when(e.to_stage, work(e.to_stage).lives.at(t).first));
    }
    const int32_t count = cap(places_needed(when(stage, life.first), end));
    const Place place = add_ring(bytes_of(t), count);
    placed(stage).first[t] = place;
    for (int32_t reader : here) placed(reader).first[t] = place;
    for (int32_t i : sent) {
      mode_.edges[static_cast<size_t>(i)].out_places = count;
      mode_.edges[static_cast<size_t>(i)].outgoing = place;
    }
    return true;
  }

  void lower_stage(int32_t stage) {
    for (int32_t phase = 0; phase < kPhases; ++phase) place_scratch(stage, phase);
    auto add = [&](Kind kind, std::initializer_list<int32_t> phases) {
      ActionProgram action{.stage = stage, .kind = kind, .calls = {}, .waits = {}, .posts = {}, .frees = {}};
      for (int32_t phase : phases) {
        for (size_t c = 0; c < work(stage).calls[static_cast<size_t>(phase)].size(); ++c)
          action.calls.push_back(lower_call(stage, phase, c));
        for (int32_t i : from_.edges_into[static_cast<size_t>(stage)]) {
          const Life& life = work(stage).lives.at(mode_.edges[static_cast<size_t>(i)].tensor);
          if (life.first == phase) action.waits.push_back(i);
          if (life.last == phase) action.frees.push_back(i);
        }
        for (int32_t i : from_.edges_out_of[static_cast<size_t>(stage)])
          if (work(stage).lives.at(mode_.edges[static_cast<size_t>(i)].tensor).first == phase) action.posts.push_back(i);
      }
      program_of_[stage][static_cast<size_t>(kind)] = static_cast<int32_t>(program_.programs.size());
      program_.programs.push_back(std::move(action));
    };
    add(Kind::F, {kPhaseF});
    if (mode_.schedule.forward_only) return;
    if (mode_.schedule.updates > 0) add(Kind::O, {});  // the worker knows what an update is
    add(Kind::R, {kPhaseR});                           // a schedule may say R where there is nothing to make again
    if (work(stage).split) {
      add(Kind::I, {kPhaseI});
      add(Kind::W, {kPhaseW});
      add(Kind::B, {kPhaseI, kPhaseW});
    } else {
      add(Kind::B, {kPhaseI});
    }
  }

  // What lives within one phase, and the scratch of each call, packed by lifetime.
  void place_scratch(int32_t stage, int32_t phase) {
    struct Span {
      size_t first, last;
    };
    const auto& calls = work(stage).calls[static_cast<size_t>(phase)];
    std::map<std::pair<bool, TensorId>, Span> spans;
    for (size_t c = 0; c < calls.size(); ++c) {
      for (TensorId t : writes_of(*calls[c])) {
        const bool second = work(stage).second(phase, t, true);
        if (!place(stage, t, second)) spans[{second, t}] = {c, c};
      }
      for (TensorId t : reads_of(*calls[c]))
        if (auto it = spans.find({work(stage).second(phase, t, false), t}); it != spans.end()) it->second.last = c;
    }
    Packer packer;
    for (auto& [at, span] : spans) place(stage, at.second, at.first) = {kScratch, packer.place(bytes_of(at.second), span.first, span.last)};
    for (size_t c = 0; c < calls.size(); ++c) {
      const StepCall& call = *calls[c];
      const int64_t need = call.kind == CallKind::add ? 0 : static_cast<int64_t>(from_.shapes.of(call.node, 0).scratch);
      call_scratch_[{&call, phase}] = need ? Place{kScratch, packer.place(need, c, c)} : Place{};
    }
    int64_t& size = program_.rings[kScratch].stride;
    size = std::max(size, align_up(packer.size()));
  }

  Place& place(int32_t stage, TensorId t, bool second) { return (second ? placed(stage).second : placed(stage).first)[t]; }

  ProgramCall lower_call(int32_t stage, int32_t phase, size_t index) {
    const StepCall& call = *work(stage).calls[static_cast<size_t>(phase)][index];
    const auto operand = [&](TensorId t, bool written) -> PlacedOperand {
      if (t < 0) return {};
      return {place(stage, t, work(stage).second(phase, t, written)), {desc(t, 0), desc(t, 1)}};
    };
    const bool forward = call.kind == CallKind::forward, makes_out = forward || call.kind == CallKind::add;
    ProgramCall out{.kind = call.kind,
                    .node = call.node,
                    .weight = call.weight,
                    .in = {},
                    .weights = {},
                    .stash = {},
                    .din = {},
                    .out = operand(call.out, makes_out),
                    .dout = operand(call.dout, false),
                    .acc = {},
                    .scratch = call_scratch_.at({&call, phase})};
    for (TensorId t : call.in) out.in.push_back(operand(t, false));
    if (call.kind == CallKind::add) return out;
    for (TensorId t : call.stash) out.stash.push_back(operand(t, forward));
    for (TensorId t : call.din) out.din.push_back(operand(t, true));
    add_shapes(call, out);
    add_weights(call, out);
    return out;
  }

  // A view that is not read, or whose gradient is not wanted, still has its shape.
  void add_shapes(const StepCall& call, ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    for (size_t v = 0; v < 2; ++v) {
      for (size_t i = 0; i < call.in.size(); ++i)
        if (call.in[i] < 0) out.in[i].desc[v] = from_.shapes.of(node.in[i], v).out;
      for (size_t i = 0; i < call.din.size(); ++i) out.din[i].desc[v] = from_.shapes.of(node.in[i], v).out;
      if (call.out < 0) out.out.desc[v] = from_.shapes.of(call.node, v).out;
      if (call.dout < 0) out.dout.desc[v] = from_.shapes.of(call.node, v).out;
    }
  }

  void add_weights(const StepCall& call, ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    for (size_t w = 0; w < node.weights.size(); ++w) {
      const ResidentParam& resident = find_resident(node.weights[w]);
      const Desc weight{DType::f32, plan_.model->param(node.weights[w]).shape};
      out.weights.push_back({resident.weight, {weight, weight}});
      if (call.weight != static_cast<int32_t>(w)) continue;
      for (const ResidentUse& use : resident.uses) {
        const Param::Use& at = plan_.model->param(resident.param).uses[static_cast<size_t>(use.use)];
        if (at.node == call.node && at.port == call.weight) out.acc = {use.acc, {weight, weight}};
      }
    }
  }

  const ResidentParam& find_resident(ParamId p) const {
    const auto& list = plan_.resident[static_cast<size_t>(rank_)];
    auto it = std::lower_bound(list.begin(), list.end(), p, [](const ResidentParam& r, ParamId id) { return r.param < id; });
    assert(it != list.end() && it->param == p);
    return *it;
  }

  // The controller keeps what a step delivers until the step's end.
  void place_sinks() {
    if (rank_ != 0) return;
    for (int32_t i : program_.edges) {
      Edge& e = mode_.edges[static_cast<size_t>(i)];
      if (e.kind != EdgeKind::sink) continue;
      e.landing_places = mode_.schedule.micro_batches;
      e.landing = add_ring(static_cast<int64_t>(e.desc[0].bytes()), e.landing_places);
    }
  }

  void place_ties() {
    for (int32_t i : program_.edges) {
      Edge& e = mode_.edges[static_cast<size_t>(i)];
      if (e.param < 0) continue;
      const ResidentParam& resident = find_resident(e.param);
      Place place = resident.weight;
      if (e.kind == EdgeKind::tie_grad)
        for (const ResidentUse& use : resident.uses)
          if (use.use == e.use) place = use.acc;
      (e.from_rank == rank_ ? e.outgoing : e.landing) = place;
    }
  }

  void add_jobs() {
    auto& jobs = program_.jobs;
    const auto& row = mode_.schedule.rows[static_cast<size_t>(rank_)];
    jobs.reserve(row.size() + 5);
    const bool train = mode_.mode == Mode::train;
    if (train) jobs.push_back({.kind = JobKind::clear});
    for (const Action& a : row) jobs.push_back({JobKind::action, program_of_.at(a.stage)[static_cast<size_t>(a.kind)], a.micro_batch});
    if (train)
      for (JobKind kind : {JobKind::send_ties, JobKind::reduce, JobKind::update}) jobs.push_back({.kind = kind});
    jobs.push_back({.kind = JobKind::finish});
  }

  const Lowering& from_;
  const Plan& plan_;
  ModePlan& mode_;
  const int32_t rank_;
  RankProgram program_;
  std::map<int32_t, Placed> placed_;                                   // per stage of this rank
  std::map<std::pair<const StepCall*, int32_t>, Place> call_scratch_;  // per call and phase
  std::map<int32_t, std::array<int32_t, kKindCount>> program_of_;      // per stage and kind
};

}  // namespace

Shapes::Shapes(const Plan& plan) {
  for (NodeId n = 0; n < static_cast<NodeId>(plan.model->nodes().size()); ++n) {
    inferred_[0].push_back(plan.model->infer(n, plan.config.micro_batch_size));
    // Without a short micro-batch nothing asks for its shapes, and no op need have any for 0 samples.
    inferred_[1].push_back(plan.config.short_size > 0 ? plan.model->infer(n, plan.config.short_size) : inferred_[0].back());
  }
}

Desc Shapes::desc(const StepGraph& graph, TensorId t, size_t variant) const {
  const StepTensor& tensor = graph.tensors[static_cast<size_t>(t)];
  const Inferred& made = of(tensor.node, variant);
  return tensor.role == StepTensor::Role::stash ? made.stash[static_cast<size_t>(tensor.index)] : made.out;
}

Lowering::Lowering(const Plan& p, const Shapes& s, const ModePlan& mode, const std::vector<StageWork>& w)
    : plan(p),
      shapes(s),
      work(w),
      readers(readers_of(p, mode, w)),
      edges_of_tensor(mode.graph.tensors.size()),
      edges_into(w.size()),
      edges_out_of(w.size()),
      edges_of_rank(static_cast<size_t>(p.config.ranks)),
      stages_of_rank(edges_of_rank.size()) {
  for (int32_t stage = 0; stage < p.stages(); ++stage)
    stages_of_rank[static_cast<size_t>(p.rank_of_stage[static_cast<size_t>(stage)])].push_back(stage);
  for (size_t i = 0; i < mode.edges.size(); ++i) {
    const Edge& e = mode.edges[i];
    const int32_t id = static_cast<int32_t>(i);
    edges_of_rank[static_cast<size_t>(e.from_rank)].push_back(id);
    if (e.to_rank != e.from_rank) edges_of_rank[static_cast<size_t>(e.to_rank)].push_back(id);
    if (e.tensor < 0) continue;
    if (e.from_stage >= 0) edges_of_tensor[static_cast<size_t>(e.tensor)].push_back(id);
    if (e.from_stage >= 0) edges_out_of[static_cast<size_t>(e.from_stage)].push_back(id);
    if (e.to_stage >= 0) edges_into[static_cast<size_t>(e.to_stage)].push_back(id);
  }
}

void lower_rank(const Lowering& lowering, ModePlan& mode, int32_t rank) {
  mode.ranks[static_cast<size_t>(rank)] = RankLowering(lowering, mode, rank).run();
}

}  // namespace weft
