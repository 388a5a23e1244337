#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lowering/parameters.h"
#include "lowering/units.h"

namespace weft {

namespace {

// The calls that add to an accumulator, of a micro-batch: the first and the last.
struct SumEnds {
  const StepCall *first, *last;
};
using EndsOfSums = std::map<std::pair<ParamId, int32_t>, SumEnds>;

// Of sums of several uses. All ranks add to them in the order of the step graph.
EndsOfSums ends_of_sums(const Model& model, const StepGraph& graph) {
  EndsOfSums out;
  for (const StepCall& call : graph.calls) {
    if (call.kind != CallKind::weight_grad) continue;
    const ParamId id = model.node(call.node).weights[static_cast<size_t>(call.weight)];
    const Param& param = model.param(id);
    if (!param.shares) continue;
    out.try_emplace({id, param.sum_of(call.node, call.weight)}, SumEnds{&call, &call})
        .first->second.last = &call;
  }
  return out;
}

class RankWriter {
 public:
  RankWriter(const Plan& plan, const Shapes& shapes, const ModeLayout& layout,
             const EndsOfSums& ends, ModePlan& mode, int32_t rank)
      : plan_(plan),
        shapes_(shapes),
        layout_(layout),
        crossings_(layout.crossings),
        ends_(ends),
        mode_(mode),
        rank_(rank),
        program_(mode.ranks[static_cast<size_t>(rank)]) {}

  void run() {
    for (const int32_t i : program_.edges) {
      const Edge& e = edge(i);
      if (e.kind != EdgeKind::gather || e.to_rank != rank_) continue;
      gathers_[{e.to_stage, e.action, e.unit}].push_back(i);
      first_slot_ = static_cast<int32_t>(program_.rings.size()) - kGatherSlots;
    }
    for (int32_t s : crossings_.stages_at[static_cast<size_t>(plan_.position_of(rank_))])
      write_stage(s);
    if (mode_.mode == Mode::train) add_reduction();
    add_jobs();
  }

 private:
  Desc desc(TensorId t, size_t variant) const { return shapes_.desc(mode_.graph, t, variant); }
  const Edge& edge(int32_t id) const { return mode_.edges[static_cast<size_t>(id)]; }
  size_t cell(int32_t stage) const { return crossings_.cell(plan_.replica_of(rank_), stage); }
  const StageWork& work(int32_t stage) const { return layout_.work[static_cast<size_t>(stage)]; }
  Place place(int32_t stage, TensorId t, bool again) const {
    const StagePlaces& places = layout_.places[cell(stage)];
    return (again ? places.again : places.first).at(t);
  }

  void write_stage(int32_t stage) {
    write_action(stage, Kind::F);
    if (mode_.schedule.forward_only) return;
    if (mode_.schedule.updates > 0) {
      write_action(stage, Kind::O);  // the worker implements the update
      add_ties(program_.programs.back());
    }
    // A schedule may have an R for a stage that recomputes nothing.
    write_action(stage, Kind::R);
    if (work(stage).split)
      for (const Kind kind : {Kind::I, Kind::W}) write_action(stage, kind);
    write_action(stage, Kind::B);
  }

  // One program per unit. The first waits for the inputs of the action, the last releases them.
  void write_action(int32_t stage, Kind kind) {
    const size_t first = program_.programs.size();
    const auto units = units_of(plan_, work(stage), kind);
    for (size_t u = 0; u < units.size(); ++u) {
      program_.programs.push_back({.stage = plan_.segments[static_cast<size_t>(stage)].stage,
                                   .kind = kind,
                                   .calls = {},
                                   .waits = {},
                                   .posts = posts_of(stage, units[u]),
                                   .frees = {},
                                   .sums = {},
                                   .buckets = {},
                                   .gathers = {}});
      ActionProgram& action = program_.programs.back();
      if (const auto at = gathers_.find({stage, kind, static_cast<int32_t>(u)});
          at != gathers_.end()) {
        action.gathers = at->second;
        action.slot = edge(at->second.front()).landing.ring - first_slot_;
      }
      for (const UnitCall& call : units[u]) {
        action.calls.push_back(write_call(stage, call.phase, call.index, action.gathers));
        if (const int32_t run = run_of(action.calls.back()); run >= 0) action.run = run;
      }
    }
    for (const int32_t phase : phases_of(kind))
      for (const int32_t i : crossings_.edges_into[cell(stage)]) {
        const Life& life = work(stage).lives.at(edge(i).tensor);
        if (life.first == phase) program_.programs[first].waits.push_back(i);
        if (life.last == phase) program_.programs.back().frees.push_back(i);
      }
    programs_of_[stage][static_cast<size_t>(kind)] = {
        static_cast<int32_t>(first), static_cast<int32_t>(program_.programs.size())};
  }

