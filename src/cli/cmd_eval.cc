// weft eval
#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <span>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/signals.h"
#include "cli/token_text.h"
#include "cli/train_data.h"
#include "cli/units.h"

namespace weft::cli {

namespace {

// Windows per step and pipeline rank, so that the ranks seldom wait at the start and end of a step.
constexpr uint32_t kWindows = 8;

struct Options {
  ModelOptions model;
  DataOptions data;
  LaunchOptions launch;
  PlanOptions plan;  // ranks, mesh and precision
  bool json = false, quiet = false;
};

// Computes the mean loss of the targets of a file, each of which follows the tokens before it in
// its window. A micro-batch is one window, so the sum does not depend on how steps are divided.
class Evaluator {
 public:
  explicit Evaluator(const Options& options)
      : options_(options), model_(options.model), progress_(options.json || options.quiet) {
    model_.packed = options.data.has_json();
  }

  Outcome run();

 private:
  struct Step {
    std::vector<TensorPtr> inputs;
    int64_t windows = 0;
  };

  uint32_t windows_of_step() const {
    return kWindows * options_.plan.ranks / options_.plan.shard_ranks;
  }
  Outcome prepare();
  Outcome open_file();
  Outcome make_plan();
  Outcome evaluate();
  Outcome submit_step(int64_t first, int64_t windows);
  Outcome finish_step();
  void add(const Step& step, std::span<const double> losses);
  void print(double seconds) const;

