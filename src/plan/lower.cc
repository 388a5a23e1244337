#include "plan/lower.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>

#include "plan/edges.h"

namespace weft {

namespace {

// First fit by lifetime: bytes that live from one call to another share one area.
class Packer {
 public:
  int64_t place(int64_t bytes, size_t first, size_t last) {
    bytes = align_up(bytes);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Block& b : blocks_)
      if (b.first <= last && first <= b.last) taken.push_back({b.offset, b.offset + b.bytes});
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (auto [begin, end] : taken) {
      if (at + bytes <= begin) break;
      at = std::max(at, end);
    }
    blocks_.push_back({at, bytes, first, last});
    size_ = std::max(size_, at + bytes);
    return at;
  }
  int64_t size() const { return size_; }

 private:
  struct Block {
    int64_t offset, bytes;
    size_t first, last;
  };
  std::vector<Block> blocks_;
  int64_t size_ = 0;
};

class RankLowering {
 public:
  RankLowering(const Plan& plan, ModePlan& mode, const StageTimes& times, int32_t rank)
      : plan_(plan), mode_(mode), times_(times), rank_(rank), place_(mode.graph.tensors.size()) {
    program_.rings.push_back({0, plan.permanent_bytes[static_cast<size_t>(rank)], 1});
    program_.rings.push_back({0, 0, 1});   // scratch, sized at the end
    program_.landing.resize(mode.edges.size());
    program_.outgoing.resize(mode.edges.size());
    for (size_t v = 0; v < 2; ++v)
      for (NodeId n = 0; n < static_cast<NodeId>(plan.model->nodes().size()); ++n)
        inferred_[v].push_back(plan.model->infer(n, plan.samples(static_cast<int32_t>(v))));
  }

  RankProgram run() {
    for (int32_t s = 0; s < plan_.stages(); ++s)
      if (plan_.rank_of_stage[static_cast<size_t>(s)] == rank_) lower_stage(s);
    place_sinks();
    place_ties();
    add_jobs();
    int64_t top = program_.rings[0].stride;
    for (size_t i = 1; i < program_.rings.size(); ++i) {
      program_.rings[i].base = top;
      top += program_.rings[i].stride * program_.rings[i].count;
    }
    program_.bytes = top - program_.rings[0].stride;
    return std::move(program_);
  }

 private:
  static constexpr int32_t kScratch = 1;

  struct PhaseCalls {
    std::vector<const StepCall*> calls;
    std::vector<int32_t> waits, posts, frees;
  };

  int64_t bytes_of(TensorId t) const { return static_cast<int64_t>(desc(t, 0).bytes()); }

  Desc desc(TensorId t, size_t variant) const {
    const StepTensor& tensor = mode_.graph.tensors[static_cast<size_t>(t)];
    const Inferred& made = inferred_[variant][static_cast<size_t>(tensor.node)];
    return tensor.role == StepTensor::Role::stash ? made.stash[static_cast<size_t>(tensor.index)] : made.out;
  }

  Place add_ring(int64_t stride, int32_t count) {
    program_.rings.push_back({0, align_up(stride), count});
    return {static_cast<int32_t>(program_.rings.size() - 1), 0};
  }

  int32_t cap(int32_t places) const { return std::clamp(places, 1, mode_.schedule.micro_batches); }
  const std::vector<int32_t>& when(int32_t stage, int32_t phase) const {
    return times_[static_cast<size_t>(stage)][static_cast<size_t>(phase)];
  }

  void lower_stage(int32_t stage) {
    const bool split = is_split(mode_.schedule, stage);
    touched_ = touches(plan_, mode_, stage);
    PhaseCalls phases[3];
    for (const StepCall& call : mode_.graph.calls)
      if (plan_.stage_of_node[static_cast<size_t>(call.where)] == stage)
        phases[call.kind == CallKind::forward ? kPhaseF : call.kind == CallKind::weight_grad && split ? kPhaseW : kPhaseI].calls.push_back(&call);
    place_landings(stage, phases);
    place_made(stage, phases);
    for (PhaseCalls& phase : phases) place_scratch(phase);

    auto add = [&](Kind kind, std::initializer_list<int32_t> which) {
      ActionProgram action{.stage = stage, .kind = kind, .calls = {}, .waits = {}, .posts = {}, .frees = {}};
      for (int32_t w : which) {
        const PhaseCalls& phase = phases[w];
        for (const StepCall* call : phase.calls) action.calls.push_back(lower_call(*call));
        action.waits.insert(action.waits.end(), phase.waits.begin(), phase.waits.end());
        action.posts.insert(action.posts.end(), phase.posts.begin(), phase.posts.end());
        action.frees.insert(action.frees.end(), phase.frees.begin(), phase.frees.end());
      }
      program_of_[{stage, kind}] = static_cast<int32_t>(program_.programs.size());
      program_.programs.push_back(std::move(action));
    };
    add(Kind::F, {kPhaseF});
    if (mode_.schedule.forward_only) return;
    if (split) {
      add(Kind::I, {kPhaseI});
      add(Kind::W, {kPhaseW});
      add(Kind::B, {kPhaseI, kPhaseW});
    } else {
      add(Kind::B, {kPhaseI});
    }
  }