  // The edges of the tensors that the unit makes, without recomputed ones.
  std::vector<int32_t> posts_of(int32_t stage, const std::vector<UnitCall>& unit) const {
    std::set<TensorId> made;
    for (const UnitCall& at : unit)
      each_written(*work(stage).calls[static_cast<size_t>(at.phase)][at.index], [&](TensorId t) {
        if (const auto life = work(stage).lives.find(t);
            life != work(stage).lives.end() && life->second.first == at.phase)
          made.insert(t);
      });
    std::vector<int32_t> out;
    for (const int32_t i : crossings_.edges_out_of[cell(stage)])
      if (made.contains(edge(i).tensor)) out.push_back(i);
    return out;
  }

  // `gathers`: those of its unit.
  ProgramCall write_call(int32_t stage, int32_t phase, size_t index,
                         const std::vector<int32_t>& gathers) {
    const StepCall& call = *work(stage).calls[static_cast<size_t>(phase)][index];
    const auto& scratches = layout_.places[cell(stage)].call_scratch;
    const auto scratch = scratches.find({&call, phase});
    int64_t copies = shapes_.op_scratch(call) + shapes_.packed_scratch(call);
    const auto operand = [&](TensorId t, bool written) -> PlacedOperand {
      if (t < 0) return {};
      PlacedOperand o{place(stage, t, work(stage).second(phase, t, written)),
                      {desc(t, 0), desc(t, 1)}};
      if (const int64_t bytes = shapes_.bytes_of_copy(mode_.graph, call, o.desc[0], written);
          bytes > 0) {
        o.converted = scratch->second;
        o.converted.offset += copies;
        copies += bytes;
      }
      return o;
    };
    const bool makes = makes_output(call.kind);
    ProgramCall out{.kind = call.kind,
                    .node = call.node,
                    .weight = call.weight,
                    .in = {},
                    .weights = {},
                    .stash = {},
                    .din = {},
                    .out = operand(call.out, makes),
                    .dout = operand(call.dout, false),
                    .acc = {},
                    .state = {},
                    .packed = {},
                    .opens = true,
                    .closes = true,
                    .clears = false,
                    .blocks = shapes_.row_blocks(mode_.graph, call),
                    .scratch = {}};
    if (scratch != scratches.end()) out.scratch = scratch->second;
    for (TensorId t : call.in) out.in.push_back(operand(t, false));
    if (folds(call.kind)) return out;
    for (TensorId t : call.stash) out.stash.push_back(operand(t, makes));
    for (TensorId t : call.din) out.din.push_back(operand(t, true));
    add_shapes(call, out);
    add_weights(call, gathers, out);
    for (const ResidentState& state : plan_.states[static_cast<size_t>(rank_)])
      if (state.node == call.node && call.kind == CallKind::forward)
        out.state.push_back({state.place, {state.desc, state.desc}});
    add_packed(call, out);
    return out;
  }

  void add_packed(const StepCall& call, ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    if (call.kind == CallKind::weight_grad || !node.op->multiplies_weight()) return;
    const bool transposed = multiplies_transposed(node, call.kind);
    const ResidentParam& resident = resident_of(plan_, rank_, node.weights.front());
    const DType dtype = node.stored_as(plan_.config.values());
    for (const ResidentTensor& t : resident.of(ResidentTensor::Role::packed))
      if (t.transposed == transposed && t.desc.dtype == dtype)
        out.packed = {.place = t.place,
                      .transposed = transposed,
                      .kept = true,
                      .only = resident.only_packed(),
                      .dtype = dtype};
    if (shapes_.packed_scratch(call) == 0) return;
    out.packed = {.place = out.scratch, .transposed = transposed, .dtype = dtype};
    out.packed.place.offset += shapes_.op_scratch(call);
  }

