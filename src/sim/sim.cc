#include "sim/sim.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/steps.h"

namespace weft {

// One rank, and its links: events of the virtual clock. The data that the events of a rank read is
// adjacent.
struct Sim::Rank final : RankLinks {
  Rank(Sim& owner, int32_t self)
      : sim(owner),
        rank(self),
        router(sim.plan_, rank, *this, [&](int32_t peer) { return sim.line_to(rank, peer); }) {
    const auto& resident = sim.plan_->resident[static_cast<size_t>(rank)];
    owned = static_cast<size_t>(std::count_if(resident.begin(), resident.end(),
                                              [](const ResidentParam& p) { return p.owned; }));
  }

  void run(int32_t job, bool) override { sim.start(*this, job); }
  void post(const Route& route, const StepDescriptor&, int32_t micro_batch, bool) override {
    const double now = sim.events_.now();
    if (sim.values_) sim.fail(sim.values_->left(rank, sim.step_, route.edge, micro_batch));
    sim.send(route, micro_batch);
    if (route.kind != EdgeKind::feed)
      sim.events_.push({SimEvent::Kind::released, rank, route.edge, micro_batch}, now);
  }
  void grant(Route& route, const StepDescriptor&, int32_t micro_batch) override {
    const Route::Peer& to = route.other;
    const double latency = to.link < 0 ? 0 : sim.lines_[static_cast<size_t>(to.link)].link.latency;
    sim.events_.push({SimEvent::Kind::granted, to.rank, route.edge, micro_batch},
                     sim.events_.now() + latency);
  }
  void control(int32_t to, const Control& message) override {
    const double now = sim.events_.now();
    if (message.kind == ControlKind::commit && !sim.committed_) {
      sim.committed_ = true;
      sim.outcome_.commit = now;
    }
    sim.received_.push_back({message, rank});
    sim.events_.push({.kind = SimEvent::Kind::control,
                      .rank = to,
                      .extra = static_cast<int32_t>(sim.received_.size() - 1)},
                     now + sim.link_between(rank, to).latency);
  }
  void micro_batch(int32_t micro_batch) override {
    if (sim.values_) sim.fail(sim.values_->delivered(sim.step_, micro_batch));
  }
  void step_done(const StepResult& result) override {
    sim.outcome_.result = result;
    sim.over_ = true;
  }

