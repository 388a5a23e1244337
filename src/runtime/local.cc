#include "runtime/local.h"

#include <algorithm>

#include "base/text.h"
#include "kernels/gemm.h"

namespace weft {

// The links of a rank. What they carry becomes an event of the queue, which is not handled while a
// router is on the stack.
struct LocalRanks::Rank final : RankLinks {
  Rank(LocalRanks& owner, int32_t self)
      : ranks(owner), rank(self), router(owner.plan_, self, *this, [](int32_t) { return 0; }) {}

  void run(int32_t job, bool deliver) override {
    start({router.step(), router.engine().scale(), job, deliver});
  }
  void post(const Route& route, const StepDescriptor& step, int32_t micro_batch,
            bool delivered) override {
    // A feed is copied by the job that waits for it.
    if (delivered || route.kind == EdgeKind::feed) return copied(route, step.sequence, micro_batch);
    Rank& receiver = *ranks.ranks_[static_cast<size_t>(route.other.rank)];
    Rank& copier = receiver.tasks > 0 && tasks == 0 ? *this : receiver;
    copier.start({.step = step, .edge = route.edge, .micro_batch = micro_batch});
  }
  void start(const WorkerTask& task) {
    ++tasks;
    ranks.driver_.run(rank, task);
  }
  void copied(const Route& route, uint64_t sequence, int32_t micro_batch) {
    push(Event::Kind::arrived, route.other.rank, sequence, route, micro_batch);
    if (route.kind != EdgeKind::feed)  // inputs are not moved
      push(Event::Kind::released, rank, sequence, route, micro_batch);
  }
  void grant(Route& route, const StepDescriptor& step, int32_t micro_batch) override {
    push(Event::Kind::granted, route.other.rank, step.sequence, route, micro_batch);
  }
  void control(int32_t to, const Control& message) override {
    ranks.queue_.push({.kind = Event::Kind::control, .rank = to, .from = rank, .control = message});
  }
  void micro_batch(int32_t micro_batch) override { ranks.driver_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { ranks.driver_.over(result); }

  void push(Event::Kind kind, int32_t to, uint64_t sequence, const Route& route,
            int32_t micro_batch) {
    ranks.queue_.push({kind, to, rank, sequence, route.edge, micro_batch});
  }

  LocalRanks& ranks;
  const int32_t rank;
  EffectRouter router;
  size_t tasks = 0;  // queued or running
};

LocalRanks::LocalRanks(std::shared_ptr<const Plan> plan, Driver& driver)
    : plan_(std::move(plan)), driver_(driver) {}
LocalRanks::~LocalRanks() = default;

Result<std::unique_ptr<LocalRanks>> LocalRanks::make(std::shared_ptr<const Plan> plan,
                                                     const std::vector<Tiles*>& tiles,
                                                     Driver& driver) {
  init_gemm();
  std::unique_ptr<LocalRanks> ranks(new LocalRanks(plan, driver));
  for (int32_t r = 0; r < plan->config.ranks; ++r) {
    WEFT_TRY_ASSIGN(auto worker, Worker::make(plan, r, *tiles[static_cast<size_t>(r)]));
    ranks->local_.push_back(worker.get());
    ranks->workers_.push_back(std::move(worker));
    ranks->ranks_.push_back(std::make_unique<Rank>(*ranks, r));
  }
  for (Worker* worker : ranks->local_) worker->join(ranks->local_);
  ranks->queue_ = Fifo<Event>(most_events(*plan));
  return ranks;
}

// The events of a call that begins a step or opens its sinks: for each slot, that it is granted,
// that its message arrives, and that it is released.
size_t LocalRanks::most_events(const Plan& plan) {
  size_t most = 0;
  for (const ModePlan& mode : plan.modes) {
    size_t slots = 0;
    for (const Edge& e : mode.edges) slots += static_cast<size_t>(std::max(e.open, 1));
    most = std::max(most, 3 * slots);
  }
  return most + 2 * static_cast<size_t>(plan.config.ranks);
}

EffectRouter& LocalRanks::router(int32_t rank) { return ranks_[static_cast<size_t>(rank)]->router; }

size_t LocalRanks::most_tasks(int32_t rank) const {
  size_t out = ranks_[static_cast<size_t>(rank)]->router.most_tasks();
  for (const auto& sender : ranks_) out += sender->router.most_posts(rank);
  return out;
}

// After an exception an engine or the queue may be inconsistent: the run stops.
template <typename F>
void LocalRanks::protect(F&& body) noexcept {
  if (const Status status = attempt(body); !status.ok()) fail(status);
}

void LocalRanks::begin(const StepDescriptor& step, const Batch& batch) {
  if (failed_) return;
  const uint64_t sequence = router(0).controller()->next_sequence();
  for (Worker* worker : local_) worker->feed(sequence, &batch);
  protect([&]() -> Status {
    WEFT_TRY(router(0).begin(step));
    drain();
    return {};
  });
}

void LocalRanks::feed(int32_t micro_batches) {
  if (failed_) return;
  protect([&]() -> Status {
    WEFT_TRY(router(0).feed(micro_batches));
    drain();
    return {};
  });
}

void LocalRanks::open_sinks() {
  if (failed_) return;
  protect([&]() -> Status {
    router(0).open_sinks();
    drain();
    return {};
  });
}

void LocalRanks::ran(int32_t rank, const WorkerTask& task, const Status& status,
                     const JobTime& time) {
  if (failed_) return;
  protect([&] {
    Rank& on = *ranks_[static_cast<size_t>(rank)];
    --on.tasks;
    if (!status.ok()) return of_rank(rank, status, on.router.engine().activity());
    if (task.job < 0)
      copied(task);
    else if (Status s = on.router.ran(task.job, worker(rank).squares(), time); !s.ok())
      return of_rank(rank, s);
    drain();
    return Status();
  });
}

void LocalRanks::copied(const WorkerTask& task) {
  const Edge& edge = plan_->mode(task.step.mode).edges[static_cast<size_t>(task.edge)];
  Rank& sender = *ranks_[static_cast<size_t>(edge.from_rank)];
  sender.copied(*sender.router.find(task.step.mode, task.edge), task.step.sequence,
                task.micro_batch);
}

void LocalRanks::drain() {
  while (!failed_ && !queue_.empty()) {
    const Event event = queue_.pop();
    if (Status status = handle(event); !status.ok()) fail(of_rank(event.rank, status));
  }
}

Status LocalRanks::of_rank(int32_t rank, const Status& status, const Activity& during) const {
  return Status(Origin{.rank = rank,
                       .code = status.code(),
                       .cause = Cause::failed,
                       .activity = during,
                       .detail = status.text(),
                       .stages = plan_->stages_on(rank)});
}

void LocalRanks::fail(const Status& status) {
  if (failed_) return;
  failed_ = true;
  for (auto& each : ranks_) each->router.abort();
  for (Worker* worker : local_) worker->drop_feeds();  // before the owner may free the batch
  driver_.failed(status);
}

void LocalRanks::check_progress() {
  const Controller& controller = *router(0).controller();
  if (failed_ || controller.idle() || controller.awaits_owner()) return;
  protect([this] {
    std::string why;
    for (const auto& each : ranks_) each->router.describe(why);
    return Status(Code::internal, "the step cannot go on: " + why);
  });
}

// The sum of losses if that is the delivery of a loss.
double LocalRanks::loss_of(const Event& event) {
  if (event.rank != 0) return 0;
  const StepDescriptor* step = router(0).find_step(EdgeKind::sink, event.sequence);
  if (!step) return 0;
  const Edge& edge = plan_->mode(step->mode).edges[static_cast<size_t>(event.edge)];
  if (edge.kind != EdgeKind::sink || edge.desc[0].dtype != DType::f64) return 0;
  return *worker(0).delivered(*step, event.edge, event.micro_batch).as<double>();
}

Status LocalRanks::handle(const Event& event) {
  EffectRouter& at = router(event.rank);
  switch (event.kind) {
    case Event::Kind::arrived:
      return at.arrived(event.sequence, event.edge, event.micro_batch, loss_of(event));
    case Event::Kind::granted: return at.granted(event.sequence, event.edge, event.micro_batch);
    case Event::Kind::released: return at.released(event.edge, event.micro_batch);
    case Event::Kind::control: return at.received(event.from, event.control);
  }
  return {};
}

}  // namespace weft
