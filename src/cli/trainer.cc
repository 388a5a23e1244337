#include "cli/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <new>

#include "cli/kernels.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What a run writes while it reads the file would be lost.
Outcome check_files(const TrainOptions& o) {
  return check_outputs({{"--trace", o.trace}, {"--log", o.log}},
                       {{"--data", o.data.file},
                        {"--eval", o.data.eval},
                        {"--tokenizer", o.data.tokenizer},
                        {"--init", o.init},
                        {"MODEL", o.model.model},
                        {"--plan", o.plan.plan_file},
                        {"--profile", o.plan.profile},
                        {"--cluster", o.plan.cluster},
                        {"--schedule-file", o.plan.schedule_file},
                        {"--key", o.launch.key},
                        {"--allow", o.launch.allow}});
}

// An output that cannot be written before the work begins is a wrong input.
Outcome before_the_work(Outcome outcome) {
  if (outcome.exit == kFailed) outcome.exit = kBadInput;
  return outcome;
}

}  // namespace

Trainer::Trainer(const TrainOptions& options,
                 std::vector<std::pair<std::string, std::string>> settings, DataPtr& data)
    : options_(options),
      settings_(std::move(settings)),
      data_(data),
      directory_(options.checkpoint) {}

Outcome Trainer::prepare(weft_checkpoint* resumed) {
  if (!options_.quiet) warn_of_slow_kernels("train");
  CLI_TRY(check_files(options_));
  CLI_TRY(build_model(options_.model, stages_of(options_.plan), built_));
  // The default may be another one when the run is resumed.
  for (auto& [name, text] : settings_)
    if (name == "seq-len") text = std::to_string(built_.info.seq_len);
  CLI_TRY(build_plan(options_.plan, options_.optimizer, options_.steps, built_));
  CLI_TRY(open_weights(resumed));
  CLI_TRY(check_rounds());
  if (!data_)
    CLI_TRY(open_data(options_.data, built_.info, weights_.ends(), options_.plan.micro_batch_size,
                      step_ < options_.steps, data_));
  CLI_TRY(check_writable(options_.checkpoint));
  CLI_TRY(directory_.take(resumed ? &weights_.info : nullptr));
  CLI_TRY(announce());
  inputs_.resize(inputs_of(options_.model));
  CLI_TRY(make_inputs(built_.info, samples_of_update() * weft_plan_updates(built_.plan.get()),
                      inputs_));
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  CLI_TRY(load(resumed != nullptr));
  weft_error err = sized<weft_error>();
  CLI_TRY(before_the_work(save_trace()));  // an empty one, so that a failure is known now
  if (!options_.trace.empty()) CLI_CALL(weft_run_trace(run_.get(), 100000, &err));
  return keep_source();
}

// With a launcher the other ranks may be on any machine.
uint32_t Trainer::ranks_here() const {
  const LaunchOptions& o = options_.launch;
  return o.launcher.empty() ? o.ranks - std::min(o.external, o.ranks - 1) : 1;
}

// Before ranks are started, so that a run that is larger than intended costs nothing.
Outcome Trainer::announce() {
  RunFacts facts(built_, options_.plan, data_.get());
  CLI_TRY(facts.predict());
  report_ = std::make_unique<Report>(ReportOptions{options_.json, options_.quiet, options_.steps,
                                                   facts.unit(), facts.submission_seconds()});
  if (!options_.log.empty())
    CLI_TRY(before_the_work(report_->log_to(options_.log, options_.adds_to_log)));
  report_->run(run_lines(facts, options_.steps), run_json(facts, step_, options_.steps));
  if (options_.quiet) return {};
  if (step_ < options_.steps)
    for (const std::string& warning : run_warnings(facts, ranks_here())) complain("train", warning);
  else if (!options_.resume.empty())
    complain("train",
             "nothing is left to do: the checkpoint has " + std::to_string(step_) +
                 " steps, and --steps is " + std::to_string(options_.steps),
             "a larger --steps or --epochs continues");
  return {};
}

