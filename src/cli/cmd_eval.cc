// weft eval
#include <algorithm>
#include <chrono>
#include <cmath>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/mesh_option.h"
#include "cli/signals.h"
#include "cli/token_text.h"
#include "cli/units.h"

namespace weft::cli {

namespace {

// Windows per step and pipeline rank, so that the ranks seldom wait at the start and end of a step.
constexpr uint32_t kWindows = 8;

struct Options {
  ModelOptions model;
  std::string data, tokenizer;
  LaunchOptions launch;
  PlanOptions plan;  // ranks, mesh and precision
  bool json = false, quiet = false;
};

// Computes the mean loss of the tokens of a file, each of which follows the tokens before it in its
// window. A micro-batch is one window, so the sum does not depend on how steps are divided.
class Evaluator {
 public:
  explicit Evaluator(const Options& options)
      : options_(options), progress_(options.json || options.quiet) {}

  Outcome run();

 private:
  Outcome prepare();
  Outcome read_tokens();
  Outcome make_plan();
  Outcome evaluate();
  Outcome step(size_t first, size_t windows);
  Outcome drive(const TensorPtr (&inputs)[2], std::vector<double>& losses);
  void fill(size_t first, size_t windows, const TensorPtr (&inputs)[2]) const;
  void print(double seconds) const;

  size_t targets() const { return tokens_.size() - 1; }
  size_t length() const { return static_cast<size_t>(built_.info.seq_len); }
  size_t windows() const { return (targets() + length() - 1) / length(); }
  size_t targets_of(size_t window) const {
    return std::min(length(), targets() - window * length());
  }

  const Options& options_;
  Built built_;
  Ranks ranks_;
  RunPtr run_;
  std::vector<int32_t> tokens_;
  Progress progress_;
  double sum_ = 0;
};

Outcome Evaluator::read_tokens() {
  const int64_t vocabulary = built_.info.vocabulary;
  const std::string tokenizer =
      options_.tokenizer.empty() ? tokenizer_of(options_.model.model) : options_.tokenizer;
  if (id_width(options_.data)) {
    CLI_TRY(read_ids(options_.data, tokens_));
  } else if (!tokenizer.empty()) {
    TokenizerPtr opened;
    CLI_TRY(open_tokenizer(tokenizer, vocabulary, opened));
    size_t bytes = 0;
    CLI_TRY(encode_file(opened.get(), options_.data, 0, tokens_, bytes));
  } else if (vocabulary == 256) {
    std::string text;
    CLI_TRY(read_file(options_.data, text));
    for (char c : text) tokens_.push_back(static_cast<unsigned char>(c));
  } else {
    return {kBadInput, "--data: '" + options_.data + "' is text, and the model has no tokenizer",
            "use --tokenizer, or ids in NAME.u16 or NAME.u32"};
  }
  const auto wrong = std::find_if(tokens_.begin(), tokens_.end(),
                                  [vocabulary](int32_t token) { return token >= vocabulary; });
  if (wrong != tokens_.end())
    return {kBadInput,
            options_.data + ": token " + std::to_string(wrong - tokens_.begin()) + " is " +
                std::to_string(*wrong) + ", expected 0 to " + std::to_string(vocabulary - 1),
            ""};
  if (tokens_.size() < 2)
    return {
        kBadInput,
        options_.data + ": has " + std::to_string(tokens_.size()) + " tokens, expected at least 2",
        ""};
  return {};
}

Outcome Evaluator::make_plan() {
  PlanOptions plan = options_.plan;
  plan.step_kinds = WEFT_STEPS_EVAL;
  plan.micro_batches = kWindows * plan.ranks / plan.shard_ranks;
  plan.micro_batch_size = 1;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  return build_plan(plan, optimizer, 1, built_);
}

Outcome Evaluator::prepare() {
  CLI_TRY(build_model(options_.model, stages_of(options_.plan), built_));
  if (!built_.info.tokens)
    return {kBadInput,
            "the model " + std::string(built_.info.text) +
                " does not take tokens, so it has no perplexity",
            ""};
  CLI_TRY(read_tokens());
  CLI_TRY(make_plan());
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_run_load(run_.get(), built_.checkpoint.get(), WEFT_LOAD_WEIGHTS, &err));
  return {};
}

// What follows the end of the file is not counted.
void Evaluator::fill(size_t first, size_t windows, const TensorPtr (&inputs)[2]) const {
  constexpr int32_t kNotCounted = -1;
  auto* tokens = static_cast<int32_t*>(weft_tensor_data(inputs[0].get()));
  auto* targets = static_cast<int32_t*>(weft_tensor_data(inputs[1].get()));
  const size_t begin = first * length();
  for (size_t i = 0; i < windows * length(); ++i) {
    const bool counted = begin + i < this->targets();
    tokens[i] = counted ? tokens_[begin + i] : 0;
    targets[i] = counted ? tokens_[begin + i + 1] : kNotCounted;
  }
}

Outcome Evaluator::drive(const TensorPtr (&inputs)[2], std::vector<double>& losses) {
  constexpr int64_t kTick = 100'000'000;  // nanoseconds
  weft_tensor* const both[] = {inputs[0].get(), inputs[1].get()};
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_run_submit(run_.get(), both, 2, WEFT_EVAL, 0, &err));
  for (;;) {
    weft_event event = sized<weft_event>();
    const weft_status got = weft_run_poll(run_.get(), &event, kTick, &err);
    if (got < 0) return failed(got, err);
    if (const std::string line = ranks_.text(event); !line.empty()) {
      progress_.clear();
      complain("eval", line);
    }
    if (event.kind == WEFT_EVENT_MICRO_BATCH) losses[event.micro_batch] = event.loss;
    if (event.kind == WEFT_EVENT_DONE) return {};
    if (event.kind == WEFT_EVENT_ERROR || event.kind == WEFT_EVENT_FAILED) return failed(event);
  }
}

