// weft tokenize
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/token_text.h"

namespace weft::cli {

namespace {

struct Options {
  std::string tokenizer, file, out;
  bool decode = false, add_specials = false, plain_specials = false, skip_specials = false;
  bool json = false;
};

Outcome check(const Options& o) {
  if (o.decode && (o.add_specials || o.plain_specials || o.json))
    return {kUsage, "--add-specials, --plain-specials and --json are for texts, not for --decode",
            ""};
  if (!o.decode && o.skip_specials) return {kUsage, "--skip-specials requires --decode", ""};
  if (!o.decode && !o.out.empty() && id_width(o.out) == 0)
    return {kUsage, "--out: '" + o.out + "', expected NAME.u16 or NAME.u32", ""};
  return check_outputs({{"--out", o.out}}, {{"FILE", o.file}, {"TOKENIZER", o.tokenizer}});
}

Outcome decode_file(const Options& o, const weft_tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  CLI_TRY(read_ids(o.file, ids));
  const int64_t known = weft_tokenizer_vocabulary(tokenizer);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= known)
      return {kBadInput,
              o.file + ": token " + std::to_string(i) + " is " + std::to_string(ids[i]) +
                  ", expected 0 to " + std::to_string(known - 1),
              ""};
  std::string text;
  CLI_TRY(decode(tokenizer, ids, o.skip_specials ? uint32_t{WEFT_SKIP_SPECIALS} : 0, text));
  if (!o.out.empty()) return write_file(o.out, text);
  print_content(text);
  return {};
}

Outcome encode_text(const Options& o, const weft_tokenizer* tokenizer) {
  size_t bytes = 0;
  std::vector<int32_t> ids;
  const uint32_t flags = (o.add_specials ? uint32_t{WEFT_ADD_SPECIALS} : 0) |
                         (o.plain_specials ? uint32_t{WEFT_PLAIN_SPECIALS} : 0);
  CLI_TRY(encode_file(tokenizer, o.file, flags, ids, bytes));
  const int64_t vocabulary = weft_tokenizer_vocabulary(tokenizer);
  if (!o.out.empty()) {
    const uint32_t width = id_width(o.out);
    if (width == 2 && vocabulary > 65536)
      return {kBadInput,
              "--out: a vocabulary of " + std::to_string(vocabulary) + " requires NAME.u32", ""};
    CLI_TRY(write_file(o.out, id_bytes(ids, width)));
  }
  if (o.json) {
    JsonObject object;
    object.add("file", o.file).add("bytes", static_cast<uint64_t>(bytes));
    object.add("tokens", static_cast<uint64_t>(ids.size())).add("vocabulary", vocabulary);
    if (o.out.empty()) object.add("ids", ids);
    print_line(object.text());
  } else if (o.out.empty()) {
    std::string line;
    for (int32_t id : ids) {
      if (!line.empty()) line += " ";
      line += std::to_string(id);
    }
    print_line(line);
  } else {
    print_line(o.out + ": " + std::to_string(ids.size()) + " tokens of " + std::to_string(bytes) +
               " bytes, vocabulary " + std::to_string(vocabulary));
  }
  return {};
}

}  // namespace

Action add_tokenize(Parser& parser) {
  auto o = std::make_shared<Options>();
  parser.add("TOKENIZER", o->tokenizer, "A file tokenizer.json, or a directory that contains it")
      .required()
      .type("");
  parser.add("FILE", o->file, "The text; - is standard input. With --decode: NAME.u16 or NAME.u32")
      .required()
      .type("");
  parser
      .add("--out", o->out,
           "Write the ids to this file, NAME.u16 or NAME.u32. With --decode: the text")
      .type("FILE");
  parser.add("--decode", o->decode, "Turn ids into text");
  parser.add("--add-specials", o->add_specials,
             "Add the tokens for the beginning and the end of a text, if the tokenizer has them");
  parser.add("--plain-specials", o->plain_specials,
             "Treat the names of special tokens in the text as text");
  parser.add("--skip-specials", o->skip_specials, "With --decode: leave special tokens out");
  parser.add("--json", o->json, "Print one JSON object");
  return [o]() -> Outcome {
    CLI_TRY(check(*o));
    TokenizerPtr tokenizer;
    CLI_TRY(open_tokenizer(o->tokenizer, tokenizer));
    return o->decode ? decode_file(*o, tokenizer.get()) : encode_text(*o, tokenizer.get());
  };
}

}  // namespace weft::cli
