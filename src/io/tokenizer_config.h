// tokenizer_config.json, which Transformers writes beside tokenizer.json: what of it changes ids.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "text/tokenizer.h"

namespace weft {

inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

// The file in a directory, or an empty object.
Result<Json> read_tokenizer_config(const std::string& directory);
// The same with the tokens of special_tokens_map.json where Transformers reads them from there.
Result<Json> read_tokenizer_settings(const std::string& directory);

// What AutoTokenizer of Transformers changes of a tokenizer.json. First the tokens, which then are
// those of `parts`. Fails for what weft cannot apply.
Status apply_tokens(const Json& config, const Vocabulary& vocabulary,
                    std::vector<AddedToken>& added);
// `pre_tokenizer`: of tokenizer.json; may be null.
Status apply_settings(const Json& config, const Json* pre_tokenizer, TokenizerParts& parts);

}  // namespace weft
