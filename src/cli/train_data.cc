#include "cli/train_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/console.h"
#include "cli/token_text.h"

namespace weft::cli {

namespace {

// A share is a number above 0 and below 1. Any other text is the name of a file.
double share_of(const std::string& eval) {
  double share = 0;
  const auto [end, error] = std::from_chars(eval.data(), eval.data() + eval.size(), share);
  return error == std::errc() && end == eval.data() + eval.size() && share > 0 && share < 1 ? share
                                                                                            : 0;
}

// A number that is not a share is probably not the name of a file either.
Outcome check_eval(const std::string& eval) {
  double number = 0;
  std::error_code ignored;
  if (!read_value(eval, &number) || share_of(eval) > 0 || std::filesystem::exists(eval, ignored))
    return {};
  return {kUsage, "--eval: '" + eval + "', expected a file, or a share above 0 and below 1", ""};
}

bool is_text(const char* path) { return path && id_width(path) == 0; }

Outcome take_long_samples(const DataOptions& options, weft_long_samples& out) {
  if (options.long_samples == "refuse") return {};
  if (!options.has_json())
    return {kUsage, "--long-samples " + options.long_samples + " requires samples, NAME.jsonl", ""};
  out = options.long_samples == "cut" ? WEFT_LONG_CUT : WEFT_LONG_SKIP;
  return {};
}

// The token after completions and texts. A model can have several that end texts, of which the
// tokenizer names the usual one.
Outcome choose_end_token(const weft_preset_info& model, std::span<const int32_t> ends,
                         const weft_tokenizer* tokenizer, int32_t& out) {
  const int32_t usual = weft_tokenizer_end_token(tokenizer);
  const bool is_known = std::find(ends.begin(), ends.end(), usual) != ends.end();
  const bool is_usual = ends.empty() || is_known;
  out = is_usual ? usual : ends.front();
  if (out < model.vocabulary) return {};
  return {kBadInput,
          std::string(is_usual ? "eos_token of the tokenizer" : "eos_token_id of the model") +
              " is " + std::to_string(out) + ", expected a token of its vocabulary of " +
              std::to_string(model.vocabulary),
          "it ends each completion and text; correct it in " +
              std::string(is_usual ? "tokenizer_config.json"
                                   : "generation_config.json or config.json")};
}

// Opens the files of `config`, with what else they need.
Outcome open_files(const DataOptions& options, const weft_preset_info& model,
                   std::span<const int32_t> ends, weft_data_config config, DataPtr& out) {
  config.vocabulary = model.vocabulary;
  config.seq_len = model.seq_len;
  config.width = model.tokens ? 0 : model.width;
  config.packed = options.has_json();
  CLI_TRY(take_long_samples(options, config.long_samples));
  std::error_code ignored;
  if (!options.tokenizer.empty() && !std::filesystem::exists(options.tokenizer, ignored))
    return {kBadInput, options.tokenizer + ": does not exist", ""};  // also if it is not read
  TokenizerPtr tokenizer;
  if (model.tokens && !options.tokenizer.empty() &&
      (is_text(config.path) || is_text(config.eval_path)))
    CLI_TRY(open_tokenizer(options.tokenizer, tokenizer));
  if (options.has_json()) CLI_TRY(choose_end_token(model, ends, tokenizer.get(), config.end_token));
  if (config.path && is_json(config.path) && config.end_token < 0)
    complain("train",
             "no token ends completions and texts: neither the model nor the tokenizer has one",
             "the model does not learn to stop; name one as eos_token in tokenizer_config.json");
  config.tokenizer = tokenizer.get();
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_data_open(&config, Out(out), &err));
  return {};
}

}  // namespace

void add_long_samples_option(StoredOptions& settings, std::string& value) {
  settings
      .add("--long-samples", value,
           "What to do with samples (NAME.jsonl) that have more tokens than a window: refuse the "
           "data, cut their ends off, or skip them")
      .type("WHAT")
      .one_of({"refuse", "cut", "skip"});
}

