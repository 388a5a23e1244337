// Translates a regular expression of Oniguruma, the library for which tokenizer.json is written, to
// PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// An expression that matches the same with PCRE2's options UTF, UCP and MULTILINE. Fails for parts
// whose meaning differs and that are not translated.
Result<std::string> translate_oniguruma(std::string_view pattern);

// An expression that matches this text only.
std::string escape_regex(std::string_view text);

}  // namespace weft
