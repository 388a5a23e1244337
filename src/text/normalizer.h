// The normalizers of tokenizer.json: each changes a text before it is split into words.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/growth.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace weft {

struct Normalizer {
  enum class Kind : uint8_t { form, lowercase, strip, prepend, replace, byte_level };
  std::string where;  // its name in messages
  Kind kind = Kind::form;
  NormalForm form = NormalForm::c;
  bool left = false, right = false;  // strip
  Regex pattern;                     // replace
  std::string content;               // prepend and replace
};

// A part of a text.
struct TextPart {
  std::string text;
  // The bytes at its start that come from the first character of the whole text; 0 if there are
  // none.
  size_t first = 1;
};

// `growth` is that of the stages.
Status normalize(const std::vector<Normalizer>& stages, std::vector<Growth>& growth,
                 TextPart& segment);

// Replaces each match in the text.
Result<TextPart> replaced(const TextPart& part, const Regex& pattern, std::string_view content,
                          Growth& growth);

}  // namespace weft
