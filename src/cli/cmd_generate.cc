// weft generate
#include <algorithm>
#include <map>
#include <sstream>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/decoder.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/mesh_option.h"
#include "cli/signals.h"
#include "cli/token_text.h"
#include "cli/utf8.h"

namespace weft::cli {

namespace {

struct Options {
  std::string checkpoint, adapter, tokenizer;
  std::vector<std::string> prompts, stops;
  uint64_t tokens = 100;
  bool tokens_given = false;
  bool slide = false, ignore_eos = false;
  LaunchOptions launch;
  PlanOptions plan;  // ranks and mesh
  DecoderOptions decoder;
  std::string cache = "f32";
  weft_sequence_config sampling = defaults(weft_sequence_config_init);
  bool json = false;
};

// Adds tokens to texts one by one.
class Generator {
 public:
  explicit Generator(const Options& options) : options_(options) {}

  Outcome run();

 private:
  Outcome prepare();
  Outcome find_tokenizer();
  Outcome generate();
  Outcome read_prompt(const std::string& prompt);
  Outcome check_lengths();
  Outcome begin(size_t text);
  Outcome take(const weft_token& token);
  bool stops(size_t text) const;
  std::string text_of(std::span<const int32_t> tokens) const;
  void stream();
  void print();

  const Options& options_;
  Built built_;
  Ranks ranks_;
  RunPtr run_;
  GeneratorPtr generator_;
  TokenizerPtr tokenizer_;
  TextStreamPtr text_stream_;  // of the first text
  size_t streamed_ = 0;        // the ids that it has
  bool bytes_ = true;          // without a tokenizer: a token is a byte; otherwise texts are ids,
                               // separated by blanks
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> begun_;           // number of tokens in each prompt
  std::map<uint64_t, size_t> text_by_;  // sequences of the generator: their texts
  uint64_t tokens_ = 0;                 // to add to each text
  size_t printed_ = 0;                  // bytes of the first text
};

Outcome Generator::read_prompt(const std::string& prompt) {
  std::vector<int32_t>& text = texts_.emplace_back();
  if (tokenizer_) {
    CLI_TRY(encode(tokenizer_.get(), prompt, WEFT_ADD_SPECIALS, text));
  } else if (bytes_) {
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

std::string Generator::text_of(std::span<const int32_t> tokens) const {
  std::string text;
  if (tokenizer_) {
    const std::vector<int32_t> ids(tokens.begin(), tokens.end());
    (void)decode(tokenizer_.get(), ids, WEFT_SKIP_SPECIALS, text).ok();
    return text;
  }
  for (int32_t token : tokens) {
    if (bytes_)
      text += static_cast<char>(token);
    else
      text += (text.empty() ? "" : " ") + std::to_string(token);
  }
  return text;
}

// Without --slide, all tokens of a text must be in the context of the model.
Outcome Generator::check_lengths() {
  tokens_ = options_.tokens;
  const auto context = static_cast<size_t>(built_.info.context);
  if (options_.slide) {
    tokens_ = std::min(tokens_, uint64_t{1} << 40);
    return {};
  }
  const size_t longest = *std::max_element(begun_.begin(), begun_.end());
  const size_t at =
      static_cast<size_t>(std::find(begun_.begin(), begun_.end(), longest) - begun_.begin());
  if (!options_.tokens_given && longest <= context)
    tokens_ = std::min<uint64_t>(tokens_, context - longest);
  if (longest > context || tokens_ > context - longest)
    return {kBadInput,
            "prompt " + std::to_string(at + 1) + " has " + std::to_string(longest) +
                " tokens, and --tokens is " + std::to_string(options_.tokens) +
                "; the model has a context of " + std::to_string(context) + " tokens",
            "with --slide, the model sees the end of a text that is longer"};
  return {};
}

// Without --tokenizer: that of the directory of Transformers, or the one that training kept.
Outcome Generator::find_tokenizer() {
  std::string path = options_.tokenizer;
  if (path.empty()) path = tokenizer_of(options_.checkpoint);
  if (path.empty()) return {};
  CLI_TRY(open_tokenizer(path, built_.info.vocabulary, tokenizer_));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_text_stream_new(tokenizer_.get(), WEFT_SKIP_SPECIALS, Out(text_stream_), &err));
  return {};
}

Outcome Generator::prepare() {
  ModelOptions model;
  model.model = options_.checkpoint;
  model.is_checkpoint = true;
  model.command = "generate";
  model.adapter = options_.adapter;
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
  CLI_TRY(find_tokenizer());
  for (const std::string& prompt : options_.prompts) CLI_TRY(read_prompt(prompt));
  CLI_TRY(check_lengths());
  DecoderOptions decoder = options_.decoder;
  decoder.texts = static_cast<uint32_t>(texts_.size());
  const size_t longest = *std::max_element(begun_.begin(), begun_.end());
  decoder.context =
      static_cast<int64_t>(std::min(static_cast<uint64_t>(built_.info.context), longest + tokens_));
  CLI_TRY(make_decoder(decoder, built_));
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_run_load(run_.get(), built_.checkpoint.get(), WEFT_LOAD_WEIGHTS, &err));
  if (built_.adapter)
    CLI_CALL(weft_run_load(run_.get(), built_.adapter.get(), WEFT_LOAD_WEIGHTS, &err));
  CLI_CALL(weft_generator_new(run_.get(), Out(generator_), &err));
  return {};
}

// Gives the text to the generator. If the text is longer than the context, the model sees its end.
Outcome Generator::begin(size_t i) {
  const std::vector<int32_t>& text = texts_[i];
  const size_t seen = std::min(text.size(), static_cast<size_t>(built_.info.seq_len));
  weft_sequence_config config = options_.sampling;
  config.number = i;
  config.first = text.size() - begun_[i];
  config.limit = tokens_ - config.first;
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  if (!options_.ignore_eos && weft_checkpoint_describe(built_.checkpoint.get(), &info) == WEFT_OK) {
    config.stops = info.ends;
    config.n_stops = info.n_ends;
  }
  uint64_t id = 0;
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_generator_add(generator_.get(), text.data() + text.size() - seen, seen, &config,
                              &id, &err));
  text_by_[id] = i;
  return {};
}

Outcome Generator::take(const weft_token& token) {
  const size_t i = text_by_.at(token.sequence);
  if (token.end != WEFT_SEQUENCE_STOP) texts_[i].push_back(token.token);
  if (i == 0) stream();
  const bool stopped = stops(i);
  if (token.end || stopped) text_by_.erase(token.sequence);
  weft_error err = sized<weft_error>();
  if (stopped && !token.end)
    CLI_CALL(weft_generator_remove(generator_.get(), token.sequence, &err));
  return token.end == WEFT_SEQUENCE_CONTEXT && !stopped ? begin(i) : Outcome();
}

// Whether what was added to the text ends with a string of --stop.
bool Generator::stops(size_t i) const {
  if (options_.stops.empty()) return false;
  const std::string added = text_of(std::span(texts_[i]).subspan(begun_[i]));
  return std::any_of(options_.stops.begin(), options_.stops.end(),
                     [&](const std::string& stop) { return added.ends_with(stop); });
}

// Prints what has been added to the first text, up to its last complete character. The other texts
// follow when all are complete.
void Generator::stream() {
  if (options_.json) return;
  for (; text_stream_ && streamed_ < texts_[0].size(); ++streamed_) {
    const char* part = "";
    size_t size = 0;
    if (weft_text_stream_add(text_stream_.get(), texts_[0][streamed_], &part, &size, nullptr) < 0)
      return;
    if (size > 0) print_content({part, size});
    printed_ += size;
  }
  if (text_stream_) return;
  const std::string text = text_of(texts_[0]);
  const size_t end = complete_bytes(text);
  if (end > printed_) print_content(text.substr(printed_, end - printed_));
  printed_ = std::max(printed_, end);
}

void Generator::print() {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string text = text_of(texts_[i]);
    if (options_.json) {
      const std::span<const int32_t> added = std::span(texts_[i]).subspan(begun_[i]);
      const std::vector<int32_t> made(added.begin(), added.end());
      print_line(JsonObject()
                     .add("prompt", options_.prompts[i])
                     .add("text", text)
                     .add("tokens", made)
                     .text());
    } else {
      print_content(text.substr(i == 0 ? std::min(printed_, text.size()) : 0) +
                    (i + 1 < texts_.size() ? "\n\n" : "\n"));
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
  weft_error err = sized<weft_error>();
  for (size_t i = 0; i < texts_.size() && tokens_ > 0; ++i) CLI_TRY(begin(i));
  stream();
  while (!text_by_.empty() && !stopped()) {
    weft_token token = sized<weft_token>();
    CLI_CALL(weft_generator_poll(generator_.get(), &token, -1, &err));
    CLI_TRY(take(token));
  }
  print();
  return {stop_signal() ? 128 + stop_signal() : kDone, "", ""};
}

std::string check_share(const std::string& text) {
  double x = 0;
  return read_value(text, &x) && x >= 0 && x <= 1 ? ""
                                                  : "'" + text + "', expected a number from 0 to 1";
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
  parser
      .add("--adapter", o->adapter,
           "Add the adapters in this directory of PEFT to the model of CHECKPOINT")
      .type("DIR");
  parser.section("Texts");
  parser
      .add("--prompt", o->prompts,
           "Texts to continue. Without a tokenizer, and if the vocabulary is not 256: token ids, "
           "separated by blanks")
      .required()
      .type("TEXT...");
  parser
      .add("--tokenizer", o->tokenizer,
           "A file tokenizer.json, or its directory. Default: that of CHECKPOINT")
      .type("FILE");
  const Option tokens = parser.add("--tokens", o->tokens, "Tokens to add to each text").type("N");
  parser.add(
      "--slide", o->slide,
      "If a text is longer than the context of the model, use its end; each token then takes "
      "the time of a whole context");
  parser
      .add("--temperature", o->sampling.temperature,
           "Temperature of the random choice. 0: always the most likely token")
      .type("X")
      .not_negative();
  parser.add("--top-k", o->sampling.top_k, "Choose among the K most likely tokens. 0: all tokens")
      .type("K");
  parser
      .add("--top-p", o->sampling.top_p,
           "Choose among the most likely tokens that together have probability P")
      .type("P")
      .check(check_share);
  parser
      .add("--min-p", o->sampling.min_p,
           "Choose among tokens that have at least the part P of the probability of the first")
      .type("P")
      .check(check_share);
  parser
      .add("--repetition-penalty", o->sampling.repetition_penalty,
           "Divide the logits of tokens that the text has by X. 1: no penalty")
      .type("X")
      .check([](const std::string& text) {
        double x = 0;
        return read_value(text, &x) && x > 0 ? "" : "'" + text + "', expected a number above 0";
      });
  parser.add("--stop", o->stops, "End a text after one of these strings").type("TEXT...");
  parser.add("--ignore-eos", o->ignore_eos,
             "Do not end a text at the end-of-text tokens that the model names");
  parser.add("--seed", o->sampling.seed, "Seed of the random choices").type("N");
  parser.section("Processes and machines");
  const auto settings = std::make_shared<StoredOptions>(parser);
  const Option ranks = settings
                           ->add("--ranks,--stages", o->plan.ranks,
                                 "Number of pipeline ranks; does not affect the output")
                           .type("P")
                           .range(1, 4096);
  add_mesh_option(*settings, o->plan);
  parser
      .add("--threads", o->launch.threads,
           "Compute threads per rank. 0: all ranks in turn on one thread of this process")
      .type("N")
      .range(0, kMostThreads);
  o->launch.command = "generate";
  add_launch_options(parser, o->launch);
  parser
      .add("--cache-dtype", o->cache,
           "Type in which keys and values of attention are kept: f32 or bf16")
      .type("TYPE")
      .one_of({"f32", "bf16"});
  parser
      .add("--precision", o->decoder.precision,
           "Type in which values between nodes, and weights of products, are used: f32 or bf16")
      .type("TYPE")
      .one_of({"f32", "bf16"});
  parser.section("Output");
  parser.add("--json", o->json, "Print one JSON object per text");
  return [o, ranks, tokens, settings]() -> Outcome {
    o->tokens_given = tokens.given();
    o->decoder.bf16_cache = o->cache == "bf16";
    CLI_TRY(settle_mesh(*settings, o->plan, false));
    if (o->plan.data > 1)
      return {kUsage, "--mesh: 'data=" + std::to_string(o->plan.data) + "', expected data=1",
              "texts are not divided among replicas; use stage and tensor"};
    o->launch.ranks = o->plan.ranks;
    CLI_TRY(take_place(o->launch));
    if (o->launch.place.rank > 0) return serve_launched(o->launch);
    const bool launched = o->launch.place.ranks && !ranks.given() && !settings->given("mesh");
    CLI_TRY(set_ranks(o->launch, launched ? o->launch.place.ranks : o->launch.ranks));
    o->decoder.tensor = o->plan.shard_ranks;
    o->decoder.stages = o->launch.ranks / o->decoder.tensor;
    watch_signals();
    warn_of_slow_kernels("generate");
    Generator generator(*o);
    return generator.run();
  };
}

}  // namespace weft::cli
