// Values as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace weft::jinja {

// What `{{ value }}` prints: str() of Python. Fails for values whose text depends on addresses.
Result<std::string> text_of(const Value& value, Budget& budget);

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value, ensure_ascii=False) of Python.
Result<std::string> json_of(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace weft::jinja
