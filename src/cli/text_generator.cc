#include "cli/text_generator.h"

#include <algorithm>
#include <sstream>

#include "cli/console.h"
#include "cli/json.h"
#include "cli/signals.h"
#include "cli/token_text.h"
#include "cli/utf8.h"

namespace weft::cli {

Outcome TextGenerator::read_prompt(const std::string& prompt) {
  std::vector<int32_t>& text = texts_.emplace_back();
  prompts_.push_back(prompt);
  if (options_.chat) {
    std::string whole;
    CLI_TRY(conversation_.prompt(tokenizer_.get(), prompt, whole));
    CLI_TRY(encode(tokenizer_.get(), whole, 0, text));
  } else if (tokenizer_) {
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
  // A tokenizer may have more ids than the model, such as one for images.
  if (const int32_t most = *std::max_element(text.begin(), text.end());
      most >= built_.info.vocabulary)
    return {kBadInput,
            "prompt " + std::to_string(texts_.size()) + ": the tokenizer makes token " +
                std::to_string(most) + ", the model has a vocabulary of " +
                std::to_string(built_.info.vocabulary),
            ""};
  begun_.push_back(text.size());
  searches_.emplace_back(tokenizer_.get(), options_.stops);
  return {};
}

std::span<const int32_t> TextGenerator::added(size_t i) const {
  return std::span(texts_[i]).subspan(begun_[i]);
}

// The text with its prompt, or the answer to it.
std::span<const int32_t> TextGenerator::shown(size_t i) const {
  return options_.chat ? added(i) : std::span(texts_[i]);
}

std::string TextGenerator::text_of(std::span<const int32_t> tokens) const {
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
Outcome TextGenerator::check_lengths() {
  tokens_ = options_.tokens;
  const auto context = static_cast<size_t>(built_.info.context);
  if (options_.slide) {
    tokens_ = std::min(tokens_, uint64_t{1} << 40);
    return {};
  }
  const auto at = std::max_element(begun_.begin(), begun_.end());
  const size_t longest = *at;
  if (!options_.tokens_given && longest <= context)
    tokens_ = std::min<uint64_t>(tokens_, context - longest);
  if (longest > context || tokens_ > context - longest)
    return {kBadInput,
            "prompt " + std::to_string(at - begun_.begin() + 1) + " has " +
                std::to_string(longest) + " tokens, and --tokens is " +
                std::to_string(options_.tokens) + "; the model has a context of " +
                std::to_string(context) + " tokens",
            "with --slide, the model sees the end of a text that is longer"};
  return {};
}

// Without --tokenizer: that of the directory of Transformers, or the one that training kept.
Outcome TextGenerator::find_tokenizer() {
  std::string path = options_.tokenizer;
  if (path.empty()) path = tokenizer_of(options_.checkpoint);
  if (path.empty() && options_.chat)
    return {kBadInput, "'" + options_.checkpoint + "' has no tokenizer, which --chat requires", ""};
  if (path.empty()) return {};
  CLI_TRY(open_tokenizer(path, tokenizer_));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_text_stream_new(tokenizer_.get(), WEFT_SKIP_SPECIALS, Out(text_stream_), &err));
  return {};
}

Outcome TextGenerator::prepare() {
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
  DecoderOptions decoder = options_.decoder;
  if (texts_.empty()) {
    context_ = std::min<uint64_t>(static_cast<uint64_t>(built_.info.context), options_.context);
    decoder.context = static_cast<int64_t>(context_);
  } else {
    CLI_TRY(check_lengths());
    decoder.texts = static_cast<uint32_t>(texts_.size());
    const size_t longest = *std::max_element(begun_.begin(), begun_.end());
    decoder.context = static_cast<int64_t>(
        std::min(static_cast<uint64_t>(built_.info.context), longest + tokens_));
  }
  CLI_TRY(make_decoder(decoder, built_));
  CLI_TRY(ranks_.start(built_.plan.get(), options_.launch, run_));
  CLI_TRY(load_weights(built_, run_.get()));
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_generator_new(run_.get(), Out(generator_), &err));
  return {};
}

// Gives the text to the generator. If the text is longer than the context, the model sees its end.
Outcome TextGenerator::begin(size_t i) {
  const std::vector<int32_t>& text = texts_[i];
  const size_t seen = std::min(text.size(), static_cast<size_t>(built_.info.seq_len));
  weft_sequence_config config = options_.sampling;
  config.number = i + answers_;
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

Outcome TextGenerator::take(const weft_token& token) {
  const size_t i = text_by_.at(token.sequence);
  const bool made = token.end != WEFT_SEQUENCE_STOP;
  if (made) texts_[i].push_back(token.token);
  if (i == 0) stream();
  bool stopped = false;
  if (made) CLI_TRY(stops(i, stopped));
  if (token.end || stopped) text_by_.erase(token.sequence);
  weft_error err = sized<weft_error>();
  if (stopped && !token.end)
    CLI_CALL(weft_generator_remove(generator_.get(), token.sequence, &err));
  return token.end == WEFT_SEQUENCE_CONTEXT && !stopped ? begin(i) : Outcome();
}

// Whether the last token completed a string of --stop. A token of a tokenizer may go on after it.
// Of ids, which have a blank between them, a stop is whole ids.
Outcome TextGenerator::stops(size_t i, bool& found) {
  if (tokenizer_) return searches_[i].add(texts_[i].back(), found);
  const std::span<const int32_t> tokens = added(i);
  found = std::any_of(options_.stops.begin(), options_.stops.end(), [&](const std::string& stop) {
    const std::string end = text_of(tokens.last(std::min(tokens.size(), stop.size())));
    return bytes_ ? end.ends_with(stop) : (' ' + end).ends_with(' ' + stop);
  });
  return {};
}

// Prints what has been added to the first text, up to its last complete character. The other texts
// follow when all are complete.
void TextGenerator::stream() {
  if (options_.json) return;
  const std::span<const int32_t> tokens = shown(0);
  for (; text_stream_ && streamed_ < tokens.size(); ++streamed_) {
    const char* part = "";
    size_t size = 0;
    if (weft_text_stream_add(text_stream_.get(), tokens[streamed_], &part, &size, nullptr) < 0)
      return;
    if (size > 0) print_content({part, size});
    printed_ += size;
  }
  if (text_stream_) return;
  const std::string text = text_of(tokens);
  const size_t end = complete_bytes(text);
  if (end > printed_) print_content(text.substr(printed_, end - printed_));
  printed_ = std::max(printed_, end);
}

void TextGenerator::print() {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string text = text_of(shown(i));
    if (options_.json) {
      const std::span<const int32_t> tokens = added(i);
      const std::vector<int32_t> made(tokens.begin(), tokens.end());
      print_line(
          JsonObject().add("prompt", prompts_[i]).add("text", text).add("tokens", made).text());
    } else {
      print_content(text.substr(i == 0 ? std::min(printed_, text.size()) : 0) +
                    (i + 1 < texts_.size() ? "\n\n" : "\n"));
    }
  }
}

Outcome TextGenerator::run() {
  Outcome outcome = prepare();
  if (outcome.ok()) outcome = options_.prompts.empty() ? converse() : generate();
  return ranks_.explain(std::move(outcome), run_.get());
}

// Each line of standard input is a question, and the texts before it are part of the conversation.
Outcome TextGenerator::converse() {
  for (std::string question; !stdout_closed() && !stdout_failed() && read_question(question);) {
    CLI_TRY(answer(question));
    ++answers_;
  }
  return {stop_signal() ? 128 + stop_signal() : kDone, "", ""};
}

Outcome TextGenerator::answer(const std::string& question) {
  prompts_.clear();
  texts_.clear();
  begun_.clear();
  searches_.clear();
  printed_ = streamed_ = 0;
  CLI_TRY(read_prompt(question));
  if (begun_[0] >= context_)
    return {kBadInput,
            "the conversation has " + std::to_string(begun_[0]) +
                " tokens, and there is room for " + std::to_string(context_),
            context_ < static_cast<uint64_t>(built_.info.context)
                ? "--context sets the number of tokens"
                : "the model has no larger context"};
  tokens_ = std::min(options_.tokens, context_ - begun_[0]);
  CLI_TRY(generate());
  conversation_.add(question, text_of(added(0)));
  const char* rest = "";
  size_t size = 0;
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_text_stream_finish(text_stream_.get(), &rest, &size, &err));
  return {};
}

Outcome TextGenerator::generate() {
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

}  // namespace weft::cli
