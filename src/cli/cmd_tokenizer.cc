// weft tokenizer
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/token_text.h"
#include "cli/utf8.h"

namespace weft::cli {

namespace {

constexpr uint32_t kBytes = 256;  // tokens that each vocabulary has

Outcome add_text(const std::string& file, std::string& out) {
  std::string text;
  CLI_TRY(read_file(file, text));
  for (size_t at = 0, n; at < text.size(); at += n) {
    n = character_bytes(std::string_view(text).substr(at));
    if (n == 0)
      return {kBadInput, file + ": the text is not UTF-8 at byte " + std::to_string(at), ""};
  }
  out += text;
  return {};
}

}  // namespace

Action add_tokenizer(Parser& parser) {
  struct Options {
    std::string action, out = "tokenizer.json";
    std::vector<std::string> files, specials;
    weft_tokenizer_config config = defaults(weft_tokenizer_config_init);
  };
  auto o = std::make_shared<Options>();
  parser.add("ACTION", o->action, "train: make a byte-level BPE from texts")
      .required()
      .type("")
      .one_of({"train"});
  parser.add("FILE", o->files, "Texts in UTF-8; - is standard input").required().type("...");
  parser.add("--vocabulary", o->config.vocabulary, "Number of tokens")
      .type("N")
      .range(kBytes, INT32_MAX);
  parser
      .add("--min-count", o->config.min_count,
           "Merge only pairs of tokens that occur at least N times in the texts")
      .type("N");
  parser.add("--special", o->specials, "Special tokens, which have the first ids").type("TOKEN...");
  const Option out = parser.add("--out", o->out, "The file to write").type("FILE");
  return [o, out]() -> Outcome {
    std::error_code ignored;
    if (!out.given() && std::filesystem::exists(o->out, ignored))
      return {kUsage, "'" + o->out + "' exists", "name the file to write with --out"};
    std::string text;
    for (const std::string& file : o->files) {
      CLI_TRY(check_outputs({{"--out", o->out}}, {{"FILE", file}}));
      CLI_TRY(add_text(file, text));
    }
    std::vector<const char*> specials;
    for (const std::string& special : o->specials) specials.push_back(special.c_str());
    o->config.specials = specials.data();
    o->config.n_specials = static_cast<uint32_t>(specials.size());
    CLI_TRY(check_outside_checkpoints(o->out));
    weft_error err = sized<weft_error>();
    CLI_CALL(weft_tokenizer_train(text.data(), text.size(), &o->config, o->out.c_str(), &err));
    TokenizerPtr tokenizer;
    CLI_TRY(open_tokenizer(o->out, tokenizer));
    print_line(o->out + ": vocabulary " +
               std::to_string(weft_tokenizer_vocabulary(tokenizer.get())) + ", trained on " +
               std::to_string(text.size()) + " bytes");
    return {};
  };
}

}  // namespace weft::cli
