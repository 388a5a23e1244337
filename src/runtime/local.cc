#include "runtime/local.h"

#include <cstring>

#include "base/text.h"
#include "kernels/gemm.h"

namespace weft {

// What one rank's engine asks for becomes an event of the queue; nothing is done while the engine
// is on the stack.
class LocalRanks::RankEffects final : public Effects {
 public:
  RankEffects(LocalRanks& ranks, int32_t rank) : ranks_(ranks), rank_(rank) {}

  void run(int32_t job) override { ranks_.push({Event::Kind::run, rank_, job, 0, rank_, {}}); }

  void post(int32_t edge, int32_t micro_batch) override {
    const StepDescriptor& step = ranks_.step_;
    ranks_.land(
        edge, micro_batch,
        ranks_.worker(rank_).outgoing(step.mode, edge, micro_batch, variant_of(step, micro_batch)));
    ranks_.push({Event::Kind::released, rank_, edge, micro_batch, rank_, {}});
  }

  void grant(int32_t edge, int32_t micro_batch) override {
    const Edge& e = ranks_.plan_->mode(ranks_.step_.mode).edges[static_cast<size_t>(edge)];
    ranks_.push({Event::Kind::granted,
                 e.kind == EdgeKind::feed ? kController : e.from_rank,
                 edge,
                 micro_batch,
                 rank_,
                 {}});
  }

  void control(int32_t to, const Control& message) override {
    ranks_.push({Event::Kind::control, to, 0, 0, rank_, message});
  }

 private:
  LocalRanks& ranks_;
  const int32_t rank_;
};

class LocalRanks::MainEffects final : public ControllerEffects {
 public:
  explicit MainEffects(LocalRanks& ranks) : ranks_(ranks) {}

  void run(int32_t) override {}
  void grant(int32_t, int32_t) override {}
  void post(int32_t edge, int32_t micro_batch) override {
    ranks_.land(edge, micro_batch,
                feed_bytes(*ranks_.plan_, ranks_.step_, edge, micro_batch, *ranks_.batch_));
  }
  void control(int32_t to, const Control& message) override {
    ranks_.push({Event::Kind::control, to, 0, 0, kController, message});
  }
  void micro_batch(int32_t micro_batch) override { ranks_.driver_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { ranks_.driver_.over(result); }

 private:
  LocalRanks& ranks_;
};

LocalRanks::LocalRanks(std::shared_ptr<const Plan> plan, Driver& driver)
    : plan_(std::move(plan)), driver_(driver), controller_(plan_) {}
LocalRanks::~LocalRanks() = default;

Result<std::unique_ptr<LocalRanks>> LocalRanks::make(std::shared_ptr<const Plan> plan,
                                                     const std::vector<Tiles*>& tiles,
                                                     Driver& driver) {
  init_gemm();
  std::unique_ptr<LocalRanks> ranks(new LocalRanks(plan, driver));
  ranks->main_ = std::make_unique<MainEffects>(*ranks);
  for (int32_t r = 0; r < plan->config.ranks; ++r) {
    WEFT_TRY_ASSIGN(auto worker, Worker::make(plan, r, *tiles[static_cast<size_t>(r)]));
    ranks->workers_.push_back(std::move(worker));
    ranks->engines_.push_back(std::make_unique<Engine>(plan, r));
    ranks->effects_.push_back(std::make_unique<RankEffects>(*ranks, r));
  }
  return ranks;
}

void LocalRanks::land(int32_t edge, int32_t micro_batch, std::span<const std::byte> bytes) {
  const Edge& e = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)];
  std::span<std::byte> landing =
      worker(e.to_rank).landing(step_.mode, edge, micro_batch, variant_of(step_, micro_batch));
  std::memcpy(landing.data(), bytes.data(), bytes.size());
  push({Event::Kind::arrived,
        e.kind == EdgeKind::sink ? kController : e.to_rank,
        edge,
        micro_batch,
        e.from_rank,
        {}});
}