  // What comes from elsewhere lies in a ring of its own. One place more than the program holds at once lets the next message land
  // while this rank computes.
  void place_landings(int32_t stage, PhaseCalls (&phases)[3]) {
    for (size_t i = 0; i < mode_.edges.size(); ++i) {
      Edge& e = mode_.edges[i];
      if (e.to_stage != stage || e.tensor < 0) continue;
      const Touch& touch = touched_[static_cast<size_t>(e.tensor)];
      e.landing_places = cap(places_needed(when(stage, touch.first), when(stage, touch.last)) + 1);
      place_[static_cast<size_t>(e.tensor)] = program_.landing[i] = add_ring(bytes_of(e.tensor), e.landing_places);
      phases[touch.first].waits.push_back(static_cast<int32_t>(i));
      phases[touch.last].frees.push_back(static_cast<int32_t>(i));
    }
  }

  // What is made here and sent, or kept to a later phase.
  void place_made(int32_t stage, PhaseCalls (&phases)[3]) {
    std::map<std::pair<int32_t, int32_t>, int32_t> frames;   // (first, last phase) -> ring
    for (size_t t = 0; t < touched_.size(); ++t) {
      const Touch& touch = touched_[t];
      if (!touch.made) continue;
      std::vector<int32_t> end = when(stage, touch.last);
      bool sent = false;
      for (size_t i = 0; i < mode_.edges.size(); ++i) {
        const Edge& e = mode_.edges[i];
        if (e.from_stage != stage || e.tensor != static_cast<TensorId>(t)) continue;
        sent = true;
        phases[touch.first].posts.push_back(static_cast<int32_t>(i));
        if (e.kind == EdgeKind::sink) continue;   // always room at the receiver
        const auto& used = when(e.to_stage, e.kind == EdgeKind::gradient ? kPhaseI : kPhaseF);
        for (size_t mb = 0; mb < end.size(); ++mb) end[mb] = std::max(end[mb], used[mb]);
      }
      if (sent) {
        const int32_t count = cap(places_needed(when(stage, touch.first), end));
        place_[t] = add_ring(bytes_of(static_cast<TensorId>(t)), count);
        for (size_t i = 0; i < mode_.edges.size(); ++i)
          if (mode_.edges[i].from_stage == stage && mode_.edges[i].tensor == static_cast<TensorId>(t)) {
            mode_.edges[i].out_places = count;
            program_.outgoing[i] = place_[t];
          }
      } else if (touch.first != touch.last) {
        auto [it, fresh] = frames.try_emplace({touch.first, touch.last}, -1);
        if (fresh) it->second = add_ring(0, cap(places_needed(when(stage, touch.first), when(stage, touch.last)))).ring;
        Ring& ring = program_.rings[static_cast<size_t>(it->second)];
        place_[t] = {it->second, ring.stride};
        ring.stride += align_up(bytes_of(static_cast<TensorId>(t)));
      } else {
        place_[t] = {};   // scratch, below
      }
    }
  }

  // What lives within one action, and the scratch of each call, packed by lifetime.
  void place_scratch(PhaseCalls& phase) {
    struct Life {
      size_t first, last;
    };
    std::map<TensorId, Life> lives;
    for (size_t c = 0; c < phase.calls.size(); ++c) {
      for (TensorId t : writes_of(*phase.calls[c]))
        if (!place_[static_cast<size_t>(t)]) lives[t] = {c, c};
      for (TensorId t : reads_of(*phase.calls[c]))
        if (auto it = lives.find(t); it != lives.end()) it->second.last = c;
    }
    Packer packer;
    for (auto& [t, life] : lives)
      place_[static_cast<size_t>(t)] = {kScratch, packer.place(bytes_of(t), life.first, life.last)};
    for (size_t c = 0; c < phase.calls.size(); ++c) {
      const StepCall& call = *phase.calls[c];
      const int64_t need = call.kind == CallKind::add ? 0 : static_cast<int64_t>(inferred_[0][static_cast<size_t>(call.node)].scratch);
      call_scratch_[&call] = need ? Place{kScratch, packer.place(need, c, c)} : Place{};
    }
    int64_t& size = program_.rings[kScratch].stride;
    size = std::max(size, align_up(packer.size()));
  }

