// Texts that a model continues, or its answers to messages, for weft generate.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/build.h"
#include "cli/conversation.h"
#include "cli/decoder.h"
#include "cli/launch.h"
#include "cli/stop_search.h"

namespace weft::cli {

struct GeneratorOptions {
  std::string checkpoint, adapter, tokenizer, system;
  std::vector<std::string> prompts, stops;
  uint64_t tokens = 100;
  bool tokens_given = false;
  bool slide = false, ignore_eos = false, chat = false;
  uint64_t context = 4096;  // of a conversation; at most that of the model
  LaunchOptions launch;
  PlanOptions plan;  // ranks and mesh
  DecoderOptions decoder;
  std::string cache = "f32";
  weft_sequence_config sampling = defaults(weft_sequence_config_init);
  bool json = false;
};

// Adds tokens to texts one by one, and prints them. Without prompts, the lines of standard input
// are the messages of a conversation.
class TextGenerator {
 public:
  explicit TextGenerator(const GeneratorOptions& options)
      : options_(options), conversation_(options.system) {}

  Outcome run();

 private:
  Outcome prepare();
  Outcome find_tokenizer();
  Outcome converse();
  Outcome answer(const std::string& question);
  Outcome generate();
  Outcome read_prompt(const std::string& prompt);
  Outcome check_lengths();
  Outcome begin(size_t text);
  Outcome take(const weft_token& token);
  Outcome stops(size_t text, bool& found);
  std::span<const int32_t> added(size_t text) const;
  std::span<const int32_t> shown(size_t text) const;
  std::string text_of(std::span<const int32_t> tokens) const;
  void stream();
  void print();

  const GeneratorOptions& options_;
  Built built_;
  Ranks ranks_;
  RunPtr run_;
  GeneratorPtr generator_;
  TokenizerPtr tokenizer_;
  TextStreamPtr text_stream_;  // of the first text
  size_t streamed_ = 0;        // the ids that it has
  bool bytes_ = true;          // without a tokenizer: a token is a byte; otherwise texts are ids,
                               // separated by blanks
  Conversation conversation_;
  uint64_t answers_ = 0;  // of a conversation
  std::vector<std::string> prompts_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> begun_;           // number of tokens in each prompt
  std::vector<StopSearch> searches_;    // of the texts, with a tokenizer
  std::map<uint64_t, size_t> text_by_;  // sequences of the generator: their texts
  uint64_t tokens_ = 0;                 // to add to each text
  uint64_t context_ = 0;                // of a conversation
  size_t printed_ = 0;                  // bytes of the first text
};

}  // namespace weft::cli
