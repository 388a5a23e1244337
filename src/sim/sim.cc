#include "sim/sim.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace weft {

class Sim::RankEffects final : public Effects {
 public:
  RankEffects(Sim& sim, int32_t rank) : sim_(sim), rank_(rank) {}
  void run(int32_t job) override { sim_.start(rank_, job); }
  void post(int32_t edge, int32_t micro_batch) override {
    Digest value;
    if (sim_.values_) {
      auto read = sim_.workers_[static_cast<size_t>(rank_)].outgoing(sim_.step_, edge, micro_batch);
      if (read.ok())
        value = read.value();
      else if (sim_.failure_.ok())
        sim_.failure_ = read.status();
    }
    sim_.send(edge, micro_batch, value);
    sim_.events_.push(
        {.kind = SimEvent::Kind::released, .rank = rank_, .what = edge, .micro_batch = micro_batch},
        sim_.events_.now());
  }
  void grant(int32_t edge, int32_t micro_batch) override {
    const Parcel& parcel = sim_.parcel(edge);
    sim_.events_.push({.kind = SimEvent::Kind::granted,
                       .rank = parcel.from,
                       .what = edge,
                       .micro_batch = micro_batch},
                      sim_.events_.now() + parcel.back);
  }
  void control(int32_t to, const Control& message) override {
    sim_.tell(rank_, to, message, sim_.events_.now() + sim_.to_main_[static_cast<size_t>(rank_)]);
  }

 private:
  Sim& sim_;
  const int32_t rank_;
};

class Sim::MainEffects final : public ControllerEffects {
 public:
  explicit MainEffects(Sim& sim) : sim_(sim) {}
  void run(int32_t) override {}
  void grant(int32_t, int32_t) override {}
  void post(int32_t edge, int32_t micro_batch) override {
    Digest value;
    if (sim_.values_) {
      const ModePlan& mode = sim_.mode();
      const NodeId node =
          mode.graph.tensors[static_cast<size_t>(mode.edges[static_cast<size_t>(edge)].tensor)]
              .node;
      value = Provenance::fed(node, sim_.step_, micro_batch);
    }
    sim_.send(edge, micro_batch, value);
  }
  void control(int32_t to, const Control& message) override {
    if (message.kind == ControlKind::commit && !sim_.committed_) {
      sim_.committed_ = true;
      sim_.outcome_.commit = sim_.events_.now();
    }
    sim_.tell(kController, to, message,
              sim_.events_.now() + sim_.from_main_[static_cast<size_t>(to)]);
  }
  void micro_batch(int32_t micro_batch) override {
    if (!sim_.values_) return;
    const auto& edges = sim_.mode().edges;
    size_t sink = 0;
    for (size_t e = 0; e < edges.size(); ++e) {
      if (edges[e].kind != EdgeKind::sink) continue;
      auto value = sim_.workers_[0].landed(sim_.step_, static_cast<int32_t>(e), micro_batch);
      if (!value.ok())
        sim_.failure_ = value.status();
      else
        sim_.outcome_.deliveries[sink][static_cast<size_t>(micro_batch)] = value.value();
      ++sink;
    }
  }
  void step_done(const StepResult& result) override {
    sim_.outcome_.result = result;
    sim_.over_ = true;
  }

 private:
  Sim& sim_;
};

// What a rank's events read lies side by side.
struct Sim::Rank {
  Rank(Sim& sim, int32_t rank) : effects(sim, rank), engine(sim.plan_, rank) {
    const auto& resident = sim.plan_->resident[static_cast<size_t>(rank)];
    owned = static_cast<size_t>(std::count_if(resident.begin(), resident.end(),
                                              [](const ResidentParam& p) { return p.owned; }));
  }

  RankEffects effects;
  double worker_free = 0;
  const RankProgram* program = nullptr;  // of the step's mode
  const Job* jobs = nullptr;
  SimRank did;
  size_t owned;  // parameters
  Engine engine;
};