  // A view that is not read, or whose gradient is not needed, still has its shape.
  void add_shapes(const StepCall& call, ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    for (size_t v = 0; v < 2; ++v) {
      for (size_t i = 0; i < call.in.size(); ++i)
        if (call.in[i] < 0) out.in[i].desc[v] = shapes_.of(node.in[i], v).out;
      for (size_t i = 0; i < call.din.size(); ++i)
        if (call.din[i] < 0) out.din[i].desc[v] = shapes_.of(node.in[i], v).out;
      if (call.out < 0) out.out.desc[v] = shapes_.of(call.node, v).out;
      if (call.dout < 0) out.dout.desc[v] = shapes_.of(call.node, v).out;
    }
  }

  // A value that is neither on this rank nor gathered is not read.
  Place value_of(const ResidentParam& resident, const std::vector<int32_t>& gathers) const {
    for (const int32_t i : gathers)
      if (edge(i).param == resident.param) return edge(i).landing;
    return resident.value();
  }

  void add_weights(const StepCall& call, const std::vector<int32_t>& gathers,
                   ProgramCall& out) const {
    const Node& node = plan_.model->node(call.node);
    for (size_t w = 0; w < node.weights.size(); ++w) {
      const ResidentParam& resident = resident_of(plan_, rank_, node.weights[w]);
      const Desc weight{resident.dtype, plan_.model->param(node.weights[w]).local};
      out.weights.push_back({value_of(resident, gathers), {weight, weight}});
      if (call.weight != static_cast<int32_t>(w)) continue;
      const ResidentTensor& t = sum_of(call.node, call.weight);
      out.acc = {t.place, {t.desc, t.desc}};
      out.clears = t.run >= 0;
      if (const auto ends = ends_.find({resident.param, t.sum}); ends != ends_.end()) {
        out.opens = ends->second.first == &call;
        out.closes = ends->second.last == &call;
      }
    }
  }

  // The accumulator of a use on this rank.
  const ResidentTensor& sum_of(NodeId node, int32_t weight) const {
    const ParamId param = plan_.model->node(node).weights[static_cast<size_t>(weight)];
    return accumulator_of(plan_, rank_, param, plan_.model->param(param).sum_of(node, weight),
                          plan_.replica_of(rank_));
  }

  int32_t run_of(const ProgramCall& call) const {
    return call.kind == CallKind::weight_grad ? sum_of(call.node, call.weight).run : -1;
  }

  using ProgramsOfSums = std::map<std::pair<ParamId, int32_t>, std::vector<size_t>>;

  // Where each sum is complete: its last micro-batch runs one of these programs.
  ProgramsOfSums programs_of_sums() const {
    ProgramsOfSums out;
    for (size_t i = 0; i < program_.programs.size(); ++i)
      for (const ProgramCall& call : program_.programs[i].calls) {
        if (call.kind != CallKind::weight_grad || !call.closes) continue;
        const Node& node = plan_.model->node(call.node);
        const ParamId param = node.weights[static_cast<size_t>(call.weight)];
        out[{param, plan_.model->param(param).sum_of(call.node, call.weight)}].push_back(i);
      }
    return out;
  }

  // The owned parameters whose gradients are complete in the same unit of the backward are a
  // bucket, and so are the owned gradients of a run.
  void add_reduction() {
    const auto programs = programs_of_sums();
    std::map<std::pair<bool, size_t>, int32_t> known;  // by run, or by unit
    for (const ResidentParam& p : plan_.resident[static_cast<size_t>(rank_)]) {
      const auto accumulators = p.of(ResidentTensor::Role::accumulator);
      if (!p.owned || accumulators.empty()) continue;
      const int32_t sums = accumulators.back().sum + 1;
      if (accumulators.front().run < 0) {
        add_part(known[{false, last_unit_of(p, programs)}], {p.param, 0, sums});
        continue;
      }
      for (int32_t sum = 0; sum < sums; ++sum) {
        const int32_t run = accumulator_of(plan_, rank_, p.param, sum, plan_.replica_of(rank_)).run;
        int32_t& bucket = known[{true, static_cast<size_t>(run)}];
        add_part(bucket, {p.param, sum, sum + 1});
        run_at(run).bucket = bucket - 1;
      }
    }
    if (program_.buckets.empty()) program_.buckets.emplace_back();
    for (const auto& [sum, units] : programs) {
      const auto at = bucket_of_.find(sum);
      if (at == bucket_of_.end()) continue;
      ++program_.buckets[static_cast<size_t>(at->second)].sums;
      for (const size_t unit : units) program_.programs[unit].buckets.push_back(at->second);
    }
    for (const int32_t i : program_.edges) add_sum(i, programs);
  }