Outcome Evaluator::step(size_t first, size_t windows) {
  TensorPtr inputs[2];
  CLI_TRY(make_inputs(built_.info, static_cast<int64_t>(windows), inputs));
  fill(first, windows, inputs);
  std::vector<double> losses(windows);
  CLI_TRY(drive(inputs, losses));
  for (size_t i = 0; i < windows; ++i)
    sum_ += losses[i] * static_cast<double>(targets_of(first + i));
  return {};
}

Outcome Evaluator::evaluate() {
  const size_t most = size_t{kWindows} * options_.plan.ranks / options_.plan.shard_ranks;
  for (size_t first = 0; first < windows(); first += most) {
    if (const int signal = stop_signal())
      return {128 + signal,
              "stopped after " + std::to_string(first) + " of " + std::to_string(windows()) +
                  " windows",
              ""};
    const size_t count = std::min(most, windows() - first);
    CLI_TRY(step(first, count));
    progress_.show("window " + std::to_string(first + count) + "/" + std::to_string(windows()));
  }
  progress_.clear();
  return {};
}

void Evaluator::print(double seconds) const {
  const double loss = sum_ / static_cast<double>(targets()), perplexity = std::exp(loss);
  if (options_.json) {
    print_line(JsonObject()
                   .add("model", built_.info.text)
                   .add("loss", loss)
                   .add("perplexity", perplexity)
                   .add("tokens", targets())
                   .add("windows", windows())
                   .add("seconds", seconds)
                   .text());
    return;
  }
  print_line("loss " + fixed_text(loss, 6));
  print_line("perplexity " + fixed_text(perplexity, 4));
  print_line("tokens " + std::to_string(targets()));
  print_line("time " + time_text(seconds));
}

Outcome Evaluator::run() {
  using Clock = std::chrono::steady_clock;
  Outcome outcome = prepare();
  const auto begin = Clock::now();
  if (outcome.ok()) outcome = evaluate();
  outcome = ranks_.explain(std::move(outcome), run_.get());
  if (outcome.ok()) print(std::chrono::duration<double>(Clock::now() - begin).count());
  return outcome;
}

void add_rank_options(Parser& parser, StoredOptions& settings, Options& o) {
  parser.section("Processes and machines");
  settings
      .add("--ranks,--stages", o.plan.ranks, "Number of pipeline ranks; does not affect the result")
      .type("P")
      .range(1, 4096);
  add_mesh_option(settings, o.plan);
  parser
      .add("--threads", o.launch.threads,
           "Compute threads per rank. 0: all ranks in turn on one thread of this process")
      .type("N")
      .range(0, kMostThreads);
  add_launch_options(parser, o.launch);
  parser
      .add("--precision", o.plan.precision,
           "Type in which values between nodes, and weights of products, are used: f32 or bf16")
      .type("TYPE")
      .one_of({"f32", "bf16"});
}

}  // namespace

Action add_eval(Parser& parser) {
  auto o = std::make_shared<Options>();
  o->model.command = o->launch.command = "eval";
  o->model.is_checkpoint = true;
  parser
      .add("CHECKPOINT", o->model.model,
           "A checkpoint, a directory of checkpoints (the latest is used), or a directory of "
           "Transformers")
      .required()
      .type("");
  parser.section("Data");
  parser
      .add("--data", o->data,
           "A text, or a file of token ids (NAME.u16, NAME.u32). All of its tokens are used")
      .required()
      .type("FILE");
  parser
      .add("--tokenizer", o->tokenizer,
           "A file tokenizer.json, or its directory, for --data that is text. Default: that of "
           "CHECKPOINT; without one, each byte is a token")
      .type("FILE");
  parser.add("--seq-len", o->model.seq_len, "Tokens per window. 0: the context length of the model")
      .type("N")
      .range(0, INT32_MAX);
  const auto settings = std::make_shared<StoredOptions>(parser);
  add_rank_options(parser, *settings, *o);
  parser.section("Output");
  parser.add("--json", o->json, "Print one JSON object");
  parser.add("-q,--quiet", o->quiet, "Print no progress on standard error");
  return [o, settings]() -> Outcome {
    CLI_TRY(take_place(o->launch));
    if (o->launch.place.rank > 0) return serve_launched(o->launch, o->model.model);
    if (o->launch.place.ranks && !settings->given("ranks") && !settings->given("mesh"))
      o->plan.ranks = o->launch.place.ranks;
    CLI_TRY(settle_mesh(*settings, o->plan));
    CLI_TRY(set_ranks(o->launch, o->plan.ranks));
    o->launch.quiet = o->quiet;
    watch_signals();
    warn_of_slow_kernels("eval");
    Evaluator evaluator(*o);
    return evaluator.run();
  };
}

}  // namespace weft::cli