// Before the first step, not at the last segment.
Outcome Trainer::check_rounds() const {
  const weft_plan* plan = built_.plan.get();
  if (weft_plan_noam(plan) == 0) return {};
  for (uint32_t s = 0; s < weft_plan_stages(plan); ++s)
    if (const uint32_t replicas = weft_plan_replicas(plan, s);
        options_.steps > step_ && (options_.steps - step_) % replicas != 0)
      return {
          kUsage,
          "--steps leaves " + std::to_string(options_.steps - step_) +
              " to do, expected a multiple of the " + std::to_string(replicas) +
              " replicas of stage " + std::to_string(s),
          options_.epochs > 0 ? "--epochs has determined the number; --steps N sets another" : ""};
  return {};
}

Outcome Trainer::open_weights(weft_checkpoint* resumed) {
  CLI_TRY(weights_.open(options_.init, built_, resumed));
  if (!options_.init_except.empty() && !weights_.from)
    return {kUsage, "--init-except requires weights to start from",
            "--init FILE, or a MODEL that has weights"};
  if (!resumed) return {};
  step_ = weights_.info.step;
  last_checkpoint_ = weights_.info.path;
  return {};
}

Outcome Trainer::load(bool resumes) {
  weft_error err = sized<weft_error>();
  if (weights_.from && !options_.init_except.empty()) {
    CLI_CALL(weft_run_load_except(run_.get(), weights_.from, options_.init_except.c_str(), &err));
  } else if (weights_.from) {
    CLI_CALL(weft_run_load(run_.get(), weights_.from, resumes ? WEFT_LOAD_ALL : WEFT_LOAD_WEIGHTS,
                           &err));
  }
  if (!resumes && built_.adapter)
    CLI_CALL(weft_run_load(run_.get(), built_.adapter.get(), WEFT_LOAD_WEIGHTS, &err));
  if (resumes && directory_.contains(weights_.info)) saved_ = step_;
  return {};
}

// Puts the tokenizer, and other files of the model from which the weights are, beside the
// checkpoints, for generate and export. A run that is resumed in its directory has them already.
Outcome Trainer::keep_source() {
  if (options_.checkpoint.empty()) return {};
  const std::filesystem::path kept = std::filesystem::path(options_.checkpoint) / "source";
  const std::string& tokenizer = options_.data.tokenizer;
  const std::string source = weights_.info.source ? weights_.info.source : "";
  std::error_code ignored;
  const auto is_kept = [&](const std::string& path) {
    return path.empty() || std::filesystem::equivalent(path, kept, ignored);
  };
  const bool none = source.empty() && tokenizer.empty();
  if (none ? !std::filesystem::exists(kept, ignored) : is_kept(source) && is_kept(tokenizer))
    return {};
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_checkpoint_keep_source(options_.checkpoint.c_str(), source.c_str(),
                                       tokenizer.c_str(), &err));
  return {};
}

Outcome Trainer::next(weft_event& event) {
  constexpr int64_t kTick = 100'000'000;  // nanoseconds
  for (;;) {
    event = sized<weft_event>();
    weft_error err = sized<weft_error>();
    const weft_status got = weft_run_poll(run_.get(), &event, kTick, &err);
    if (got < 0) return failed(got, err);
    if (const std::string line = ranks_.text(event); !line.empty()) {
      report_->clear();
      complain("train", line);
    }
    if (const int signal = stop_signal(); signal && !answered_) {
      answered_ = true;
      report_->stopping(signal, computes_step_);
    }
    report_->tick();
    if (got > 0) return {};
  }
}

Outcome Trainer::drive(std::span<const TensorPtr> inputs, weft_step_mode mode, Events& events) {
  CLI_TRY(submit(run_.get(), inputs, mode, step_));
  return finish(events);
}

