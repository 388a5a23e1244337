#include "cli/json.h"

#include <charconv>
#include <cmath>

#include "cli/utf8.h"

namespace weft::cli {

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    const std::string_view character = text.substr(0, n);
    const char c = text[0];
    if (n == 0)
      out += "\xef\xbf\xbd";
    else if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (is_control(character))
      append_hex(out += "\\u00", character.back());  // up to U+009F the last byte is the number
    else
      out += character;
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out + "\"";
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  text_ += text_.empty() ? "{" : ",";
  text_ += quoted_text(key);
  text_ += ":";
  text_ += json;
  return *this;
}

}  // namespace weft::cli