Sim::Sim(std::shared_ptr<const Plan> plan, SimCosts costs, bool values)
    : plan_(std::move(plan)),
      costs_(std::move(costs)),
      values_(values),
      main_(std::make_unique<MainEffects>(*this)),
      controller_(plan_) {
  ranks_.reserve(static_cast<size_t>(plan_->config.ranks));
  for (int32_t r = 0; r < plan_->config.ranks; ++r) {
    if (values_) workers_.emplace_back(plan_, r);
    ranks_.emplace_back(*this, r);
    from_main_.push_back(link_between(0, r).latency);
    to_main_.push_back(link_between(r, 0).latency);
  }
  zeros_.assign(
      plan_->model->params().size() * static_cast<size_t>(std::max(plan_->config.segment, 1)), 0.0);
  for (const ModePlan& mode : plan_->modes)
    if (mode.present) make_lines(mode);
}

Sim::~Sim() = default;

SimLink Sim::link_between(int32_t from, int32_t to) const {
  if (from == to) return {};
  return costs_.link_of ? costs_.link_of(from, to) : costs_.link;
}

// Only pairs that have something to say to each other: there can be thousands of ranks.
void Sim::make_lines(const ModePlan& mode) {
  std::map<std::pair<int32_t, int32_t>, int32_t> known;
  for (size_t i = 0; i < lines_.size(); ++i)
    known[{lines_[i].from, lines_[i].to}] = static_cast<int32_t>(i);
  for (const Edge& e : mode.edges) {
    Parcel& parcel = parcels_[static_cast<size_t>(mode.mode)].emplace_back();
    parcel.to = e.kind == EdgeKind::sink ? kController : e.to_rank;
    parcel.from = e.kind == EdgeKind::feed ? kController : e.from_rank;
    for (size_t v = 0; v < 2; ++v) parcel.bytes[v] = static_cast<int64_t>(e.desc[v].bytes());
    if (e.from_rank == e.to_rank) continue;
    const auto [it, fresh] =
        known.try_emplace({e.from_rank, e.to_rank}, static_cast<int32_t>(lines_.size()));
    if (fresh)
      lines_.push_back(
          {.from = e.from_rank, .to = e.to_rank, .link = link_between(e.from_rank, e.to_rank)});
    parcel.line = it->second;
    parcel.back = link_between(e.to_rank, e.from_rank).latency;
  }
}

int32_t Sim::keep(const Digest& value) {
  if (free_digests_.empty()) {
    digests_.push_back(value);
    return static_cast<int32_t>(digests_.size() - 1);
  }
  const int32_t at = free_digests_.back();
  free_digests_.pop_back();
  digests_[static_cast<size_t>(at)] = value;
  return at;
}

void Sim::tell(int32_t from, int32_t to, const Control& message, double time) {
  heard_.push_back({message, from});
  events_.push({.kind = SimEvent::Kind::control,
                .rank = to,
                .extra = static_cast<int32_t>(heard_.size() - 1)},
               time);
}

void Sim::send(int32_t edge, int32_t micro_batch, const Digest& value) {
  const Parcel& parcel = this->parcel(edge);
  double arrival = events_.now();
  if (parcel.line >= 0) {
    Line& line = lines_[static_cast<size_t>(parcel.line)];
    const int64_t bytes = parcel.bytes[static_cast<size_t>(variant_of(step_, micro_batch))];
    ++line.messages;
    line.bytes += bytes;
    line.free =
        std::max(line.free, arrival) +
        (line.link.bytes_per_time > 0 ? static_cast<double>(bytes) / line.link.bytes_per_time : 0);
    arrival = line.free + line.link.latency;
  }
  events_.push({.kind = SimEvent::Kind::arrived,
                .rank = parcel.to,
                .what = edge,
                .micro_batch = micro_batch,
                .extra = values_ ? keep(value) : -1},
               arrival);
}

void Sim::start(int32_t rank, int32_t job) {
  Rank& on = ranks_[static_cast<size_t>(rank)];
  const Job& what = on.jobs[job];
  const double begin = std::max(on.worker_free, events_.now()) + costs_.overhead,
               cost = costs_.job(rank, *on.program, what);
  on.worker_free = begin + cost;
  SimRank& did = on.did;
  if (what.kind == JobKind::action) {
    if (did.actions++ == 0) did.first = begin;
    did.last = begin + cost;
    did.busy += cost;
  }
  if (!committed_) did.before_commit += cost;
  if (keep_spans_) outcome_.spans.push_back({rank, job, begin, begin + cost});
  events_.push({.kind = SimEvent::Kind::ran, .rank = rank, .what = job}, begin + cost);
}

