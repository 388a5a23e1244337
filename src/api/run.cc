// A run: its start, steps, events and times.
#include <algorithm>
#include <utility>

#include "api/run_handle.h"
#include "base/most_threads.h"
#include "runtime/calibrate.h"

using namespace weft;
using namespace weft::api;

namespace {

void drop_tensor(void* tensor) { weft_tensor_unref(static_cast<weft_tensor*>(tensor)); }

// Checks the tensors of a batch against the model's inputs, and finds their number of samples,
// which must be equal.
Status check_batch(const Model& model, std::span<weft_tensor* const> inputs, Batch& batch) {
  if (inputs.size() != model.inputs().size())
    return Status(Code::invalid,
                  cat("got ", inputs.size(), " inputs, the model has ", model.inputs().size()));
  bool is_first = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = model.node(model.inputs()[i]);
    if (!inputs[i]) {
      batch.inputs.push_back(nullptr);
      continue;
    }
    if (inputs[i]->lent)
      return Status(Code::invalid,
                    cat("input '", node.name,
                        "' is an output of a run, which the next poll changes; submit a copy"));
    const Desc& found = inputs[i]->desc;
    Desc expected = node.one.out;
    if (found.shape.rank == expected.shape.rank) expected.shape[0] = found.shape[0];
    if (!(found == expected))
      return Status(Code::invalid, cat("input '", node.name, "' expects ", node.one.out.text(),
                                       " per sample, got ", found.text()));
    if (!is_first && batch.samples != found.shape[0])
      return Status(Code::invalid, cat("input '", node.name, "' has ", found.shape[0],
                                       " samples, an input before it ", batch.samples));
    is_first = false;
    batch.samples = found.shape[0];
    batch.inputs.push_back(inputs[i]->data);
  }
  return {};
}

// Points the run's output tensors at the deliveries of a micro-batch; returns their number.
uint32_t show_outputs(weft_run& run, const RunEvent& event) {
  const std::vector<int32_t>& edges = run.output_edges[static_cast<size_t>(event.mode)];
  for (size_t i = 0; i < edges.size(); ++i) {
    const View view = run.run->delivered(event, edges[i]);
    run.outputs[i]->desc = view.desc;
    run.outputs[i]->data = view.data;
  }
  return static_cast<uint32_t>(edges.size());
}

// Stores the first failure of the run. If there is not enough memory for it, the event is delivered
// without it.
void remember(weft_run& run, const Status& status) {
  if (run.failure) return;
  run.failure = status.origin();
  if (run.failure) return;
  (void)attempt([&] { run.failure = std::make_shared<const Origin>(origin_of(status)); });
}

// The fields of an event of the mesh.
void fill_mesh(weft_run& run, RunEvent::Kind kind, MeshEvent& event, weft_event& out) {
  out.rank = event.rank;
  out.ranks = static_cast<uint32_t>(event.ranks);
  out.missing = static_cast<uint32_t>(event.missing);
  out.count = event.count;
  if (kind == RunEvent::Kind::joined) {
    run.host.swap(event.process.host);
    out.host = run.host.c_str();
    out.pid = event.process.pid;
  }
  if (kind == RunEvent::Kind::refused) {
    run.text.swap(event.text);
    out.text = run.text.c_str();
  }
}

weft_event event_of(weft_run& run, RunEvent& inner) {
  run.status = inner.status;
  weft_event full = {};
  full.kind = static_cast<weft_event_kind>(inner.kind);
  full.tag = inner.tag;
  full.status = static_cast<weft_status>(inner.status.code());
  full.micro_batch = static_cast<uint32_t>(inner.micro_batch);
  full.step = inner.number;
  full.loss = inner.loss;
  full.grad_norm = inner.grad_norm;
  if (inner.kind == RunEvent::Kind::micro_batch) full.n_outputs = show_outputs(run, inner);
  full.outputs = full.n_outputs ? run.output_pointers.data() : nullptr;
  fill_mesh(run, inner.kind, inner.mesh, full);
  if (!inner.status.ok()) full.text = run.status.text().c_str();
  if (inner.kind == RunEvent::Kind::error || inner.kind == RunEvent::Kind::failed ||
      inner.status.origin()) {
    remember(run, inner.status);
    run.failure_fields = run.failure ? failure_of(*run.failure) : weft_failure{};
    full.rank = run.failure ? run.failure_fields.rank : -1;
    full.failure = run.failure ? &run.failure_fields : nullptr;
  }
  if (inner.kind == RunEvent::Kind::done) {
    full.idle = inner.idle;
    // The next submit uses the step object again.
    run.idle_by_rank.assign(inner.step->idle_by_rank.begin(), inner.step->idle_by_rank.end());
    full.idle_by_rank = run.idle_by_rank.data();
    full.n_ranks = static_cast<uint32_t>(run.idle_by_rank.size());
  }
  if (inner.kind == RunEvent::Kind::saved && inner.status.ok()) {
    run.saved_path.swap(inner.step->save->path);  // swapped, not copied: cannot fail
    full.path = run.saved_path.c_str();
  }
  return full;
}