// Waits for the end of the oldest step.
Outcome Trainer::finish(Events& events) {
  weft_event& event = events.last;
  for (;;) {
    CLI_TRY(next(event));
    if (event.kind == WEFT_EVENT_DONE) return {};
    if (event.kind == WEFT_EVENT_MICRO_BATCH) {
      events.losses.push_back(event.loss);
      report_->micro_batch();
    }
    if (event.kind == WEFT_EVENT_UPDATE) events.updates.push_back(event);
    if (event.kind == WEFT_EVENT_SAVED) take_saved(event);
    if (event.kind == WEFT_EVENT_ERROR) return failed(event);
  }
}

// Fills the inputs update by update, so that the samples of an update do not depend on the number
// of updates per submission.
Outcome Trainer::sample(int64_t updates) {
  for (int64_t u = 0; u < updates; ++u) {
    std::vector<TensorPtr> part(inputs_.size());
    CLI_TRY(make_part(inputs_, u * samples_of_update(), samples_of_update(), part));
    const uint64_t step = step_ + static_cast<uint64_t>(u);
    const Outcome filled = fill_samples(data_.get(), options_.plan.seed, step, part);
    if (!filled.ok()) return save_before(filled);
  }
  return {};
}

// Runs one step, or all steps of a segment of an asynchronous schedule.
Outcome Trainer::step() {
  const auto begin = Clock::now();
  const uint64_t updates =
      std::min<uint64_t>(weft_plan_updates(built_.plan.get()), options_.steps - step_);
  CLI_TRY(sample(static_cast<int64_t>(updates)));
  std::vector<TensorPtr> whole(inputs_.size());
  CLI_TRY(make_part(inputs_, 0, static_cast<int64_t>(updates) * samples_of_update(), whole));
  Events events;
  report_->begin(step_ + 1, step_ + updates, updates * options_.plan.micro_batches);
  computes_step_ = true;
  CLI_TRY(drive(whole, WEFT_TRAIN, events));
  computes_step_ = false;
  if (events.updates.empty()) events.updates.push_back(events.last);
  before_ = step_;
  const double samples = static_cast<double>(updates) * static_cast<double>(samples_of_update());
  StepReport report;
  report.idle = events.last.idle;
  report.idle_by_rank.assign(events.last.idle_by_rank,
                             events.last.idle_by_rank + events.last.n_ranks);
  report.seconds = seconds_since(begin) / static_cast<double>(updates);
  report.per_second = samples * static_cast<double>(built_.info.tokens ? built_.info.seq_len : 1) /
                      (report.seconds * static_cast<double>(updates));
  const auto micro_batches = static_cast<ptrdiff_t>(options_.plan.micro_batches);
  auto losses = events.losses.begin();
  for (const weft_event& update : events.updates) {
    report.rate = weft_plan_rate(built_.plan.get(), step_);
    report.step = ++step_;
    ++steps_run_;
    report.loss = update.loss;
    report.grad_norm = update.grad_norm;
    report.micro_batch_losses.assign(losses, losses + micro_batches);
    losses += micro_batches;
    report.elapsed = seconds_since(begin_);
    report_->step(report);
    CLI_TRY(check_finite(update));
  }
  const Outcome logged = report_->log_failure();
  return logged.ok() ? logged : save_before(logged);
}

// One bad batch is left out. After several in a row the weights are at fault, and further steps
// would be lost work.
Outcome Trainer::check_finite(const weft_event& update) {
  if (std::isfinite(update.grad_norm)) {
    left_out_ = 0;
    return {};
  }
  report_->clear();
  complain("train",
           "the gradients of step " + std::to_string(step_) + " are not finite and were not used");
  constexpr int kMost = 10;
  return ++left_out_ < kMost ? Outcome() : not_finite();
}

Outcome Trainer::not_finite() const {
  const std::string last = left_out_ == 1 ? "step" : std::to_string(left_out_) + " steps";
  return {kFailed, "the gradients of the last " + last + " are not finite",
          "a lower --lr or --clip, or a --warmup, may help"};
}