  size_t last_unit_of(const ResidentParam& p, const ProgramsOfSums& programs) const {
    size_t unit = 0;
    if (plan_.config.data == 1) return unit;
    for (const ResidentTensor& t : p.of(ResidentTensor::Role::accumulator))
      if (const auto at = programs.find({p.param, t.sum}); t.local && at != programs.end())
        unit = std::max(unit, at->second.back());
    return unit;
  }

  // `number`: of the bucket, from 1; 0: a new one.
  void add_part(int32_t& number, const Bucket::Part& part) {
    if (number == 0) {
      program_.buckets.emplace_back();
      number = static_cast<int32_t>(program_.buckets.size());
    }
    auto& parts = program_.buckets[static_cast<size_t>(number) - 1].parts;
    if (!parts.empty() && parts.back().param == part.param)
      parts.back().end = part.end;
    else
      parts.push_back(part);
    for (int32_t sum = part.first; sum < part.end; ++sum)
      bucket_of_[{part.param, sum}] = number - 1;
  }

  AccumulatorRun& run_at(int32_t run) {
    const auto at = static_cast<size_t>(run);
    if (program_.runs.size() <= at) program_.runs.resize(at + 1);
    return program_.runs[at];
  }

  // What an edge of gradients leaves with, or what waits for it.
  void add_sum(int32_t id, const ProgramsOfSums& programs) {
    const Edge& e = edge(id);
    if (e.kind == EdgeKind::tie_sum && e.from_rank == rank_)
      program_.buckets[static_cast<size_t>(bucket_of_.at({e.param, 0}))].posts.push_back(id);
    if (e.kind != EdgeKind::tie_grad) return;
    const int32_t run =
        accumulator_of(plan_, rank_, e.param, e.sum, plan_.replica_of(e.from_rank)).run;
    if (e.from_rank == rank_) {
      if (const auto in = programs.find({e.param, e.sum}); in != programs.end())
        for (const size_t unit : in->second) program_.programs[unit].sums.push_back(id);
      if (run >= 0) run_at(run).sends.push_back(id);
      return;
    }
    program_.buckets[static_cast<size_t>(bucket_of_.at({e.param, e.sum}))].waits.push_back(id);
    if (run >= kRunSlots) run_at(run - kRunSlots).grants.push_back(id);
  }

  void add_jobs() {
    auto& jobs = program_.jobs;
    const MicroBatches own = plan_.micro_batches_at(mode_.mode, rank_);
    // All replicas have the same row, unless each has its own.
    const int32_t first = plan_.stage_replicas.empty() ? own.first : 0;
    const auto& row = mode_.schedule.rows[static_cast<size_t>(plan_.row_of(rank_))];
    jobs.reserve(row.size() + 5);
    const bool train = mode_.mode == Mode::train;
    if (train) jobs.push_back({.kind = JobKind::clear});
    for (const Action& a : row) {
      const auto [begin_of, end_of] = programs_of_.at(a.stage)[static_cast<size_t>(a.kind)];
      if (a.kind == Kind::O)
        add_update(begin_of, a.micro_batch);
      else if (first + a.micro_batch < own.end)  // other replicas can have more
        for (int32_t program = begin_of; program < end_of; ++program)
          jobs.push_back({JobKind::action, program, first + a.micro_batch});
      if (a.kind == Kind::B || a.kind == Kind::W) send_sums_after(a);
    }
    if (mode_.schedule.updates == 0 && plan_.config.gradient_groups == plan_.config.data)
      join_weight_jobs();
    if (train) {
      jobs.push_back({.kind = JobKind::send_ties});
      for (size_t b = 0; b < program_.buckets.size(); ++b)
        jobs.push_back({.kind = JobKind::reduce, .program = static_cast<int32_t>(b)});
      jobs.push_back({.kind = JobKind::update});
    }
    jobs.push_back({.kind = JobKind::finish});
  }

