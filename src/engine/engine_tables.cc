// The tables that an engine makes from its plan before the first step: edges, actions, buckets.
#include <algorithm>
#include <numeric>
#include <set>

#include "engine/engine.h"
#include "engine/steps.h"

namespace weft {

Engine::Engine(std::shared_ptr<const Plan> plan, int32_t rank)
    : plan_(std::move(plan)), rank_(rank) {
  make_ports();
  marks_.resize(ports_.size() * ((static_cast<size_t>(plan_->most_micro_batches()) + 63) / 64));
  for (const ModePlan& mode : plan_->modes)
    if (mode.present) make_table(mode);
  const ModePlan& train = plan_->mode(Mode::train);
  if (!train.present) return;
  for (int32_t id : train.ranks[static_cast<size_t>(rank_)].edges) {
    const Edge& e = train.edges[static_cast<size_t>(id)];
    if (e.kind == EdgeKind::tie_grad && e.from_rank == rank_) tie_out_.push_back(id);
    if (e.kind == EdgeKind::tie_sum && e.to_rank == rank_) sum_in_.push_back(id);
    if (e.kind == EdgeKind::tie_value && e.from_rank == rank_) value_out_.push_back(id);
    if (e.kind == EdgeKind::tie_value && e.to_rank == rank_) value_in_.push_back(id);
  }
  make_reductions(train.ranks[static_cast<size_t>(rank_)]);
}

void Engine::make_reductions(const RankProgram& program) {
  overlaps_ = plan_->config.data > 1;
  bucket_of_.assign(ports_.size(), -1);
  reductions_.resize(program.buckets.size());
  reducible_.reserve(reductions_.size());
  for (size_t j = 0; j < program.jobs.size(); ++j)
    if (const Job& job = program.jobs[j]; job.kind == JobKind::reduce)
      reductions_[static_cast<size_t>(job.program)].job = static_cast<int32_t>(j);
  run_of_.assign(ports_.size(), -1);
  uses_of_run_.resize(program.runs.size());
  int32_t before = -1;
  for (size_t r = 0; r < program.runs.size(); ++r) {
    const AccumulatorRun& run = program.runs[r];
    for (const int32_t e : run.sends)
      run_of_[static_cast<size_t>(port_of(e))] = static_cast<int32_t>(r);
    if (run.bucket < 0) continue;
    reductions_[static_cast<size_t>(run.bucket)].run = static_cast<int32_t>(r);
    reductions_[static_cast<size_t>(run.bucket)].follows = before >= 0;
    if (before >= 0) reductions_[static_cast<size_t>(before)].next = run.bucket;
    before = run.bucket;
  }
  for (size_t b = 0; b < reductions_.size(); ++b)
    for (const int32_t e : program.buckets[b].waits)
      bucket_of_[static_cast<size_t>(port_of(e))] = static_cast<int32_t>(b);
  unsent_ = tie_out_;
  for (const ActionProgram& action : program.programs)
    for (const int32_t e : action.sums) std::erase(unsent_, e);
}

void Engine::make_ports() {
  const size_t r = static_cast<size_t>(rank_);
  std::vector<int32_t> own;
  for (const ModePlan& mode : plan_->modes)
    if (mode.present) own.insert(own.end(), mode.ranks[r].edges.begin(), mode.ranks[r].edges.end());
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  for (int32_t id : own) ports_.push_back({.edge = id});
  for (const ModePlan& mode : plan_->modes) {
    if (!mode.present) continue;
    for (int32_t id : mode.ranks[r].edges) {
      const Edge& e = mode.edges[static_cast<size_t>(id)];
      const size_t m = static_cast<size_t>(mode.mode);
      Port& port = ports_[static_cast<size_t>(port_of(id))];
      port.ends[m] = static_cast<uint8_t>(
          (e.from_rank == rank_ ? kBegins : 0) | (e.to_rank == rank_ ? kEnds : 0) |
          (e.kind == EdgeKind::gather && e.from_rank == rank_ ? kGathers : 0));
      port.micro_batches[m] = e.micro_batches;
    }
  }
  make_room_for_early_grants();
}

// Of edges whose messages all need a grant, one of the next step; of the others, all slots in each
// step that is granted early.
void Engine::make_room_for_early_grants() {
  size_t most = 0;
  for (const ModePlan& mode : plan_->modes) {
    if (!mode.present) continue;
    size_t late = 0, slots = 0;
    for (int32_t id : mode.ranks[static_cast<size_t>(rank_)].edges) {
      const Edge& e = mode.edges[static_cast<size_t>(id)];
      if (e.from_rank != rank_) continue;
      late += e.open == 0;
      slots += static_cast<size_t>(e.landing_slots);
    }
    most = std::max(most, late + steps_granted_early(plan_->config, mode.mode) * slots);
  }
  early_grants_.reserve(most);
  waiting_.reserve(kStepsAtOnce);
}

int32_t Engine::port_of(int32_t edge) const {
  const auto it = std::lower_bound(ports_.begin(), ports_.end(), edge,
                                   [](const Port& p, int32_t id) { return p.edge < id; });
  return it != ports_.end() && it->edge == edge ? static_cast<int32_t>(it - ports_.begin()) : -1;
}

void Engine::make_table(const ModePlan& mode) {
  Table& table = tables_[static_cast<size_t>(mode.mode)];
  const int32_t turn = plan_->micro_batches_at(mode.mode, rank_).stride;
  for (const ActionProgram& action : mode.ranks[static_cast<size_t>(rank_)].programs) {
    const auto add = [&](const std::vector<int32_t>& edges, bool outgoing) {
      const size_t begin = table.uses.size();
      for (int32_t e : edges) {
        const Edge& edge = mode.edges[static_cast<size_t>(e)];
        const int32_t slots = outgoing ? edge.out_slots : edge.landing_slots;
        table.uses.push_back(
            {port_of(e), edge.param < 0 ? slots * turn : slots, edge.micro_batches});
      }
      return static_cast<int32_t>(begin);
    };
    Span span{};
    span.waits = add(action.waits, false);
    span.gathers = add(action.gathers, false);
    span.posts = add(action.posts, true);
    span.frees = add(action.frees, false);
    span.sums = add(action.sums, true);
    span.end = static_cast<int32_t>(table.uses.size());
    span.update = action.kind == Kind::O;
    span.slot = action.slot;
    span.run = action.run;
    span.sums_only = !mode.ranks[static_cast<size_t>(rank_)].runs.empty() &&
                     (!action.sums.empty() || !action.buckets.empty());
    table.gathers = table.gathers || !action.gathers.empty();
    table.actions.push_back(span);
  }
  if (plan_->gathers()) count_asked(mode);
}

// The parameters of this rank that units of other ranks read.
void Engine::count_asked(const ModePlan& mode) {
  std::set<int32_t> readers;
  for (const int32_t id : mode.ranks[static_cast<size_t>(rank_)].edges)
    if (const Edge& e = mode.edges[static_cast<size_t>(id)];
        e.kind == EdgeKind::gather && e.from_rank == rank_)
      readers.insert(e.to_rank);
  std::vector<int32_t>& asked = tables_[static_cast<size_t>(mode.mode)].asked;
  asked.assign(static_cast<size_t>(plan_->micro_batches(mode.mode)) + 1, 0);
  for (const int32_t reader : readers) {
    const RankProgram& program = mode.ranks[static_cast<size_t>(reader)];
    for (const Job& job : program.jobs) {
      if (job.kind != JobKind::action) continue;
      const auto& gathers = program.programs[static_cast<size_t>(job.program)].gathers;
      asked[static_cast<size_t>(job.micro_batch) + 1] +=
          static_cast<int32_t>(std::count_if(gathers.begin(), gathers.end(), [&](int32_t id) {
            return mode.edges[static_cast<size_t>(id)].from_rank == rank_;
          }));
    }
  }
  std::partial_sum(asked.begin(), asked.end(), asked.begin());
}

}  // namespace weft
