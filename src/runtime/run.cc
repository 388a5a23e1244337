#include "runtime/run.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/text.h"
#include "runtime/inline.h"

namespace weft {

Result<Digest> run_digest(Run& run) {
  const auto& params = run.plan().model->params();
  std::vector<ParamId> order(params.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](ParamId a, ParamId b) { return params[static_cast<size_t>(a)].name < params[static_cast<size_t>(b)].name; });
  Hasher all;
  std::vector<float> values;
  for (ParamId p : order) {
    const Param& param = params[static_cast<size_t>(p)];
    values.resize(static_cast<size_t>(param.shape.elements()));
    WEFT_TRY(run.read(p, Part::value, values));
    all.bytes(param.name.c_str(), param.name.size() + 1).digest(hash_bytes(values.data(), values.size() * 4));
  }
  return all.finish();
}

namespace {

class InlineDriver final : public Run {
 public:
  explicit InlineDriver(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  Status start() {
    WEFT_TRY_ASSIGN(run_, InlineRun::make(plan_, tiles_));
    return {};
  }

  const Plan& plan() const override { return *plan_; }
  bool idle() const override { return waiting_.empty(); }

  Status submit(StepRequest request) override {
    if (!failure_.ok()) return failure_;
    if (waiting_.size() >= kQueue) return Status(Code::again, cat(waiting_.size(), " steps are waiting"));
    auto described = describe_step(*plan_, request.mode, request.batch);
    if (!described.ok()) return described.status();
    waiting_.push_back({std::move(request), described.take()});
    return {};
  }

  bool poll(RunEvent& event, int64_t) override {
    outputs_.clear();
    if (events_.empty() && !waiting_.empty()) run_step();
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    if (event.kind == RunEvent::Kind::micro_batch && last_.mode == Mode::infer) {
      gather_outputs(event.micro_batch);
      event.outputs = &outputs_;
    }
    return true;
  }

  Status read(ParamId param, Part part, std::span<float> out) override {
    WEFT_TRY_ASSIGN(const float* from, find(param, part));
    std::copy(from, from + out.size(), out.data());
    return {};
  }

  Status write(ParamId param, Part part, std::span<const float> in) override {
    WEFT_TRY_ASSIGN(float* to, find(param, part));
    std::copy(in.begin(), in.end(), to);
    if (part != Part::value) return {};
    for (int32_t r = 0; r < plan_->config.ranks; ++r)   // copies of a tied parameter
      if (float* weight = run_->worker(r).param(param).weight) std::copy(in.begin(), in.end(), weight);
    return {};
  }

  Status read_input_grad(NodeId input, std::span<float> out) override {
    if (last_.mode != Mode::train || last_.micro_batches == 0) return Status(Code::state, "there was no training step before");
    const ModePlan& mode = plan_->mode(Mode::train);
    for (size_t e = 0; e < mode.edges.size(); ++e) {
      const Edge& edge = mode.edges[e];
      if (edge.kind != EdgeKind::sink || edge.tensor != mode.graph.grad[static_cast<size_t>(input)]) continue;
      size_t at = 0;
      for (int32_t mb = 0; mb < last_.micro_batches; ++mb) {
        const View view = run_->delivered(static_cast<int32_t>(e), mb);
        const size_t n = static_cast<size_t>(view.desc.elements());
        if (at + n > out.size()) break;
        std::copy(view.f32(), view.f32() + n, out.data() + at);
        at += n;
      }
      if (at != out.size()) return Status(Code::invalid, cat("the last step made ", at, " elements or more, the tensor has ", out.size()));
      return {};
    }
    return Status(Code::not_found, cat("input '", plan_->model->node(input).name, "' was added without WEFT_INPUT_WANT_GRAD, or the loss does not depend on it"));
  }

 private:
  struct Waiting {
    StepRequest request;
    StepDescriptor step;
  };

  void run_step() {
    Waiting now = std::move(waiting_.front());
    waiting_.pop_front();
    last_ = now.step;
    last_.step = trained_;
    last_.update = now.request.update;
    current_ = &now.request;
    auto deliver = [](void* self, int32_t micro_batch) { static_cast<InlineDriver*>(self)->micro_batch_done(micro_batch); };
    auto result = run_->step(last_, now.request.batch, deliver, this);
    RunEvent done{.kind = RunEvent::Kind::done, .tag = now.request.tag, .step = last_.step, .status = {}};
    if (result.ok()) {
      done.loss = result.value().loss;
      done.grad_norm = result.value().grad_norm;
      trained_ += last_.mode == Mode::train && last_.update;
    } else {
      done.kind = RunEvent::Kind::error;
      done.status = failure_ = result.status();
    }
    events_.push_back(std::move(done));
    if (failure_.ok()) return;
    for (Waiting& w : waiting_)   // each submitted step has its final event
      events_.push_back({.kind = RunEvent::Kind::error, .tag = w.request.tag, .status = failure_});
    waiting_.clear();
  }

  void micro_batch_done(int32_t micro_batch) {
    RunEvent event{.kind = RunEvent::Kind::micro_batch, .tag = current_->tag, .step = last_.step, .micro_batch = micro_batch, .status = {}};
    if (last_.mode != Mode::infer) event.loss = loss_of(micro_batch);
    events_.push_back(std::move(event));
  }

  double loss_of(int32_t micro_batch) {
    const ModePlan& mode = plan_->mode(last_.mode);
    const Node& loss = plan_->model->node(plan_->model->loss());
    const NodeId targets = loss.in[static_cast<size_t>(loss.op->target_port())];
    double sum = 0, count = 0;
    for (size_t e = 0; e < mode.edges.size(); ++e) {
      const Edge& edge = mode.edges[e];
      if (edge.tensor < 0) continue;
      const NodeId node = mode.graph.tensors[static_cast<size_t>(edge.tensor)].node;
      if (edge.kind == EdgeKind::sink && node == plan_->model->loss()) sum = *run_->delivered(static_cast<int32_t>(e), micro_batch).as<double>();
      if (edge.kind == EdgeKind::feed && node == targets) {
        const auto bytes = feed_bytes(*plan_, last_, static_cast<int32_t>(e), micro_batch, current_->batch);
        const size_t variant = last_.short_last && micro_batch == last_.micro_batches - 1 ? 1 : 0;
        count = loss.op->count({const_cast<std::byte*>(bytes.data()), edge.desc[variant]});
      }
    }
    return count > 0 ? sum / count : 0;
  }

  void gather_outputs(int32_t micro_batch) {
    const auto& edges = plan_->mode(Mode::infer).edges;
    for (size_t e = 0; e < edges.size(); ++e)
      if (edges[e].kind == EdgeKind::sink) outputs_.push_back(run_->delivered(static_cast<int32_t>(e), micro_batch));
  }

  Result<float*> find(ParamId param, Part part) {
    const Param& p = plan_->model->param(param);
    Worker::ParamMemory memory = run_->worker(plan_->owner_of_param[static_cast<size_t>(param)]).param(param);
    float* at = part == Part::value ? memory.weight : part == Part::grad ? memory.grad : memory.slots[part == Part::state0 ? 0 : 1];
    if (!at) return Status(Code::not_found, cat("parameter '", p.name, "' has no such tensor with this optimizer"));
    return at;
  }

  std::shared_ptr<const Plan> plan_;
  SerialTiles tiles_;
  std::unique_ptr<InlineRun> run_;
  std::deque<Waiting> waiting_;
  std::deque<RunEvent> events_;
  std::vector<View> outputs_;
  StepRequest* current_ = nullptr;
  StepDescriptor last_;
  uint64_t trained_ = 0;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Run>> start_inline(std::shared_ptr<const Plan> plan) {
  auto run = std::make_unique<InlineDriver>(std::move(plan));
  WEFT_TRY(run->start());
  return std::unique_ptr<Run>(std::move(run));
}

}  // namespace weft