  const Options& options_;
  ModelOptions model_;
  Built built_;
  Ranks ranks_;
  RunPtr run_;
  DataPtr data_;
  Progress progress_;
  std::deque<Step> steps_;  // queued, oldest first; they overlap on the ranks
  int64_t windows_ = 0, targets_ = 0;
  double sum_ = 0;
};

Outcome Evaluator::open_file() {
  const std::string& model = options_.model.model;
  DataOptions data = options_.data;
  if (data.tokenizer.empty()) data.tokenizer = tokenizer_of(model);
  weft_error err = sized<weft_error>();
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_CALL(weft_checkpoint_describe(built_.checkpoint.get(), &info));
  CLI_TRY(open_held_out(data, built_.info, ends_of(info), data_));
  windows_ = weft_data_eval_windows(data_.get());
  return {};
}

Outcome Evaluator::make_plan() {
  PlanOptions plan = options_.plan;
  plan.step_kinds = WEFT_STEPS_EVAL;
  plan.micro_batches = windows_of_step();
  plan.micro_batch_size = 1;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  return build_plan(plan, optimizer, 1, built_);
}

Outcome Evaluator::prepare() {
  CLI_TRY(build_model(model_, stages_of(options_.plan), built_));
  if (!built_.info.tokens)
    return {kBadInput,
            "the model " + std::string(built_.info.text) +
                " does not take tokens, so it has no perplexity",
            ""};
  CLI_TRY(open_file());
  CLI_TRY(make_plan());
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  return load_weights(built_, run_.get());
}

Outcome Evaluator::submit_step(int64_t first, int64_t windows) {
  Step& step = steps_.emplace_back();
  step.inputs.resize(inputs_of(model_));
  step.windows = windows;
  CLI_TRY(make_inputs(built_.info, windows, step.inputs));
  CLI_TRY(fill_held_out(data_.get(), first, step.inputs));
  return submit(run_.get(), step.inputs, WEFT_EVAL, 0);
}

// Waits for the end of the oldest step.
Outcome Evaluator::finish_step() {
  std::vector<double> losses(static_cast<size_t>(steps_.front().windows));
  weft_error err = sized<weft_error>();
  for (;;) {
    weft_event event = sized<weft_event>();
    const weft_status got = weft_run_poll(run_.get(), &event, -1, &err);
    if (got < 0) return failed(got, err);
    if (const std::string line = ranks_.text(event); !line.empty()) {
      progress_.clear();
      complain("eval", line);
    }
    if (event.kind == WEFT_EVENT_MICRO_BATCH) losses[event.micro_batch] = event.loss;
    if (event.kind == WEFT_EVENT_DONE) break;
    if (event.kind == WEFT_EVENT_ERROR || event.kind == WEFT_EVENT_FAILED) return failed(event);
  }
  add(steps_.front(), losses);
  steps_.pop_front();
  return {};
}

void Evaluator::add(const Step& step, std::span<const double> losses) {
  const auto* row = static_cast<const int32_t*>(weft_tensor_data(step.inputs[1].get()));
  for (const double loss : losses) {
    const int64_t targets = built_.info.seq_len - std::count(row, row + built_.info.seq_len, -1);
    sum_ += loss * static_cast<double>(targets);
    targets_ += targets;
    row += built_.info.seq_len;
  }
}

Outcome Evaluator::evaluate() {
  const int64_t most = windows_of_step();
  const std::string all = std::to_string(windows_);
  int64_t done = 0;
  for (int64_t first = 0; first < windows_ || !steps_.empty();) {
    if (const int signal = stop_signal())
      return {128 + signal, "stopped after " + std::to_string(done) + " of " + all + " windows",
              ""};
    for (; first < windows_ && steps_.size() < kQueuedEvaluations; first += most)
      CLI_TRY(submit_step(first, std::min(most, windows_ - first)));
    done += steps_.front().windows;
    CLI_TRY(finish_step());
    progress_.show("window " + std::to_string(done) + "/" + all);
  }
  progress_.clear();
  return {};
}

void Evaluator::print(double seconds) const {
  const double loss = sum_ / static_cast<double>(targets_), perplexity = std::exp(loss);
  if (options_.json) {
    JsonObject out;
    out.add("model", built_.info.text)
        .add("loss", loss)
        .add("perplexity", perplexity)
        .add("tokens", targets_)
        .add("windows", windows_);
    add_long_samples(data_.get(), out);
    print_line(out.add("seconds", seconds).text());
    return;
  }
  print_line("loss " + fixed_text(loss, 6));
  print_line("perplexity " + fixed_text(perplexity, 4));
  print_line("tokens " + std::to_string(targets_));
  if (const std::string text = long_samples_text(data_.get()); !text.empty()) print_line(text);
  print_line("time " + time_text(seconds));
}

Outcome Evaluator::run() {
  using Clock = std::chrono::steady_clock;
  Outcome outcome = prepare();
  const auto begin = Clock::now();
  if (outcome.ok()) outcome = evaluate();
  outcome = ranks_.explain(std::move(outcome), run_.get());
  if (outcome.ok() && !std::isfinite(sum_))
    return {kFailed, "the loss is not finite: a weight or a value of the model is not", ""};
  if (outcome.ok()) print(std::chrono::duration<double>(Clock::now() - begin).count());
  return outcome;
}

}  // namespace

Action add_eval(Parser& parser) {
  auto o = std::make_shared<Options>();
  o->model.command = o->launch.command = "eval";
  o->model.is_checkpoint = true;
  add_checkpoint_options(parser, o->model.model, o->model.adapter);
  parser.section("Data");
  parser
      .add("--data", o->data.eval,
           "A text, samples of prompt and completion, of text or of messages (NAME.jsonl), or "
           "token ids (NAME.u16, NAME.u32)")
      .required()
      .type("FILE");
  parser
      .add("--tokenizer", o->data.tokenizer,
           "A file tokenizer.json, or its directory, for --data that is text. Default: that of "
           "CHECKPOINT; without one, each byte is a token")
      .type("FILE");
  const auto settings = std::make_shared<StoredOptions>(parser);
  add_long_samples_option(*settings, o->data.long_samples);
  parser
      .add("--seq-len", o->model.seq_len,
           "Tokens per window. 0: the context length of the model, at most 1024")
      .type("N")
      .range(0, INT32_MAX);
  add_rank_options(parser, *settings, o->plan, o->launch, "result");
  add_precision_options(parser, o->plan.precision, o->plan.f32_nodes);
  parser.section("Output");
  parser.add("--json", o->json, "Print one JSON object");
  parser.add("-q,--quiet", o->quiet, "Print no progress on standard error");
  return [o, settings]() -> Outcome {
    CLI_TRY(take_place(o->launch));
    if (o->launch.place.rank > 0) return serve_launched(o->launch, o->model.model);
    CLI_TRY(settle_ranks(*settings, o->plan, o->launch));
    o->launch.quiet = o->quiet;
    watch_signals();
    warn_of_slow_kernels("eval");
    Evaluator evaluator(*o);
    return evaluator.run();
  };
}

}  // namespace weft::cli