// What the loss of these samples was divided by. Targets of -1 are not counted.
double Trainer::counted_targets(const weft_tensor* targets) const {
  const weft_desc desc = weft_tensor_desc(targets);
  if (!built_.info.tokens) return static_cast<double>(desc.dims[0]);
  const auto* ids = static_cast<const int32_t*>(weft_tensor_data(targets));
  const int64_t all = desc.dims[0] * desc.dims[1];
  return static_cast<double>(all - std::count(ids, ids + all, -1));
}

// Evaluates all held-out tokens, or all whole micro-batches of rows.
Outcome Trainer::evaluate() {
  if (options_.data.eval.empty() || evaluated_ == step_) return {};
  const int64_t size = options_.plan.micro_batch_size,
                most = samples_of_update() * weft_plan_updates(built_.plan.get());
  const int64_t all = weft_data_eval_windows(data_.get()),
                windows = built_.info.tokens ? all : all / size * size;
  double sum = 0, count = 0;
  std::deque<std::vector<TensorPtr>> queued;  // inputs of steps, which overlap on the ranks
  const auto finish_oldest = [&]() -> Outcome {
    Events events;
    CLI_TRY(finish(events));
    const double targets = counted_targets(queued.front()[1].get());
    sum += events.last.loss * targets;
    count += targets;
    queued.pop_front();
    return {};
  };
  Outcome filled;
  for (int64_t first = 0; first < windows && filled.ok() && !stop_signal(); first += most) {
    const int64_t samples = std::min(most, (windows - first + size - 1) / size * size);
    std::vector<TensorPtr> part(inputs_.size());
    CLI_TRY(make_inputs(built_.info, samples, part));
    filled = fill_held_out(data_.get(), first, part);
    if (!filled.ok()) break;
    CLI_TRY(submit(run_.get(), part, WEFT_EVAL, step_));
    queued.push_back(std::move(part));
    if (queued.size() == kQueuedEvaluations) CLI_TRY(finish_oldest());
  }
  while (!queued.empty()) CLI_TRY(finish_oldest());
  if (!filled.ok()) return save_before(filled);
  if (stop_signal()) return {};
  evaluated_ = step_;
  report_->evaluated(step_, sum / count, windows);
  return {};
}

Outcome Trainer::save() {
  if (options_.checkpoint.empty() || saved_ == step_) return {};
  weft_error err = sized<weft_error>();
  std::vector<weft_pair> pairs;
  for (const auto& [key, value] : settings_) pairs.push_back({key.c_str(), value.c_str()});
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = options_.checkpoint.c_str();
  config.model = built_.info.text;
  config.options = pairs.data();
  config.n_options = static_cast<uint32_t>(pairs.size());
  config.flags = WEFT_SAVE_QUEUE;
  CLI_CALL(weft_run_save(run_.get(), &config, &err));
  saved_ = step_;
  save_due_ = false;
  ++saves_under_way_;
  return {};
}

void Trainer::take_saved(const weft_event& event) {
  --saves_under_way_;
  if (event.status == WEFT_OK) {
    last_checkpoint_ = event.path;
    report_->saved(event.step, last_checkpoint_);
  } else if (save_failure_.ok()) {
    save_failure_ = failed(event);
  }
}

Outcome Trainer::finish_saves() {
  while (saves_under_way_ > 0) {
    weft_event event;
    CLI_TRY(next(event));
    if (event.kind == WEFT_EVENT_SAVED) take_saved(event);
  }
  return save_failure_;
}

// The data cannot be read, or the log not written, but the weights are those of the last step.
Outcome Trainer::save_before(Outcome failure) {
  if (steps_run_ == 0) return failure;
  Outcome saved = save();
  if (saved.ok()) saved = finish_saves();
  if (!saved.ok()) failure.text += "; " + saved.text;
  return failure;
}

Outcome Trainer::save_trace() {
  if (options_.trace.empty()) return {};
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_run_save_trace(run_.get(), options_.trace.c_str(), &err));
  return {};
}

