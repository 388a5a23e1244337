#include "cli/train_data.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

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

// The ids of a text, in a file that is removed when it has been opened.
class EncodedText {
 public:
  EncodedText() = default;
  ~EncodedText() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  EncodedText(const EncodedText&) = delete;
  EncodedText& operator=(const EncodedText&) = delete;

  Outcome make(const weft_tokenizer* tokenizer, const std::string& text) {
    std::vector<int32_t> ids;
    size_t bytes = 0;
    CLI_TRY(encode_file(tokenizer, text, 0, ids, bytes));
    std::error_code error;
    path_ = (std::filesystem::temp_directory_path(error) / "weft-XXXXXX.u32").string();
    const int fd = error ? -1 : mkstemps(path_.data(), 4);
    if (fd < 0) {
      const std::string failed = std::exchange(path_, {});
      return {kResource, failed + ": " + reason(error ? error.value() : errno), ""};
    }
    close(fd);
    std::ofstream file(path_, std::ios::binary);  // keeps the mode, 0600
    file << id_bytes(ids, 4) << std::flush;
    return file ? Outcome() : Outcome{kResource, path_ + ": " + reason(errno), ""};
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool is_text(const DataOptions& options, const std::string& file) {
  return !options.tokenizer.empty() && !file.empty() && file != kSynthetic && id_width(file) == 0;
}

}  // namespace

Outcome open_data(const DataOptions& options, const weft_preset_info& model,
                  uint32_t micro_batch_size, bool trains, DataPtr& out) {
  weft_error err = sized<weft_error>();
  CLI_TRY(check_eval(options.eval));
  if (model.tokens && options.file.empty() && (trains || !options.eval.empty()))
    return {
        kUsage, "--data is missing: " + std::string(model.text) + " is trained on text",
        "--data FILE names a text; --data synthetic generates tokens from the seed, to try things "
        "out"};
  const double share = share_of(options.eval);
  weft_data_config config = defaults(weft_data_config_init);
  config.vocabulary = model.vocabulary;
  config.seq_len = model.seq_len;
  config.width = model.tokens ? 0 : model.width;
  if (!options.file.empty() && options.file != kSynthetic) config.path = options.file.c_str();
  const bool encodes_eval = share == 0 && is_text(options, options.eval);
  EncodedText text, eval;
  TokenizerPtr tokenizer;
  if (model.tokens && (is_text(options, options.file) || encodes_eval))
    CLI_TRY(open_tokenizer(options.tokenizer, model.vocabulary, tokenizer));
  if (tokenizer && is_text(options, options.file)) {
    CLI_TRY(text.make(tokenizer.get(), options.file));
    config.path = text.path().c_str();
  }
  if (share > 0)
    config.eval_share = share;
  else if (!options.eval.empty())
    config.eval_path = options.eval.c_str();
  if (tokenizer && encodes_eval) {
    CLI_TRY(eval.make(tokenizer.get(), options.eval));
    config.eval_path = eval.path().c_str();
  }
  CLI_CALL(weft_data_open(&config, Out(out), &err));
  const int64_t windows = weft_data_eval_windows(out.get());
  if (!options.eval.empty() && windows < micro_batch_size)
    return {kBadInput,
            "--eval holds out " + std::to_string(windows) + " samples, expected at least the " +
                std::to_string(micro_batch_size) + " of one micro-batch",
            "hold out more data, or reduce --micro-batch-size"};
  return {};
}

}  // namespace weft::cli
