// The decoders of tokenizer.json: from the texts of tokens to text.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace weft {

struct Decoder {
  enum class Kind : uint8_t { byte_level, metaspace, replace, byte_fallback, fuse, strip };
  std::string where;  // its name in messages
  Kind kind = Kind::fuse;
  char32_t character = 0;        // metaspace: the one that stands for a space; strip
  bool strips_first = false;     // metaspace: the first token begins with it
  Regex pattern;                 // replace
  std::string content;           // replace
  uint64_t start = 0, stop = 0;  // strip: most characters at the start and the end of a token
};

// What happens to a UTF-8 character that is incomplete at the end of the text.
enum class Tail : uint8_t { replace, omit };

Result<std::string> decode_tokens(const std::vector<Decoder>& stages,
                                  std::vector<std::string> tokens, Tail tail);

// The text with U+FFFD in place of each longest start of a character that is not valid UTF-8.
std::string valid_part(std::string_view bytes, Tail tail);

}  // namespace weft