  PlacedOperand operand(TensorId t) const {
    if (t < 0) return {};
    return {place_[static_cast<size_t>(t)], {desc(t, 0), desc(t, 1)}};
  }

  ProgramCall lower_call(const StepCall& call) {
    const Node& node = plan_.model->node(call.node);
    ProgramCall out{.kind = call.kind, .node = call.node, .weight = call.weight, .in = {}, .weights = {}, .stash = {}, .din = {},
                    .out = operand(call.out), .dout = operand(call.dout), .acc = {}, .scratch = call_scratch_[&call]};
    for (size_t i = 0; i < call.in.size(); ++i) {
      out.in.push_back(operand(call.in[i]));
      // A view that is not read still has its shape.
      if (call.in[i] < 0 && call.kind != CallKind::add)
        for (size_t v = 0; v < 2; ++v) out.in.back().desc[v] = inferred_[v][static_cast<size_t>(node.in[i])].out;
    }
    if (call.kind == CallKind::add) return out;
    for (size_t v = 0; v < 2; ++v) {
      if (call.out < 0) out.out.desc[v] = inferred_[v][static_cast<size_t>(call.node)].out;
      if (call.dout < 0) out.dout.desc[v] = inferred_[v][static_cast<size_t>(call.node)].out;
    }
    for (TensorId t : call.stash) out.stash.push_back(operand(t));
    for (size_t i = 0; i < call.din.size(); ++i) {
      out.din.push_back(operand(call.din[i]));
      for (size_t v = 0; v < 2; ++v) out.din.back().desc[v] = inferred_[v][static_cast<size_t>(node.in[i])].out;
    }
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
    return out;
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
    for (size_t i = 0; i < mode_.edges.size(); ++i) {
      Edge& e = mode_.edges[i];
      if (e.kind != EdgeKind::sink) continue;
      e.landing_places = mode_.schedule.micro_batches;
      program_.landing[i] = add_ring(static_cast<int64_t>(e.desc[0].bytes()), e.landing_places);
    }
  }

  void place_ties() {
    for (size_t i = 0; i < mode_.edges.size(); ++i) {
      const Edge& e = mode_.edges[i];
      if (e.param < 0 || (e.from_rank != rank_ && e.to_rank != rank_)) continue;
      const ResidentParam& resident = find_resident(e.param);
      Place place = resident.weight;
      if (e.kind == EdgeKind::tie_grad)
        for (const ResidentUse& use : resident.uses)
          if (use.use == e.use) place = use.acc;
      (e.from_rank == rank_ ? program_.outgoing : program_.landing)[i] = place;
    }
  }

  void add_jobs() {
    auto& jobs = program_.jobs;
    const bool train = mode_.mode == Mode::train;
    if (train) jobs.push_back({.kind = JobKind::clear});
    for (const Action& a : mode_.schedule.rows[static_cast<size_t>(rank_)])
      jobs.push_back({JobKind::action, program_of_.at({a.stage, a.kind}), a.micro_batch});
    if (train)
      for (JobKind kind : {JobKind::send_ties, JobKind::reduce, JobKind::update}) jobs.push_back({.kind = kind});
    jobs.push_back({.kind = JobKind::finish});
  }

  const Plan& plan_;
  ModePlan& mode_;
  const StageTimes& times_;
  const int32_t rank_;
  RankProgram program_;
  std::vector<Inferred> inferred_[2];
  std::vector<Place> place_;   // per tensor, of the stage at hand
  std::vector<Touch> touched_;
  std::map<const StepCall*, Place> call_scratch_;
  std::map<std::pair<int32_t, Kind>, int32_t> program_of_;
};

}  // namespace

void lower_mode(const Plan& plan, ModePlan& mode, const StageTimes& times) {
  mode.ranks.clear();
  for (int32_t r = 0; r < plan.config.ranks; ++r) mode.ranks.push_back(RankLowering(plan, mode, times, r).run());
}

}  // namespace weft
