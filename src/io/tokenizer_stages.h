// The normalizers, pre-tokenizers, decoders and post-processors of tokenizer.json.
#pragma once

#include "io/strict_json.h"
#include "text/tokenizer.h"

namespace weft {

// Each appends to the stages. `where` is the beginning of each message.
Status read_normalizer(const Json& json, const std::string& where, std::vector<Normalizer>& out);
Status read_pre_tokenizer(const Json& json, const std::string& where,
                          std::vector<PreTokenizer>& out);
Status read_decoder(const Json& json, const std::string& where, std::vector<Decoder>& out);
// Sets parts.before and parts.after.
Status read_post_processor(const Json& json, const std::string& where, TokenizerParts& parts);

}  // namespace weft