Status Sim::arrive(const SimEvent& event) {
  const bool main = event.rank == kController;
  const size_t r = main ? 0 : static_cast<size_t>(event.rank);
  Digest value;
  if (values_) {
    value = digests_[static_cast<size_t>(event.extra)];
    free_digests_.push_back(event.extra);
    WEFT_TRY(workers_[r].land(step_, event.what, event.micro_batch, value));
  }
  if (main)
    return controller_.delivered(step_.sequence, event.what, event.micro_batch, as_number(value),
                                 *main_);
  return ranks_[r].engine.arrived(step_.sequence, event.what, event.micro_batch, ranks_[r].effects);
}

Status Sim::handle(const SimEvent& event) {
  const bool main = event.rank == kController;
  const size_t r = main ? 0 : static_cast<size_t>(event.rank);
  Rank& rank = ranks_[r];
  switch (event.kind) {
    case SimEvent::Kind::ran: {
      std::span<const double> squares(
          zeros_.data(), rank.owned * static_cast<size_t>(std::max(updates_of(step_), 1)));
      if (values_) {
        WEFT_TRY(workers_[r].run(rank.engine.step(), rank.engine.scale(), event.what));
        squares = workers_[r].squares();
      }
      return rank.engine.ran(event.what, squares, rank.effects);
    }
    case SimEvent::Kind::arrived: return arrive(event);
    case SimEvent::Kind::granted:
      return main
                 ? controller_.granted(step_.sequence, event.what, event.micro_batch, *main_)
                 : rank.engine.granted(step_.sequence, event.what, event.micro_batch, rank.effects);
    case SimEvent::Kind::released:
      return rank.engine.released(event.what, event.micro_batch, rank.effects);
    case SimEvent::Kind::control: {
      const Heard heard = heard_[static_cast<size_t>(event.extra)];
      if (main && heard.control.kind == ControlKind::ready && !committed_)
        outcome_.commit = events_.now();
      if (main) return controller_.heard(heard.from, heard.control, *main_);
      if (heard.control.kind == ControlKind::begin)
        return rank.engine.begin(heard.control.step, rank.effects);
      return rank.engine.commit(heard.control.sequence, heard.control.scale, rank.effects);
    }
  }
  return {};
}

void Sim::begin_outcome() {
  outcome_ = {};
  const auto& edges = mode().edges;
  if (values_) {
    const auto sinks = std::count_if(edges.begin(), edges.end(),
                                     [](const Edge& e) { return e.kind == EdgeKind::sink; });
    outcome_.deliveries.assign(static_cast<size_t>(sinks),
                               std::vector<Digest>(static_cast<size_t>(step_.micro_batches)));
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].did = {};
    ranks_[r].program = &mode().ranks[r];
    ranks_[r].jobs = mode().ranks[r].jobs.data();
  }
  outcome_.commit = events_.now();
  for (Line& line : lines_) line.messages = line.bytes = 0;
  heard_.clear();
  over_ = committed_ = false;
}

Status Sim::end_outcome(double begin) {
  if (failure_.ok() && !over_) {
    std::string why = controller_.describe();
    for (const Rank& rank : ranks_)
      if (!rank.engine.idle())
        why += cat("; rank ", rank.engine.rank(), " ", rank.engine.describe());
    failure_ = Status(Code::internal, "nothing can happen any more: " + why);
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
  step_.sequence = controller_.next_sequence();
  begin_outcome();
  const double begin = events_.now();
  Status status = controller_.begin(step_, *main_);
  while (status.ok() && failure_.ok() && !events_.empty()) status = handle(events_.pop());
  if (failure_.ok()) failure_ = status;
  WEFT_TRY(end_outcome(begin));
  return std::move(outcome_);
}

}  // namespace weft