  Sim& sim;
  const int32_t rank;
  double worker_free = 0;
  const RankProgram* program = nullptr;  // of the step's mode
  const Job* jobs = nullptr;
  SimRank did;
  double reducing = 0;  // the time of reductions since the last action
  size_t owned;         // parameters
  EffectRouter router;
};

Sim::Sim(std::shared_ptr<const Plan> plan, SimCosts costs, SimValues* values)
    : plan_(std::move(plan)), costs_(std::move(costs)), values_(values) {
  ranks_.reserve(static_cast<size_t>(plan_->config.ranks));
  for (int32_t r = 0; r < plan_->config.ranks; ++r) ranks_.emplace_back(*this, r);
  zeros_.assign(
      plan_->model->params().size() * static_cast<size_t>(std::max(plan_->config.segment, 1)), 0.0);
}

Sim::~Sim() = default;

SimLink Sim::link_between(int32_t from, int32_t to) const {
  if (from == to) return {};
  return costs_.link_of ? costs_.link_of(from, to) : costs_.link;
}

// Only pairs that have an edge, because there can be thousands of ranks. A rank requests all of its
// pairs in sequence.
int32_t Sim::line_to(int32_t from, int32_t to) {
  for (size_t i = lines_.size(); i > 0 && lines_[i - 1].from == from; --i)
    if (lines_[i - 1].to == to) return static_cast<int32_t>(i - 1);
  lines_.push_back({.from = from, .to = to, .link = link_between(from, to)});
  return static_cast<int32_t>(lines_.size() - 1);
}

void Sim::fail(const Status& status) {
  if (failure_.ok()) failure_ = status;
}

void Sim::send(const Route& route, int32_t micro_batch) {
  const Route::Peer& to = route.other;
  double arrival = events_.now();
  if (to.link >= 0) {
    Line& line = lines_[static_cast<size_t>(to.link)];
    const int64_t bytes = route.bytes[static_cast<size_t>(variant_of(step_, micro_batch))];
    ++line.messages;
    line.bytes += bytes;
    line.free =
        std::max(line.free, arrival) +
        (line.link.bytes_per_time > 0 ? static_cast<double>(bytes) / line.link.bytes_per_time : 0);
    arrival = line.free + line.link.latency;
  }
  events_.push({SimEvent::Kind::arrived, to.rank, route.edge, micro_batch}, arrival);
}

void Sim::start(Rank& on, int32_t job) {
  const Job& what = on.jobs[job];
  const double begin = std::max(on.worker_free, events_.now()) + costs_.overhead,
               cost = costs_.job(on.rank, *on.program, what);
  on.worker_free = begin + cost;
  SimRank& did = on.did;
  if (what.kind == JobKind::action) {
    if (did.actions++ == 0) did.first = begin;
    did.last = begin + cost;
    did.busy += cost + std::exchange(on.reducing, 0);
  }
  if (what.kind == JobKind::reduce) on.reducing += cost;
  if (!committed_) did.before_commit += cost;
  did.work += costs_.overhead + cost;
  if (keep_spans_) outcome_.spans.push_back({on.rank, job, begin, begin + cost});
  events_.push({.kind = SimEvent::Kind::ran, .rank = on.rank, .what = job}, begin + cost);
}

Status Sim::arrive(const SimEvent& event) {
  double loss = 0;
  if (values_) {
    WEFT_TRY_ASSIGN(loss, values_->arrived(event.rank, step_, event.what, event.micro_batch));
  }
  return ranks_[static_cast<size_t>(event.rank)].router.arrived(step_.sequence, event.what,
                                                                event.micro_batch, loss);
}

Status Sim::handle(const SimEvent& event) {
  const size_t r = static_cast<size_t>(event.rank);
  Rank& rank = ranks_[r];
  EffectRouter& router = rank.router;
  switch (event.kind) {
    case SimEvent::Kind::ran: {
      std::span<const double> squares(
          zeros_.data(),
          rank.owned * static_cast<size_t>(std::max(updates_at(plan_->versions[r], step_), 1)));
      if (values_) {
        WEFT_TRY_ASSIGN(
            squares, values_->ran(event.rank, router.step(), router.engine().scale(), event.what));
      }
      return router.ran(event.what, squares);
    }
    case SimEvent::Kind::arrived: return arrive(event);
    case SimEvent::Kind::granted:
      return router.granted(step_.sequence, event.what, event.micro_batch);
    case SimEvent::Kind::released: return router.released(event.what, event.micro_batch);
    case SimEvent::Kind::control: {
      const Received received = received_[static_cast<size_t>(event.extra)];
      if (received.control.kind == ControlKind::ready && !committed_)
        outcome_.commit = events_.now();
      return router.received(received.from, received.control);
    }
  }
  return {};
}

void Sim::begin_outcome() {
  outcome_ = {};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].did = {};
    ranks_[r].reducing = 0;
    ranks_[r].program = &mode().ranks[r];
    ranks_[r].jobs = mode().ranks[r].jobs.data();
  }
  outcome_.commit = events_.now();
  for (Line& line : lines_) line.messages = line.bytes = 0;
  received_.clear();
  over_ = committed_ = false;
}

Status Sim::end_outcome(double begin) {
  if (failure_.ok() && !over_) {
    std::string why;
    for (const Rank& rank : ranks_) rank.router.describe(why);
    failure_ = Status(Code::internal, "deadlock: " + why);
  }
  WEFT_TRY(failure_);
  outcome_.makespan = events_.now() - begin;
  outcome_.commit -= begin;
  for (const Rank& rank : ranks_) {
    SimRank& did = outcome_.ranks.emplace_back(rank.did);
    did.first -= begin;
    did.last -= begin;
    if (step_.mode != Mode::train) outcome_.commit = std::max(outcome_.commit, did.last);
  }
  for (SimSpan& span : outcome_.spans) {
    span.begin -= begin;
    span.end -= begin;
  }
  for (const Line& line : lines_)
    if (line.messages > 0)
      outcome_.traffic.push_back({line.from, line.to, line.messages, line.bytes});
  std::sort(outcome_.traffic.begin(), outcome_.traffic.end(),
            [](const SimTraffic& a, const SimTraffic& b) {
              return std::pair(a.from, a.to) < std::pair(b.from, b.to);
            });
  return {};
}

Result<SimStep> Sim::step(const StepDescriptor& step) {
  if (!failure_.ok()) return failure_;
  step_ = step;
  step_.sequence = ranks_[0].router.controller()->next_sequence();
  begin_outcome();
  const double begin = events_.now();
  Status status = ranks_[0].router.begin(step_);
  while (status.ok() && failure_.ok() && !events_.empty()) status = handle(events_.pop());
  if (failure_.ok()) failure_ = status;
  WEFT_TRY(end_outcome(begin));
  return std::move(outcome_);
}

}  // namespace weft
