#include "runtime/run.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/worker.h"

namespace weft {

Run::Run(std::shared_ptr<const Plan> plan, void (*drop)(void*), const LogSink& log)
    : plan_(std::move(plan)), checks_(*plan_), drop_(drop), log_(log) {
  const size_t inputs = plan_->model->inputs().size();
  for (size_t i = 0; i < kQueue; ++i) {
    steps_.push_back(std::make_unique<Step>());
    steps_.back()->batch.inputs.reserve(inputs);
    steps_.back()->kept.reserve(inputs);
    steps_.back()->idle_by_rank.reserve(static_cast<size_t>(plan_->config.ranks));
    steps_.back()->counts.reserve(static_cast<size_t>(plan_->most_micro_batches()));
    steps_.back()->sums.reserve(static_cast<size_t>(plan_->config.segment));
    free_.push_back(steps_.back().get());
  }
}

Run::~Run() {
  for (auto& step : steps_)
    for (void* kept : step->kept) drop_(kept);
}

Status Run::full() {
  return Status(Code::again,
                cat(kQueue, " steps and saves are in progress; poll their events first"));
}

Step* Run::acquire() {
  if (free_.empty()) return nullptr;
  Step* step = free_.back();
  free_.pop_back();
  step->save.reset();
  step->mode = Mode::train;
  step->update = true;
  step->batch.samples = 0;
  step->batch.inputs.clear();
  return step;
}

void Run::give_back(Step* step) {
  for (void* kept : step->kept) drop_(kept);
  step->kept.clear();
  free_.push_back(step);
}

Status Run::submit(Step* step) {
  const auto describes = [&] { return start_ == Start::done ? describe(*step) : ready(); };
  if (Status status = attempt(describes); !status.ok()) {
    give_back(step);
    return status;
  }
  trained_ += static_cast<uint64_t>(updates_of(step->descriptor));
  start(step);
  return {};
}

Status Run::describe(Step& step) {
  WEFT_TRY_ASSIGN(step.descriptor, describe_step(*plan_, step.mode, step.update, step.batch));
  if (step.fed == 0) WEFT_TRY(checks_.check(*plan_, step.mode, step.batch));
  step.descriptor.step = trained_;
  step.descriptor.rate = rate_;
  step.descriptor.fed = step.fed;
  count_targets(*plan_, step.descriptor, step.batch, step.counts);
  return gather_updates(step.counts, step.sums, step.descriptor);
}

Status Run::submit_save(SaveRequest request, uint64_t tag) {
  WEFT_TRY(ready());
  request.manifest.step = trained_;
  auto kept = std::make_unique<SaveRequest>(std::move(request));
  Step* step = acquire();
  if (!step) return full();
  step->save = std::move(kept);
  step->tag = tag;
  start(step);
  return {};
}

Status Run::save(SaveRequest request) {
  WEFT_TRY(settled());
  WEFT_TRY(submit_save(std::move(request), 0));
  // Events of the run may come first.
  RunEvent event;
  do {
    while (!poll(event, -1)) {}
  } while (event.kind != RunEvent::Kind::saved);
  return event.status;
}

Status Run::ready() const {
  if (!failure_.ok()) return failure_.within("the run has failed");
  if (start_ == Start::done) return {};
  return Status(Code::state, "the run has not started; poll it until WEFT_EVENT_STARTED");
}

Status Run::settled() const {
  WEFT_TRY(ready());
  return idle()
             ? Status()
             : Status(Code::state, "steps or saves are in progress; poll their final events first");
}

bool Run::poll(RunEvent& event, int64_t timeout_ns) {
  const bool waits = start_ == Start::pending || !idle();
  if (!next_event(event, waits ? timeout_ns : 0)) return false;
  if (event.kind == RunEvent::Kind::started) start_ = Start::done;
  if (event.kind == RunEvent::Kind::error || event.kind == RunEvent::Kind::failed) {
    if (start_ == Start::pending) start_ = Start::failed;
    if (failure_.ok()) failure_ = event.status;
  }
  if (!event.step) return true;
  if (event.kind == RunEvent::Kind::done) last_ = event.step->descriptor;
  give_back(event.step);
  const bool of_step = event.kind == RunEvent::Kind::done || event.kind == RunEvent::Kind::error;
  if (of_step && plan_->config.delivers_outputs(event.mode)) proceed();
  return true;
}

std::string mesh_text(RunEvent::Kind kind, const MeshEvent& event) {
  if (kind == RunEvent::Kind::refused) return cat("refused ", event.text);
  const std::string place = cat(" rank ", event.rank);
  const std::string missing =
      event.missing == 0 ? cat("; all ", event.ranks, " ranks have joined")
                         : cat("; ", event.missing, " of ", event.ranks, " ranks are missing");
  if (kind == RunEvent::Kind::left) return cat("the process of", place, " left", missing);
  return cat("pid ", event.process.pid, " on ", event.process.host, " joined as", place, missing);
}

RunEvent Run::started_event() const {
  return {.kind = RunEvent::Kind::started, .mesh = {.rank = 0, .ranks = plan_->config.ranks}};
}

RunEvent Run::failed_event(const Status& status) {
  return {.kind = RunEvent::Kind::failed, .status = status};
}

RunEvent Run::micro_batch_event(const Step& step, int32_t micro_batch) {
  const int32_t edge = loss_edge(*plan_, step.mode);
  const double count = edge < 0 ? 0 : step.counts[static_cast<size_t>(micro_batch)];
  return {
      .kind = RunEvent::Kind::micro_batch,
      .tag = step.tag,
      .number = step.descriptor.step,
      .mode = step.mode,
      .micro_batch = micro_batch,
      .of = &step,
      .loss = count > 0 ? *landed(step, edge, micro_batch).as<double>() / count : 0,
  };
}

View Run::landed(const Step& step, int32_t edge, int32_t micro_batch) {
  return worker_here(0)->delivered(step.descriptor, edge, micro_batch);
}

RunEvent Run::update_event(const Step& step, const StepResult& result, size_t update) {
  return {
      .kind = RunEvent::Kind::update,
      .tag = step.tag,
      .number = step.descriptor.step + update,
      .mode = step.mode,
      .loss = result.updates[update].loss,
      .grad_norm = result.updates[update].grad_norm,
  };
}

RunEvent Run::final_event(Step* step, const StepResult& result) {
  step->idle_by_rank.assign(result.idle_by_rank.begin(), result.idle_by_rank.end());
  return {
      .step = step,
      .tag = step->tag,
      .number = step->descriptor.step,
      .mode = step->mode,
      .loss = result.loss,
      .grad_norm = result.grad_norm,
      .idle = result.idle,
  };
}

RunEvent Run::saved_event(Step* step, const Status& status) {
  return {
      .kind = RunEvent::Kind::saved,
      .step = step,
      .tag = step->tag,
      .number = step->save->manifest.step,
      .status = status,
  };
}

RunEvent Run::error_event(Step* step, const Status& status) {
  if (step->save) return saved_event(step, status);
  RunEvent event = final_event(step, {});
  event.kind = RunEvent::Kind::error;
  event.status = status;
  return event;
}

Status Run::check_input_grad(NodeId input) const {
  if (input_grad_edge(*plan_, input) >= 0) return {};
  return Status(
      Code::not_found,
      cat("input '", plan_->model->node(input).name,
          "' was added without WEFT_INPUT_WANT_GRAD, or no gradient flows to it: the loss does "
          "not depend on it, or takes it for its targets"));
}

Status Run::read_input_grad(NodeId input, std::span<float> out) {
  WEFT_TRY(check_input_grad(input));
  const Node& node = plan_->model->node(input);
  const int32_t edge = input_grad_edge(*plan_, input);
  if (last_.micro_batches == 0 || last_.mode != Mode::train)
    return Status(Code::state, "the last step was no training step");
  const int64_t full = plan_->config.micro_batch_size;
  const int64_t samples =
      full * (last_.micro_batches - 1) + (last_.short_last ? plan_->config.short_size : full);
  const int64_t expected = plan_->model->desc(input, samples).elements();
  if (static_cast<int64_t>(out.size()) != expected)
    return Status(Code::invalid,
                  cat("gradient of input '", node.name, "' has ", expected, " elements for ",
                      samples, " samples, the tensor ", out.size()));
  float* to = out.data();
  for (int32_t mb = 0; mb < last_.micro_batches; ++mb) {
    const View view = worker_here(0)->delivered(last_, edge, mb);
    to = std::copy(view.f32(), view.f32() + view.desc.elements(), to);
  }
  return {};
}

}  // namespace weft
