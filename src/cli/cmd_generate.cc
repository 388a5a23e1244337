// weft generate
#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/signals.h"
#include "cli/text_generator.h"

namespace weft::cli {

namespace {

constexpr uint64_t kAnswerTokens = 1000;  // by default

std::string check_share(const std::string& text) {
  double x = 0;
  return read_value(text, &x) && x >= 0 && x <= 1 ? ""
                                                  : "'" + text + "', expected a number from 0 to 1";
}

// Options whose use depends on others.
struct TextOptions {
  Option context, tokens;
};

TextOptions add_text_options(Parser& parser, GeneratorOptions& o) {
  parser.section("Texts");
  parser
      .add("--prompt", o.prompts,
           "Texts to continue. Without a tokenizer, and if the vocabulary is not 256: token ids, "
           "separated by blanks")
      .type("TEXT...");
  parser.add("--chat", o.chat,
             "A prompt is a message to the model, in the form of its chat template. Without "
             "--prompt: the lines of standard input are the messages of a conversation");
  parser.add("--system", o.system, "With --chat: the message of the system, which comes first")
      .type("TEXT");
  const Option context = parser
                             .add("--context", o.context,
                                  "Tokens that a conversation can have, if the model has so many")
                             .type("N")
                             .range(1, UINT32_MAX);
  parser
      .add("--tokenizer", o.tokenizer,
           "A file tokenizer.json, or its directory. Default: that of CHECKPOINT")
      .type("FILE");
  const Option tokens =
      parser
          .add("--tokens", o.tokens, "Tokens to add to each text. With --chat, the default is 1000")
          .type("N");
  parser.add(
      "--slide", o.slide,
      "If a text is longer than the context of the model, use its end; each token then takes "
      "the time of a whole context");
  return {context, tokens};
}

void add_choice_options(Parser& parser, GeneratorOptions& o) {
  parser
      .add("--temperature", o.sampling.temperature,
           "Temperature of the random choice. 0: always the most likely token")
      .type("X")
      .not_negative();
  parser.add("--top-k", o.sampling.top_k, "Choose among the K most likely tokens. 0: all tokens")
      .type("K");
  parser
      .add("--top-p", o.sampling.top_p,
           "Choose among the most likely tokens that together have probability P")
      .type("P")
      .check(check_share);
  parser
      .add("--min-p", o.sampling.min_p,
           "Choose among tokens that have at least the part P of the probability of the first")
      .type("P")
      .check(check_share);
  parser
      .add("--repetition-penalty", o.sampling.repetition_penalty,
           "Divide the logits of tokens that the text has by X. 1: no penalty")
      .type("X")
      .check([](const std::string& text) {
        double x = 0;
        return read_value(text, &x) && x > 0 ? "" : "'" + text + "', expected a number above 0";
      });
  parser.add("--stop", o.stops, "End a text after one of these strings")
      .type("TEXT...")
      .check([](const std::string& text) {
        return std::string(text.empty() ? "'', expected a text" : "");
      });
  parser.add("--ignore-eos", o.ignore_eos,
             "Do not end a text at the end-of-text tokens that the model names");
  parser.add("--seed", o.sampling.seed, "Seed of the random choices").type("N");
}

Outcome settle_texts(GeneratorOptions& o, const TextOptions& given) {
  if (o.prompts.empty() && !o.chat) return {kUsage, "--prompt or --chat is required", ""};
  if (!o.system.empty() && !o.chat) return {kUsage, "--system requires --chat", ""};
  const bool converses = o.prompts.empty();
  if (given.context.given() && !converses)
    return {kUsage, "--context is for a conversation, without --prompt", ""};
  if (o.slide && converses) return {kUsage, "--slide requires --prompt", ""};
  o.tokens_given = given.tokens.given();
  if (o.chat && !o.tokens_given) o.tokens = kAnswerTokens;
  return {};
}

Outcome generate(GeneratorOptions& o, const StoredOptions& settings) {
  CLI_TRY(take_place(o.launch));
  if (o.launch.place.rank > 0) return serve_launched(o.launch, o.checkpoint);
  CLI_TRY(settle_ranks(settings, o.plan, o.launch));
  o.decoder.bf16_cache = o.cache == "bf16";
  o.decoder.tensor = o.plan.shard_ranks;
  o.decoder.data = o.plan.data;
  o.decoder.stages = o.plan.pipeline_ranks();
  watch_signals();
  warn_of_slow_kernels("generate");
  TextGenerator generator(o);
  return generator.run();
}

}  // namespace

Action add_generate(Parser& parser) {
  auto o = std::make_shared<GeneratorOptions>();
  add_checkpoint_options(parser, o->checkpoint, o->adapter);
  const TextOptions texts = add_text_options(parser, *o);
  add_choice_options(parser, *o);
  const auto settings = std::make_shared<StoredOptions>(parser);
  o->launch.command = "generate";
  add_rank_options(parser, *settings, o->plan, o->launch, "output");
  parser
      .add("--cache-dtype", o->cache,
           "Type in which keys and values of attention are kept: f32 or bf16")
      .type("TYPE")
      .one_of({"f32", "bf16"});
  add_precision_options(parser, o->decoder.precision, o->decoder.f32_nodes);
  parser.section("Output");
  parser.add("--json", o->json, "Print one JSON object per text");
  return [o, texts, settings]() -> Outcome {
    CLI_TRY(settle_texts(*o, texts));
    return generate(*o, *settings);
  };
}

}  // namespace weft::cli