// Sets the step's mode, data and references; on failure it keeps no references.
Status fill_step(Step& step, const Model& model, std::span<weft_tensor* const> inputs,
                 weft_step_mode mode) {
  WEFT_TRY_ASSIGN(step.mode, mode_of(mode));
  step.update = mode != WEFT_NO_UPDATE;
  WEFT_TRY(check_batch(model, inputs, step.batch));
  for (weft_tensor* input : inputs)
    if (input) step.kept.push_back(weft_tensor_ref(input));
  return {};
}

}  // namespace

void weft_run::use(weft_mesh& with) {
  const std::lock_guard lock(with.mutex);
  with.runs.push_back(this);
  mesh = &with;
}

void weft_run::end() {
  if (user) *std::exchange(user, nullptr) = nullptr;
  outputs.clear();
  run = nullptr;
  source.reset();
  if (!mesh) return;
  const std::lock_guard lock(mesh->mutex);
  std::erase(std::exchange(mesh, nullptr)->runs, this);
}

Status weft::api::require_open(const weft_run* run) {
  WEFT_TRY(require(run, "run"));
  if (run->source) return {};
  return Status(Code::state, "the mesh of the run was freed, which ended the run");
}

Status weft::api::require_run(const weft_run* run) {
  WEFT_TRY(require_open(run));
  if (run->run) return {};
  return Status(Code::state, "this process serves the run (weft_run_join); rank 0 controls it");
}

Result<Mode> weft::api::mode_of(weft_step_mode mode) {
  switch (mode) {
    case WEFT_TRAIN:
    case WEFT_NO_UPDATE: return Mode::train;
    case WEFT_EVAL: return Mode::eval;
    case WEFT_FORWARD: return Mode::infer;
    case WEFT_FILL: return Mode::fill;
  }
  return Status(Code::invalid, cat("mode is ", uint32_t{mode},
                                   ", expected WEFT_TRAIN, _NO_UPDATE, _EVAL, _FORWARD or _FILL"));
}

Status weft::api::read_run_config(const weft_run_config* config, weft_run_config& out) {
  WEFT_TRY(read_config(config, "weft_run_config", out));
  if (out.flags & ~uint32_t{WEFT_RUN_NOWAIT})
    return Status(Code::invalid,
                  cat("weft_run_config.flags are ", out.flags, ", expected 0 or WEFT_RUN_NOWAIT"));
  if (out.threads > uint32_t{kMostThreads})
    return Status(Code::invalid, cat("weft_run_config.threads is ", out.threads, ", expected 0 to ",
                                     kMostThreads));
  if (out.log_level < WEFT_LOG_WARNING || out.log_level > WEFT_LOG_DEBUG)
    return Status(Code::invalid, cat("weft_run_config.log_level is ", uint32_t{out.log_level},
                                     ", expected WEFT_LOG_WARNING, _INFO or _DEBUG"));
  return {};
}

LogSink weft::api::log_sink(const weft_run_config& config) {
  LogSink out{.most = static_cast<LogLevel>(config.log_level)};
  if (config.log)
    out.write = [log = config.log, payload = config.log_payload](LogLevel level, const char* text) {
      log(static_cast<weft_log_level>(level), text, payload);
    };
  return out;
}

