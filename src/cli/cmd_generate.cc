// weft generate
#include <algorithm>
#include <sstream>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "cli/utf8.h"

namespace weft::cli {

namespace {

struct Options {
  std::string checkpoint;
  std::vector<std::string> prompts;
  uint64_t tokens = 100;
  LaunchOptions launch;
  Sampling sampling;
  bool json = false;
};

// Adds tokens to texts one by one. All texts are computed in one window of fixed length that is
// padded at its end: attention is causal, so the padding does not affect earlier positions.
class Generator {
 public:
  explicit Generator(const Options& options) : options_(options) {}

  Outcome run();

 private:
  Outcome prepare();
  Outcome generate();
  Outcome read_prompt(const std::string& prompt);
  Outcome step(uint64_t position);
  std::string text_of(const std::vector<int32_t>& tokens) const;
  void stream();
  void print();

  const Options& options_;
  Built built_;
  Ranks ranks_;
  RunPtr run_;
  bool bytes_ = true;  // a token is a byte; otherwise texts are ids, separated by blanks
  TensorPtr inputs_[2];
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> begun_;  // number of tokens in each prompt
  std::vector<int32_t> order_;
  size_t printed_ = 0;  // bytes of the first text
};

Outcome Generator::read_prompt(const std::string& prompt) {
  std::vector<int32_t>& text = texts_.emplace_back();
  if (bytes_) {
    for (char c : prompt) text.push_back(static_cast<unsigned char>(c));
  } else {
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      uint32_t id = 0;
      if (!read_value(word, &id) || id >= built_.info.vocabulary)
        return {kBadInput,
                "prompt " + std::to_string(texts_.size()) + ": '" + word +
                    "', expected token ids from 0 to " +
                    std::to_string(built_.info.vocabulary - 1) + ", separated by blanks",
                ""};
      text.push_back(static_cast<int32_t>(id));
    }
  }
  if (text.empty())
    return {kBadInput,
            "prompt " + std::to_string(texts_.size()) + " is empty, expected at least one token",
            ""};
  begun_.push_back(text.size());
  return {};
}

std::string Generator::text_of(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    if (bytes_)
      text += static_cast<char>(token);
    else
      text += (text.empty() ? "" : " ") + std::to_string(token);
  }
  return text;
}

Outcome Generator::prepare() {
  ModelOptions model;
  model.model = options_.checkpoint;
  model.is_checkpoint = true;
  model.command = "generate";
  CLI_TRY(build_model(model, options_.launch.ranks, built_));
  if (!built_.checkpoint)
    return {kBadInput,
            "'" + options_.checkpoint + "' is a model without weights, expected a checkpoint", ""};
  if (!built_.info.tokens)
    return {kBadInput,
            "the model " + std::string(built_.info.text) +
                " does not take tokens, so it cannot generate text",
            ""};
  bytes_ = built_.info.vocabulary == 256;
  for (const std::string& prompt : options_.prompts) CLI_TRY(read_prompt(prompt));
  const size_t longest = *std::max_element(begun_.begin(), begun_.end());
  // The cost of a step grows with the length of the window.
  model.seq_len = std::min<int64_t>(
      built_.info.context,
      static_cast<int64_t>(std::min<uint64_t>(longest + options_.tokens, uint64_t{1} << 30)));
  Built window;
  CLI_TRY(make_preset(built_.info.text, model, options_.launch.ranks, window));
  window.checkpoint = std::move(built_.checkpoint);
  built_ = std::move(window);
  PlanOptions plan;
  plan.ranks = options_.launch.ranks;
  plan.step_kinds = WEFT_STEPS_FORWARD;
  plan.micro_batches = static_cast<uint32_t>(texts_.size());
  plan.micro_batch_size = 1;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  CLI_TRY(build_plan(plan, optimizer, 1, built_));
  CLI_TRY(make_inputs(built_.info, static_cast<int64_t>(texts_.size()), inputs_));
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_run_load(run_.get(), built_.checkpoint.get(), WEFT_LOAD_WEIGHTS, &err));
  return {};
}