// A failure after a step says what the run has left behind.
Outcome Trainer::run(weft_checkpoint* resumed) {
  Outcome failure;
  try {
    if (!options_.quiet)
      answer_signal_with("weft: train: stopping before the first step; ^C again stops now\n");
    failure = prepare(resumed);
    answer_signal_with(nullptr);
    if (failure.ok()) failure = train();
  } catch (const std::bad_alloc&) {
    failure = {kResource, "out of memory", ""};
  }
  if (failure.ok() && stdout_failed() && !stop_signal()) failure = {kFailed, stdout_fault(), ""};
  if (failure.ok()) return finish();
  (void)finish_saves();  // what has been queued is still written
  failure = ranks_.explain(std::move(failure), run_.get());
  if (!last_checkpoint_.empty())
    failure.text += "; last checkpoint: " + last_checkpoint_;
  else if (steps_run_ > 0)
    failure.text += "; nothing was saved";
  return failure;
}

void Trainer::restarts(uint32_t number, const Outcome& failure) {
  report_->clear();
  complain("train", failure.text + "; restart " + std::to_string(number) + " of " +
                        std::to_string(options_.launch.restarts));
  report_->restarted(number, failure.text);
}

Outcome Trainer::train() {
  begin_ = Clock::now();
  const auto stopped = [] { return stop_signal() != 0 || stdout_closed() || stdout_failed(); };
  if (options_.eval_every > 0) CLI_TRY(evaluate());
  while (step_ < options_.steps && !stopped()) {
    CLI_TRY(step());
    CLI_TRY(save_failure_);
    save_due_ = save_due_ || due(options_.checkpoint_every);
    if (save_due_ && left_out_ == 0) CLI_TRY(save());
    if (due(options_.eval_every)) CLI_TRY(evaluate());
  }
  CLI_TRY(save());
  CLI_TRY(finish_saves());  // first: an evaluation may fail
  if (!stopped()) CLI_TRY(evaluate());
  CLI_TRY(report_done());
  CLI_TRY(save_trace());
  return left_out_ == 0 || stopped() ? Outcome() : not_finite();
}

Outcome Trainer::report_done() {
  weft_error err = sized<weft_error>();
  char digest[33] = {}, optimizer_digest[33] = {};
  CLI_CALL(weft_run_digest(run_.get(), digest, &err));
  CLI_CALL(weft_run_optimizer_digest(run_.get(), optimizer_digest, &err));
  DoneReport done;
  done.digest = digest;
  done.optimizer_digest = optimizer_digest;
  done.steps = step_;
  done.seconds = seconds_since(begin_);
  done.parameters = weft_model_parameters(built_.model.get());
  for (uint32_t r = 0; r < options_.plan.ranks; ++r) {
    done.planned_bytes.push_back(weft_plan_bytes(built_.plan.get(), r));
    done.measured_bytes.push_back(0);
    CLI_CALL(weft_run_resident(run_.get(), r, &done.measured_bytes.back(), &err));
  }
  done.kernels = kernels_text();
  report_->done(done);
  return report_->log_failure();
}

Outcome Trainer::finish() {
  const int signal = stop_signal();
  const std::string text = "stopped after step " + std::to_string(step_);
  if (!signal && stdout_closed() && step_ < options_.steps)
    return {kFailed,
            "standard output was closed; " + text +
                (saved_ == step_ ? ", saved " + last_checkpoint_ : "; nothing was saved"),
            ""};
  if (!signal) return {};
  std::string hint;
  if (options_.checkpoint.empty())
    hint = "nothing was saved" + std::string(last_checkpoint_.empty() ? "" : " after ") +
           last_checkpoint_ + "; --checkpoint DIR saves checkpoints";
  else
    hint = "continue with: weft train --resume " + shell_word(options_.checkpoint) +
           (options_.launch.external ? ", with --external and --listen as before" : "");
  return {128 + signal, text, hint};
}

}  // namespace weft::cli
