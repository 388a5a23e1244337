#include "sim/sim.h"

#include <algorithm>

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
      if (read.ok()) value = read.value();
      else if (sim_.failure_.ok()) sim_.failure_ = read.status();
    }
    sim_.send(rank_, edge, micro_batch, value);
    sim_.push({.kind = Event::Kind::released, .rank = rank_, .edge_or_job = edge, .micro_batch = micro_batch, .control = {}, .value = {}}, sim_.now_);
  }
  void grant(int32_t edge, int32_t micro_batch) override {
    const Edge& e = sim_.plan_->mode(sim_.step_.mode).edges[static_cast<size_t>(edge)];
    const int32_t to = e.kind == EdgeKind::feed ? kController : e.from_rank;
    sim_.push({.kind = Event::Kind::granted, .rank = to, .edge_or_job = edge, .micro_batch = micro_batch, .from = rank_, .control = {}, .value = {}},
              sim_.now_ + (e.from_rank == rank_ ? 0 : sim_.costs_.latency));
  }
  void control(int32_t to, const Control& message) override {
    sim_.push({.kind = Event::Kind::control, .rank = to, .from = rank_, .control = message, .value = {}},
              sim_.now_ + (rank_ == 0 ? 0 : sim_.costs_.latency));
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
    const ModePlan& mode = sim_.plan_->mode(sim_.step_.mode);
    const NodeId node = mode.graph.tensors[static_cast<size_t>(mode.edges[static_cast<size_t>(edge)].tensor)].node;
    sim_.send(0, edge, micro_batch, Provenance::fed(node, sim_.step_, micro_batch));
  }
  void control(int32_t to, const Control& message) override {
    sim_.push({.kind = Event::Kind::control, .rank = to, .from = kController, .control = message, .value = {}},
              sim_.now_ + (to == 0 ? 0 : sim_.costs_.latency));
  }
  void micro_batch(int32_t micro_batch) override {
    if (!sim_.values_) return;
    const auto& edges = sim_.plan_->mode(sim_.step_.mode).edges;
    size_t sink = 0;
    for (size_t e = 0; e < edges.size(); ++e) {
      if (edges[e].kind != EdgeKind::sink) continue;
      auto value = sim_.workers_[0].landed(sim_.step_, static_cast<int32_t>(e), micro_batch);
      if (!value.ok()) sim_.failure_ = value.status();
      else sim_.outcome_.deliveries[sink][static_cast<size_t>(micro_batch)] = value.value();
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

Sim::Sim(std::shared_ptr<const Plan> plan, SimCosts costs, bool values)
    : plan_(std::move(plan)), costs_(std::move(costs)), values_(values), main_(std::make_unique<MainEffects>(*this)), controller_(plan_) {
  const size_t ranks = static_cast<size_t>(plan_->config.ranks);
  for (int32_t r = 0; r < plan_->config.ranks; ++r) {
    if (values_) workers_.emplace_back(plan_, r);
    engines_.push_back(std::make_unique<Engine>(plan_, r));
    effects_.push_back(std::make_unique<RankEffects>(*this, r));
  }
  zeros_.assign(plan_->model->params().size(), 0.0);
  worker_free_.assign(ranks, 0);
  link_free_.assign(ranks, std::vector<double>(ranks, 0));
}

Sim::~Sim() = default;

namespace {
// A heap by time, then by the order of pushing: the same run every time.
struct Later {
  template <typename E>
  bool operator()(const E& a, const E& b) const { return a.time != b.time ? a.time > b.time : a.order > b.order; }
};
}  // namespace

void Sim::push(Event event, double time) {
  event.time = time;
  event.order = order_++;
  heap_.push_back(std::move(event));
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

void Sim::send(int32_t from, int32_t edge, int32_t micro_batch, const Digest& value) {
  const Edge& e = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)];
  double arrival = now_;
  if (e.to_rank != from) {
    double& free = link_free_[static_cast<size_t>(from)][static_cast<size_t>(e.to_rank)];
    const double transfer = costs_.bytes_per_time > 0 ? static_cast<double>(e.desc[0].bytes()) / costs_.bytes_per_time : 0;
    free = std::max(free, now_) + transfer;
    arrival = free + costs_.latency;
  }
  push({.kind = Event::Kind::arrived, .rank = e.kind == EdgeKind::sink ? kController : e.to_rank, .edge_or_job = edge,
        .micro_batch = micro_batch, .from = from, .control = {}, .value = value},
       arrival);
}

void Sim::start(int32_t rank, int32_t job) {
  const RankProgram& program = plan_->mode(step_.mode).ranks[static_cast<size_t>(rank)];
  double& free = worker_free_[static_cast<size_t>(rank)];
  const double begin = std::max(free, now_);
  free = begin + costs_.job(rank, program, program.jobs[static_cast<size_t>(job)]);
  outcome_.spans.push_back({rank, job, begin, free});
  push({.kind = Event::Kind::ran, .rank = rank, .edge_or_job = job, .control = {}, .value = {}}, free);
}

Status Sim::handle(const Event& event) {
  const bool main = event.rank == kController;
  const size_t r = main ? 0 : static_cast<size_t>(event.rank);
  switch (event.kind) {
    case Event::Kind::ran: {
      std::span<const double> squares;
      if (values_) {
        WEFT_TRY(workers_[r].run(engines_[r]->step(), engines_[r]->scale(), event.edge_or_job));
        squares = workers_[r].squares();
      } else {
        const auto& resident = plan_->resident[r];
        squares = {zeros_.data(), static_cast<size_t>(std::count_if(resident.begin(), resident.end(), [](const ResidentParam& p) { return p.owned; }))};
      }
      return engines_[r]->ran(event.edge_or_job, squares, *effects_[r]);
    }
    case Event::Kind::arrived:
      if (values_) WEFT_TRY(workers_[r].land(step_, event.edge_or_job, event.micro_batch, event.value));
      if (main) return controller_.delivered(step_.sequence, event.edge_or_job, event.micro_batch, as_number(event.value), *main_);
      return engines_[r]->arrived(step_.sequence, event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::granted:
      return main ? controller_.granted(step_.sequence, event.edge_or_job, event.micro_batch, *main_)
                  : engines_[r]->granted(step_.sequence, event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::released: return engines_[r]->released(event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::control:
      if (main) return controller_.heard(event.from, event.control, *main_);
      if (event.control.kind == ControlKind::begin) return engines_[r]->begin(event.control.step, *effects_[r]);
      return engines_[r]->commit(event.control.sequence, event.control.scale, *effects_[r]);
  }
  return {};
}

Result<SimStep> Sim::step(const StepDescriptor& step) {
  if (!failure_.ok()) return failure_;
  step_ = step;
  step_.sequence = controller_.next_sequence();
  outcome_ = {};
  const auto& edges = plan_->mode(step_.mode).edges;
  const auto sinks = std::count_if(edges.begin(), edges.end(), [](const Edge& e) { return e.kind == EdgeKind::sink; });
  outcome_.deliveries.assign(static_cast<size_t>(sinks), std::vector<Digest>(static_cast<size_t>(step_.micro_batches)));
  over_ = false;
  const double begin = now_;
  Status status = controller_.begin(step_, *main_);
  while (status.ok() && failure_.ok() && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.time;
    status = handle(event);
  }
  if (failure_.ok()) failure_ = status;
  if (failure_.ok() && !over_) {
    std::string why = controller_.describe();
    for (const auto& engine : engines_)
      if (!engine->idle()) why += cat("; rank ", engine->rank(), " ", engine->describe());
    failure_ = Status(Code::internal, "nothing can happen any more: " + why);
  }
  if (!failure_.ok()) return failure_;
  outcome_.makespan = now_ - begin;
  return outcome_;
}

}  // namespace weft