// An exception may leave an engine half changed, and the queue too: nothing goes on.
template <typename F>
void LocalRanks::protect(F&& body) noexcept {
  const Status status = attempt([&body] {
    body();
    return Status();
  });
  if (!status.ok()) fail(status);
}

void LocalRanks::begin(const StepDescriptor& step, const Batch& batch) {
  if (failed_) return;
  step_ = step;
  step_.sequence = controller_.next_sequence();
  batch_ = &batch;
  protect([&] {
    if (Status status = controller_.begin(step_, *main_); !status.ok()) fail(status);
    drain();
  });
}

void LocalRanks::ran(int32_t rank, int32_t job, Status status, const JobTime& time) {
  if (failed_) return;
  protect([&] {
    if (!status.ok()) fail(status.within(cat("rank ", rank)), rank);
    push({Event::Kind::ran, rank, job, 0, rank, {}, time});
    drain();
  });
}

void LocalRanks::drain() {
  if (draining_) return;
  draining_ = true;
  while (!failed_ && head_ < queue_.size()) {
    const Event event = queue_[head_++];
    if (head_ == queue_.size()) {
      queue_.clear();
      head_ = 0;
    }
    if (Status status = handle(event); !status.ok())
      fail(status, event.rank == kController ? -1 : event.rank);
  }
  draining_ = false;
}

void LocalRanks::fail(const Status& status, int32_t rank) {
  if (failed_) return;
  failed_ = true;
  for (auto& engine : engines_) engine->abort();
  driver_.failed(status, rank);
}

void LocalRanks::check_progress() {
  if (failed_ || controller_.idle()) return;
  protect([this] {
    std::string why = controller_.describe();
    for (const auto& engine : engines_)
      if (!engine->idle()) why += cat("; rank ", engine->rank(), " ", engine->describe());
    fail(Status(Code::internal, "the step cannot go on: " + why));
  });
}

Status LocalRanks::handle(const Event& event) {
  const bool main = event.rank == kController;
  const size_t r = main ? 0 : static_cast<size_t>(event.rank);
  const uint64_t sequence = step_.sequence;
  switch (event.kind) {
    case Event::Kind::run:
      driver_.run(event.rank, engines_[r]->step(), engines_[r]->scale(), event.edge_or_job);
      return {};
    case Event::Kind::ran:
      return engines_[r]->ran(event.edge_or_job, workers_[r]->squares(), *effects_[r], event.time);
    case Event::Kind::arrived: {
      if (!main)
        return engines_[r]->arrived(sequence, event.edge_or_job, event.micro_batch, *effects_[r]);
      const View view = delivered(event.edge_or_job, event.micro_batch);
      const double loss = view.desc.dtype == DType::f64 ? *view.as<double>() : 0;
      return controller_.delivered(sequence, event.edge_or_job, event.micro_batch, loss, *main_);
    }
    case Event::Kind::granted:
      return main ? controller_.granted(sequence, event.edge_or_job, event.micro_batch, *main_)
                  : engines_[r]->granted(sequence, event.edge_or_job, event.micro_batch,
                                         *effects_[r]);
    case Event::Kind::released:
      return engines_[r]->released(event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::control:
      if (main) return controller_.heard(event.from, event.control, *main_);
      if (event.control.kind == ControlKind::begin)
        return engines_[r]->begin(event.control.step, *effects_[r]);
      return engines_[r]->commit(event.control.sequence, event.control.scale, *effects_[r]);
  }
  return {};
}

View LocalRanks::delivered(int32_t edge, int32_t micro_batch) {
  const Edge& e = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)];
  const int32_t v = variant_of(step_, micro_batch);
  return {workers_[0]->landing(step_.mode, edge, micro_batch, v).data(),
          e.desc[static_cast<size_t>(v)]};
}

}  // namespace weft