std::string long_samples_text(const weft_data* data) {
  const int64_t cut = weft_data_cut_samples(data), skipped = weft_data_skipped_samples(data);
  if (cut + skipped == 0) return "";
  return "long samples: " + std::to_string(cut) + " cut, " + std::to_string(skipped) + " skipped";
}

void add_long_samples(const weft_data* data, JsonObject& out) {
  out.add("cut_samples", weft_data_cut_samples(data))
      .add("skipped_samples", weft_data_skipped_samples(data));
}

Outcome open_data(const DataOptions& options, const weft_preset_info& model,
                  std::span<const int32_t> ends, uint32_t micro_batch_size, bool trains,
                  DataPtr& out) {
  CLI_TRY(check_eval(options.eval));
  const double share = share_of(options.eval);
  if (model.tokens && options.file.empty() && (trains || !options.eval.empty()))
    return {
        kUsage, "--data is missing: " + std::string(model.text) + " is trained on text",
        "--data FILE names a text; --data synthetic generates tokens from the seed, to try things "
        "out"};
  weft_data_config config = defaults(weft_data_config_init);
  if (!options.file.empty() && options.file != kSynthetic) config.path = options.file.c_str();
  if (share > 0)
    config.eval_share = share;
  else if (!options.eval.empty())
    config.eval_path = options.eval.c_str();
  if (config.eval_path && !config.path)
    return {kUsage, "--eval '" + options.eval + "' is a file, which requires --data FILE",
            "generated data has held-out samples of its own: --eval 0.1"};
  CLI_TRY(open_files(options, model, ends, config, out));
  const int64_t windows = weft_data_eval_windows(out.get());
  if (!options.eval.empty() && !model.tokens && windows < micro_batch_size)
    return {kBadInput,
            "--eval holds out " + std::to_string(windows) + " samples, expected at least the " +
                std::to_string(micro_batch_size) + " of one micro-batch",
            "hold out more data, or reduce --micro-batch-size"};
  return {};
}

Outcome steps_of_epochs(uint64_t epochs, const weft_data* data, const PlanOptions& plan,
                        uint64_t& steps) {
  const auto windows = static_cast<uint64_t>(weft_data_windows(data)),
             samples = static_cast<uint64_t>(samples_of_step(plan));
  if (windows == 0)
    return {kUsage, "--epochs requires --data FILE: generated data has no end",
            "--steps N trains on it"};
  steps = epochs * windows / samples + (epochs * windows % samples != 0);
  return {};
}

Outcome open_held_out(const DataOptions& options, const weft_preset_info& model,
                      std::span<const int32_t> ends, DataPtr& out) {
  weft_data_config config = defaults(weft_data_config_init);
  config.eval_path = options.eval.c_str();
  return open_files(options, model, ends, config, out);
}

Outcome submit(weft_run* run, std::span<const TensorPtr> inputs, weft_step_mode mode,
               uint64_t step) {
  weft_error err = sized<weft_error>();
  std::vector<weft_tensor*> tensors;
  for (const TensorPtr& input : inputs) tensors.push_back(input.get());
  CLI_CALL(weft_run_submit(run, tensors.data(), static_cast<uint32_t>(tensors.size()), mode, step,
                           &err));
  return {};
}

Outcome fill_samples(const weft_data* data, uint64_t seed, uint64_t step,
                     std::span<const TensorPtr> inputs) {
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_data_sample(data, seed, step, inputs[0].get(), inputs[1].get(), &err));
  if (inputs.size() > 2) CLI_CALL(weft_data_positions(data, seed, step, inputs[2].get(), &err));
  return {};
}

Outcome fill_held_out(const weft_data* data, int64_t first, std::span<const TensorPtr> inputs) {
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_data_eval(data, first, inputs[0].get(), inputs[1].get(), &err));
  if (inputs.size() > 2) CLI_CALL(weft_data_eval_positions(data, first, inputs[2].get(), &err));
  return {};
}

}  // namespace weft::cli
