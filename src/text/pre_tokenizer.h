// The pre-tokenizers of tokenizer.json: they split a text into words, which BPE does not merge
// across.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/regex.h"

namespace weft {

// What happens to the text that a pattern matches.
enum class Behavior : uint8_t {
  isolated,
  removed,
  merged_with_previous,
  merged_with_next,
  contiguous
};

struct PreTokenizer {
  enum class Kind : uint8_t {
    byte_level,
    split,
    digits,
    metaspace,
    whitespace,
    whitespace_split,
    punctuation,
    delimiter
  };
  enum class Prefix : uint8_t { never, first, always };

  std::string where;  // its name in messages
  Kind kind = Kind::split;
  Behavior behavior = Behavior::isolated;  // split, digits and punctuation
  bool invert = false;                     // split: the pattern matches words, not separators
  bool uses_pattern = false;               // split and byte_level
  Regex pattern;
  Prefix prefix = Prefix::never;  // byte_level and metaspace
  bool splits = true;             // metaspace
  char32_t separator = 0;         // metaspace and delimiter
};

// The pattern with which byte_level splits.
Result<Regex> byte_level_pattern();

using WordSink = std::function<Status(std::string_view word)>;
// Applies all stages, whose growth is `growth`; `sink` gets the words from left to right.
Status split_words(const std::vector<PreTokenizer>& stages, std::vector<Growth>& growth,
                   const TextPart& segment, const WordSink& sink);

}  // namespace weft