// Adds one token to every text. If a text is longer than the window, the model sees its end.
Outcome Generator::step(uint64_t position) {
  const size_t length = static_cast<size_t>(built_.info.seq_len),
               vocabulary = static_cast<size_t>(built_.info.vocabulary);
  auto* tokens = static_cast<int32_t*>(weft_tensor_data(inputs_[0].get()));
  std::fill_n(tokens, texts_.size() * length, 0);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const size_t seen = std::min(length, texts_[i].size());
    std::copy(texts_[i].end() - static_cast<std::ptrdiff_t>(seen), texts_[i].end(),
              tokens + i * length);
  }
  weft_error err = sized<weft_error>();
  weft_tensor* const inputs[2] = {inputs_[0].get(), nullptr};
  CLI_CALL(weft_run_submit(run_.get(), inputs, 2, WEFT_FORWARD, position, &err));
  std::vector<int32_t> next(texts_.size());
  for (;;) {
    weft_event event = sized<weft_event>();
    const weft_status got = weft_run_poll(run_.get(), &event, -1, &err);
    if (got < 0) return failed(got, err);
    if (got == 0 || event.kind == WEFT_EVENT_DONE) break;
    if (event.kind == WEFT_EVENT_ERROR)
      return {failed(event.status, err).exit,
              event.text ? event.text : weft_status_text(event.status), ""};
    if (event.kind != WEFT_EVENT_MICRO_BATCH || event.n_outputs < 1) continue;
    const size_t i = event.micro_batch, last = std::min(length, texts_[i].size()) - 1;
    const auto* logits =
        static_cast<const float*>(weft_tensor_data(event.outputs[0])) + last * vocabulary;
    next[i] = sample(options_.sampling, {logits, vocabulary}, i, position, order_);
  }
  for (size_t i = 0; i < texts_.size(); ++i) texts_[i].push_back(next[i]);
  return {};
}

// Prints what has been added to the first text, up to its last complete character. The other texts
// follow when all are complete.
void Generator::stream() {
  if (options_.json) return;
  const std::string text = text_of(texts_[0]);
  const size_t end = complete_bytes(text);
  if (end > printed_) print_content(text.substr(printed_, end - printed_));
  printed_ = std::max(printed_, end);
}

void Generator::print() {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string text = text_of(texts_[i]);
    if (options_.json) {
      const std::vector<int32_t> made(texts_[i].begin() + static_cast<std::ptrdiff_t>(begun_[i]),
                                      texts_[i].end());
      print_line(JsonObject()
                     .add("prompt", options_.prompts[i])
                     .add("text", text)
                     .add("tokens", made)
                     .text());
    } else {
      print_content(text.substr(i == 0 ? printed_ : 0) + (i + 1 < texts_.size() ? "\n\n" : "\n"));
    }
  }
}

Outcome Generator::run() {
  Outcome outcome = prepare();
  if (outcome.ok()) outcome = generate();
  return ranks_.explain(std::move(outcome), run_.get());
}

Outcome Generator::generate() {
  const auto stopped = [] { return stop_signal() != 0 || stdout_closed() || stdout_failed(); };
  stream();
  for (uint64_t position = 0; position < options_.tokens && !stopped(); ++position) {
    CLI_TRY(step(position));
    stream();
  }
  print();
  return {stop_signal() ? 128 + stop_signal() : kDone, "", ""};
}

}  // namespace

Action add_generate(Parser& parser) {
  auto o = std::make_shared<Options>();
  parser
      .add("CHECKPOINT", o->checkpoint,
           "A checkpoint, a directory of checkpoints (the latest is used), or a directory of "
           "Transformers")
      .required()
      .type("");
  parser.section("Texts");
  parser
      .add("--prompt", o->prompts,
           "Texts to continue. If the vocabulary is not 256: token ids, separated by blanks")
      .required()
      .type("TEXT...");
  parser.add("--tokens", o->tokens, "Tokens to add to each text").type("N");
  parser
      .add("--temperature", o->sampling.temperature,
           "Temperature of the random choice. 0: always the most likely token")
      .type("X")
      .not_negative();
  parser.add("--top-k", o->sampling.top_k, "Choose among the K most likely tokens. 0: all tokens")
      .type("K");
  parser.add("--seed", o->sampling.seed, "Seed of the random choices").type("N");
  parser.section("Processes and machines");
  const Option ranks = parser
                           .add("--ranks,--stages", o->launch.ranks,
                                "Number of pipeline ranks; does not affect the output")
                           .type("P")
                           .range(1, 4096);
  parser
      .add("--threads", o->launch.threads,
           "Compute threads per rank. 0: all ranks in turn on one thread of this process")
      .type("N")
      .range(0, kMostThreads);
  o->launch.command = "generate";
  add_launch_options(parser, o->launch);
  parser.section("Output");
  parser.add("--json", o->json, "Print one JSON object per text");
  return [o, ranks]() -> Outcome {
    CLI_TRY(take_place(o->launch));
    if (o->launch.place.rank > 0) return serve_launched(o->launch);
    const bool launched = o->launch.place.ranks && !ranks.given();
    CLI_TRY(set_ranks(o->launch, launched ? o->launch.place.ranks : o->launch.ranks));
    watch_signals();
    warn_of_slow_kernels("generate");
    Generator generator(*o);
    return generator.run();
  };
}

}  // namespace weft::cli
