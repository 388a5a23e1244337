#include "runtime/inline.h"

#include <cstring>

#include "base/text.h"
#include "kernels/gemm.h"

namespace weft {

// What one rank's engine asks for becomes an event of the queue; nothing is done while the engine is on the stack.
class InlineRun::RankEffects final : public Effects {
 public:
  RankEffects(InlineRun& run, int32_t rank) : run_(run), rank_(rank) {}

  void run(int32_t job) override { run_.push({Event::Kind::run, rank_, job, 0, rank_, {}}); }

  void post(int32_t edge, int32_t micro_batch) override {
    Worker& from = run_.worker(rank_);
    run_.land(edge, micro_batch, from.outgoing(run_.step_.mode, edge, micro_batch, run_.variant(micro_batch)));
    run_.push({Event::Kind::released, rank_, edge, micro_batch, rank_, {}});
  }

  void grant(int32_t edge, int32_t micro_batch) override {
    const Edge& e = run_.plan_->mode(run_.step_.mode).edges[static_cast<size_t>(edge)];
    run_.push({Event::Kind::granted, e.kind == EdgeKind::feed ? kController : e.from_rank, edge, micro_batch, rank_, {}});
  }

  void control(int32_t to, const Control& message) override { run_.push({Event::Kind::control, to, 0, 0, rank_, message}); }

 private:
  InlineRun& run_;
  const int32_t rank_;
};

class InlineRun::MainEffects final : public ControllerEffects {
 public:
  explicit MainEffects(InlineRun& run) : run_(run) {}

  void run(int32_t) override {}
  void grant(int32_t, int32_t) override {}
  void post(int32_t edge, int32_t micro_batch) override {
    run_.land(edge, micro_batch, feed_bytes(*run_.plan_, run_.step_, edge, micro_batch, *run_.batch_));
  }
  void control(int32_t to, const Control& message) override { run_.push({Event::Kind::control, to, 0, 0, kController, message}); }
  void micro_batch(int32_t micro_batch) override {
    if (run_.on_micro_batch_) run_.on_micro_batch_(run_.context_, micro_batch);
  }
  void step_done(const StepResult& result) override {
    run_.result_ = result;
    run_.over_ = true;
  }

 private:
  InlineRun& run_;
};

InlineRun::InlineRun(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)), controller_(plan_) {}
InlineRun::~InlineRun() = default;

Result<std::unique_ptr<InlineRun>> InlineRun::make(std::shared_ptr<const Plan> plan, Tiles& tiles) {
  init_gemm();
  std::unique_ptr<InlineRun> run(new InlineRun(plan));
  run->main_ = std::make_unique<MainEffects>(*run);
  for (int32_t r = 0; r < plan->config.ranks; ++r) {
    WEFT_TRY_ASSIGN(auto worker, Worker::make(plan, r, tiles));
    run->workers_.push_back(std::move(worker));
    run->engines_.push_back(std::make_unique<Engine>(plan, r));
    run->effects_.push_back(std::make_unique<RankEffects>(*run, r));
  }
  return run;
}

void InlineRun::push(const Event& event) { queue_.push_back(event); }

// In one process a message is a copy from place to place.
void InlineRun::land(int32_t edge, int32_t micro_batch, std::span<const std::byte> bytes) {
  const Edge& e = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)];
  std::span<std::byte> landing = worker(e.to_rank).landing(step_.mode, edge, micro_batch, variant(micro_batch));
  std::memcpy(landing.data(), bytes.data(), bytes.size());
  push({Event::Kind::arrived, e.kind == EdgeKind::sink ? kController : e.to_rank, edge, micro_batch, e.from_rank, {}});
}

Status InlineRun::handle(const Event& event) {
  const bool main = event.rank == kController;
  const size_t r = main ? 0 : static_cast<size_t>(event.rank);
  const uint64_t sequence = step_.sequence;
  switch (event.kind) {
    case Event::Kind::run: {
      WEFT_TRY(workers_[r]->run(engines_[r]->step(), engines_[r]->scale(), event.edge_or_job).within(cat("rank ", event.rank)));
      return engines_[r]->ran(event.edge_or_job, workers_[r]->squares(), *effects_[r]);
    }
    case Event::Kind::arrived: {
      if (!main) return engines_[r]->arrived(sequence, event.edge_or_job, event.micro_batch, *effects_[r]);
      const View view = delivered(event.edge_or_job, event.micro_batch);
      const double loss = view.desc.dtype == DType::f64 ? *view.as<double>() : 0;
      return controller_.delivered(sequence, event.edge_or_job, event.micro_batch, loss, *main_);
    }
    case Event::Kind::granted:
      return main ? controller_.granted(sequence, event.edge_or_job, event.micro_batch, *main_)
                  : engines_[r]->granted(sequence, event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::released: return engines_[r]->released(event.edge_or_job, event.micro_batch, *effects_[r]);
    case Event::Kind::control:
      if (main) return controller_.heard(event.from, event.control, *main_);
      if (event.control.kind == ControlKind::begin) return engines_[r]->begin(event.control.step, *effects_[r]);
      return engines_[r]->commit(event.control.sequence, event.control.scale, *effects_[r]);
  }
  return {};
}

Result<StepResult> InlineRun::step(const StepDescriptor& step, const Batch& batch, void (*deliver)(void*, int32_t), void* context) {
  if (!failure_.ok()) return failure_;
  step_ = step;
  step_.sequence = controller_.next_sequence();
  batch_ = &batch;
  on_micro_batch_ = deliver;
  context_ = context;
  over_ = false;
  Status status = controller_.begin(step_, *main_);
  while (status.ok() && head_ < queue_.size()) {
    const Event event = queue_[head_++];
    status = handle(event);
  }
  queue_.clear();
  head_ = 0;
  batch_ = nullptr;
  if (status.ok() && !over_) {
    std::string why = controller_.describe();
    for (const auto& engine : engines_)
      if (!engine->idle()) why += cat("; rank ", engine->rank(), " ", engine->describe());
    status = Status(Code::internal, "the step cannot go on: " + why);
  }
  if (!status.ok()) return failure_ = status;
  return result_;
}

View InlineRun::delivered(int32_t edge, int32_t micro_batch) {
  const Edge& e = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)];
  const int32_t v = variant(micro_batch);
  return {workers_[0]->landing(step_.mode, edge, micro_batch, v).data(), e.desc[static_cast<size_t>(v)]};
}

}  // namespace weft