  // A W that needs nothing but what its rank has, and adds each of its sums once.
  bool can_join(const Job& job) const {
    if (job.kind != JobKind::action) return false;
    const ActionProgram& action = program_.programs[static_cast<size_t>(job.program)];
    return action.kind == Kind::W && action.waits.empty() && action.posts.empty() &&
           action.gathers.empty() && action.run < 0 &&
           std::all_of(action.calls.begin(), action.calls.end(), [](const ProgramCall& call) {
             return call.kind == CallKind::weight_grad && call.opens && call.closes;
           });
  }

  void join_weight_jobs() {
    auto& jobs = program_.jobs;
    for (size_t i = 0; i < jobs.size();) {
      size_t end = i + 1;
      while (end < jobs.size() && end - i < kMostTogether && can_join(jobs[i]) &&
             jobs[end].kind == JobKind::action && jobs[end].program == jobs[i].program)
        jobs[end++].together = 0;
      jobs[i].together = static_cast<int32_t>(end - i);
      i = end;
    }
  }

  // With an asynchronous schedule, ranks send their sums to the owners of the parameters as soon as
  // an update has all of them.
  void send_sums_after(const Action& a) {
    const Schedule& schedule = mode_.schedule;
    if (schedule.updates == 0 || !sends_sums()) return;
    const int32_t update = schedule.update_of(a.stage, a.micro_batch);
    if (schedule.last_of(a.stage, update, plan_.replica_of(rank_)) != a.micro_batch) return;
    const int32_t program = programs_of_.at(a.stage)[static_cast<size_t>(Kind::O)].first;
    program_.jobs.push_back({JobKind::send_ties, program, update});
  }

  bool sends_sums() const {
    return std::any_of(program_.edges.begin(), program_.edges.end(), [this](int32_t id) {
      return edge(id).kind == EdgeKind::tie_grad && edge(id).from_rank == rank_;
    });
  }

  void add_update(int32_t program, int32_t update) {
    auto& jobs = program_.jobs;
    jobs.push_back({JobKind::action, program, update});
    jobs.push_back({JobKind::clear, program, update + 1});
  }

  // The edges that an update waits for, whose slots it then releases, and those that it posts.
  void add_ties(ActionProgram& update) const {
    for (int32_t i : program_.edges) {
      if (edge(i).kind == EdgeKind::tie_grad && edge(i).to_rank == rank_) {
        update.waits.push_back(i);
        update.frees.push_back(i);
      }
      if (edge(i).kind == EdgeKind::tie_value && edge(i).from_rank == rank_)
        update.posts.push_back(i);
    }
  }

  const Plan& plan_;
  const Shapes& shapes_;
  const ModeLayout& layout_;
  const Crossings& crossings_;
  const EndsOfSums& ends_;
  ModePlan& mode_;
  const int32_t rank_;
  RankProgram& program_;
  std::map<std::tuple<int32_t, Kind, int32_t>, std::vector<int32_t>>
      gathers_;                                               // edges, per stage, kind and unit
  std::map<std::pair<ParamId, int32_t>, int32_t> bucket_of_;  // per owned parameter and sum
  int32_t first_slot_ = 0;                                    // their rings
  // Per stage and kind: the units of the action, the first and the end.
  std::map<int32_t, std::array<std::pair<int32_t, int32_t>, kKindCount>> programs_of_;
};

}  // namespace

void write_programs(const Plan& plan, const Shapes& shapes, const ModeLayout& layout,
                    ModePlan& mode) {
  const EndsOfSums ends = ends_of_sums(*plan.model, mode.graph);
  for (int32_t r = 0; r < plan.config.ranks; ++r)
    RankWriter(plan, shapes, layout, ends, mode, r).run();
}

}  // namespace weft
