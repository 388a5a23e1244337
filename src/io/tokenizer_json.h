// The file tokenizer.json of Hugging Face's `tokenizers`, with a model of type BPE.
//
// A field that affects the result is used, or must have the only value that weft computes; a field
// that is not known is refused by its name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "io/json.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer.h"

namespace weft {

// `config`: of tokenizer_config.json; empty if there is none.
Result<Tokenizer> parse_tokenizer(std::string_view json, const Json& config = Json::object());

// The text of tokenizer.json for a byte-level BPE. The first `specials` tokens are special.
std::string print_tokenizer(const TrainedBpe& bpe, size_t specials);

// A file, or a directory that contains tokenizer.json, with what tokenizer_config.json beside a
// file of this name changes.
Result<Tokenizer> open_tokenizer(const std::string& path);

}  // namespace weft
