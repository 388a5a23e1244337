// The tokens of a Jinja template, with the white space around tags removed as Transformers does:
// trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::jinja {

struct Token {
  enum class Kind : uint8_t {
    data,  // text outside of tags
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    text,  // without quotes and escapes
    integer,
    real,
    symbol,
    end
  };

  Kind kind;
  uint32_t line;
  std::string text;
};

// The text is valid UTF-8. The last token is of kind `end`.
Result<std::vector<Token>> tokens_of(std::string_view text);

// A failure at a line of the template.
Status at_line(uint32_t line, std::string text);

}  // namespace weft::jinja