weft_status weft_run_start(const weft_plan* plan, weft_mesh* mesh, const weft_run_config* config,
                           weft_run** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(out, "out"));
    weft_run_config c;
    WEFT_TRY(read_run_config(config, c));
    const int threads = static_cast<int>(c.threads);
    const StartOptions options{.wait = !(c.flags & WEFT_RUN_NOWAIT), .log = log_sink(c)};
    auto run = std::make_unique<weft_run>();
    for (const Mode mode : kEveryMode)
      run->output_edges[static_cast<size_t>(mode)] = output_edges(*plan->plan, mode);
    const size_t outputs = plan->plan->model->outputs().size();
    run->outputs.reserve(outputs);
    run->filled.reserve(outputs);
    for (size_t i = 0; i < outputs; ++i) {
      run->outputs.emplace_back(new weft_tensor);
      run->outputs.back()->lent = true;
      run->output_pointers.push_back(run->outputs.back().get());
    }
    run->idle_by_rank.reserve(static_cast<size_t>(plan->plan->config.ranks));
    if (mesh) run->use(*mesh);
    auto started =
        mesh      ? start_mesh(plan->plan, *mesh->mesh, std::max(threads, 1), drop_tensor, options)
        : threads ? start_threads(plan->plan, threads, drop_tensor, options)
                  : start_inline(plan->plan, drop_tensor, options);
    WEFT_TRY_ASSIGN(auto source, std::move(started));
    run->run = source.get();
    run->source = std::move(source);
    *out = run.release();
    return {};
  });
}

void weft_run_free(weft_run* run) { delete run; }

Status weft::api::submit_step(weft_run& run, std::span<weft_tensor* const> inputs,
                              weft_step_mode mode, uint64_t tag, const Feeding& feeding) {
  Step* step = run.run->acquire();
  if (!step) return Run::full();
  step->tag = tag;
  step->fed = feeding.fed;
  step->batch.short_all = feeding.short_all;
  const Model& model = *run.run->plan().model;
  if (Status status = attempt([&] { return fill_step(*step, model, inputs, mode); });
      !status.ok()) {
    run.run->give_back(step);
    return status;
  }
  return run.run->submit(step);
}

weft_status weft_run_submit(weft_run* run, weft_tensor* const* inputs, uint32_t n_inputs,
                            weft_step_mode mode, uint64_t tag, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require_no_generator(run));
    if (n_inputs) WEFT_TRY(require(inputs, "inputs"));
    return submit_step(*run, {inputs, n_inputs}, mode, tag, {});
  });
}

weft_status weft_run_set_rate(weft_run* run, double rate, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(run->run->ready());
    if (!is_amount(rate))
      return Status(Code::invalid, cat("rate is ", rate, ", expected a finite float of 0 or more"));
    run->run->set_rate(rate);
    return {};
  });
}

weft_status weft_run_poll(weft_run* run, weft_event* event, int64_t timeout_ns, weft_error* err) {
  weft_status found = 0;
  const weft_status status = guard(err, [&]() -> Status {
    WEFT_TRY(require_no_generator(run));
    WEFT_TRY(require_open(run));
    WEFT_TRY(require(event, "event"));
    WEFT_TRY(check_result(*event));
    fill_result(event, weft_event{});  // the previous event is no longer valid
    const auto next = poll_run(*run, timeout_ns);
    if (!next) return {};
    fill_result(event, *next);
    found = 1;
    return {};
  });
  return status < 0 ? status : found;
}

Status weft::api::require_settled(const weft_run& run) {
  if (!run.run->idle()) WEFT_TRY(require_no_generator(&run));
  return run.run->settled();
}

Status weft::api::require_no_generator(const weft_run* run) {
  if (!run || !run->user) return {};
  return Status(Code::state, "a generator uses the run; free it first");
}

std::optional<weft_event> weft::api::poll_run(weft_run& run, int64_t timeout_ns) {
  RunEvent inner;
  if (!run.source->poll(inner, timeout_ns)) return {};
  return event_of(run, inner);
}

int weft_run_fd(const weft_run* run) { return run && run->source ? run->source->descriptor() : -1; }

weft_status weft_run_resident(weft_run* run, uint32_t rank, int64_t* bytes, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(bytes, "bytes"));
    WEFT_TRY(require_settled(*run));
    const int32_t ranks = run->run->plan().config.ranks;
    if (rank >= static_cast<uint32_t>(ranks))
      return Status(Code::invalid, cat("rank is ", rank, ", the run has ", ranks));
    WEFT_TRY_ASSIGN(*bytes, run->run->resident_bytes(static_cast<int32_t>(rank)));
    return {};
  });
}

weft_status weft_run_trace(weft_run* run, uint32_t jobs, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require_settled(*run));
    return run->run->trace(jobs);
  });
}

weft_status weft_run_save_trace(weft_run* run, const char* path, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require_settled(*run));
    return run->run->save_trace(path);
  });
}

weft_status weft_run_profile(weft_run* run, const weft_profile* profile, weft_profile** out,
                             weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(profile, "profile"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(require_settled(*run));
    WEFT_TRY_ASSIGN(Profile adjusted, calibrate(*run->run, profile->profile));
    *out = new weft_profile{std::move(adjusted)};
    return {};
  });
}
