#include "lowering/lower.h"
#include "lowering/parameters.h"

#include <map>

namespace weft {

namespace {

class RankWriter {
 public:
  RankWriter(const Plan& plan, const Shapes& shapes, const ModeLayout& layout, ModePlan& mode,
             int32_t rank)
      : plan_(plan),
        shapes_(shapes),
        layout_(layout),
        crossings_(layout.crossings),
        mode_(mode),
        rank_(rank),
        program_(mode.ranks[static_cast<size_t>(rank)]) {}

  void run() {
    for (int32_t s : crossings_.stages_of_rank[static_cast<size_t>(plan_.position_of(rank_))])
      write_stage(s);
    add_jobs();
  }

 private:
  Desc desc(TensorId t, size_t variant) const { return shapes_.desc(mode_.graph, t, variant); }
  size_t cell(int32_t stage) const { return crossings_.cell(plan_.replica_of(rank_), stage); }
  const StageWork& work(int32_t stage) const { return layout_.work[static_cast<size_t>(stage)]; }
  Place place(int32_t stage, TensorId t, bool again) const {
    const StagePlaces& places = layout_.places[cell(stage)];
    return (again ? places.again : places.first).at(t);
  }

  void write_stage(int32_t stage) {
    auto add = [&](Kind kind, std::initializer_list<int32_t> phases) {
      ActionProgram action{.stage = plan_.segments[static_cast<size_t>(stage)].stage,
                           .kind = kind,
                           .calls = {},
                           .waits = {},
                           .posts = {},
                           .frees = {}};
      for (int32_t phase : phases) {
        for (size_t c = 0; c < work(stage).calls[static_cast<size_t>(phase)].size(); ++c)
          action.calls.push_back(write_call(stage, phase, c));
        for (int32_t i : crossings_.edges_into[cell(stage)]) {
          const Life& life = work(stage).lives.at(mode_.edges[static_cast<size_t>(i)].tensor);
          if (life.first == phase) action.waits.push_back(i);
          if (life.last == phase) action.frees.push_back(i);
        }
        for (int32_t i : crossings_.edges_out_of[cell(stage)])
          if (work(stage).lives.at(mode_.edges[static_cast<size_t>(i)].tensor).first == phase)
            action.posts.push_back(i);
      }
      program_of_[stage][static_cast<size_t>(kind)] =
          static_cast<int32_t>(program_.programs.size());
      program_.programs.push_back(std::move(action));
    };
    add(Kind::F, {kPhaseF});
    if (mode_.schedule.forward_only) return;
    if (mode_.schedule.updates > 0) add(Kind::O, {});  // the worker knows what an update is
    add(Kind::R, {kPhaseR});  // a schedule may say R where there is nothing to make again
    if (work(stage).split) {
      add(Kind::I, {kPhaseI});
      add(Kind::W, {kPhaseW});
      add(Kind::B, {kPhaseI, kPhaseW});
    } else {
      add(Kind::B, {kPhaseI});
    }
  }

  ProgramCall write_call(int32_t stage, int32_t phase, size_t index) {
    const StepCall& call = *work(stage).calls[static_cast<size_t>(phase)][index];
    const auto operand = [&](TensorId t, bool written) -> PlacedOperand {
      if (t < 0) return {};
      return {place(stage, t, work(stage).second(phase, t, written)), {desc(t, 0), desc(t, 1)}};
    };
    const bool forward = call.kind == CallKind::forward, makes_out = forward || folds(call.kind);
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
                    .scratch = {}};
    const auto& scratch = layout_.places[cell(stage)].call_scratch;
    if (const auto at = scratch.find({&call, phase}); at != scratch.end()) out.scratch = at->second;
    for (TensorId t : call.in) out.in.push_back(operand(t, false));
    if (folds(call.kind)) return out;
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
        if (call.in[i] < 0) out.in[i].desc[v] = shapes_.of(node.in[i], v).out;
      for (size_t i = 0; i < call.din.size(); ++i)
        out.din[i].desc[v] = shapes_.of(node.in[i], v).out;
      if (call.out < 0) out.out.desc[v] = shapes_.of(call.node, v).out;
      if (call.dout < 0) out.dout.desc[v] = shapes_.of(call.node, v).out;
    }
  }

  void add_weights(const StepCall& call, ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    for (size_t w = 0; w < node.weights.size(); ++w) {
      const ResidentParam& resident = resident_of(plan_, rank_, node.weights[w]);
      const Desc weight = plan_.model->param(node.weights[w]).desc();
      out.weights.push_back({resident.value(), {weight, weight}});
      if (call.weight != static_cast<int32_t>(w)) continue;
      for (const ResidentTensor& t : resident.of(ResidentTensor::Role::accumulator)) {
        const Param::Use& at = plan_.model->param(resident.param).uses[static_cast<size_t>(t.use)];
        if (t.local && at.node == call.node && at.port == call.weight)
          out.acc = {t.place, {t.desc, t.desc}};
      }
    }
  }

  void add_jobs() {
    auto& jobs = program_.jobs;
    const int32_t replica = plan_.replica_of(rank_),
                  first = plan_.first_micro_batch(mode_.mode, replica),
                  end = plan_.first_micro_batch(mode_.mode, replica + 1);
    const auto& row = mode_.schedule.rows[static_cast<size_t>(plan_.position_of(rank_))];
    jobs.reserve(row.size() + 5);
    const bool train = mode_.mode == Mode::train;
    if (train) jobs.push_back({.kind = JobKind::clear});
    for (const Action& a : row)
      if (first + a.micro_batch < end)  // other replicas may have more
        jobs.push_back({JobKind::action, program_of_.at(a.stage)[static_cast<size_t>(a.kind)],
                        first + a.micro_batch});
    if (train)
      for (JobKind kind : {JobKind::send_ties, JobKind::reduce, JobKind::update})
        jobs.push_back({.kind = kind});
    jobs.push_back({.kind = JobKind::finish});
  }

  const Plan& plan_;
  const Shapes& shapes_;
  const ModeLayout& layout_;
  const Crossings& crossings_;
  ModePlan& mode_;
  const int32_t rank_;
  RankProgram& program_;
  std::map<int32_t, std::array<int32_t, kKindCount>> program_of_;  // per stage and kind
};

}  // namespace

void write_programs(const Plan& plan, const Shapes& shapes, const ModeLayout& layout,
                    ModePlan& mode) {
  for (int32_t r = 0; r < plan.config.ranks; ++r) RankWriter(plan, shapes, layout, mode, r).run();
}

}  // namespace weft
