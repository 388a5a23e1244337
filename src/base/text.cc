#include "base/text.h"

namespace weft {

std::string to_text(double value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::string quoted(std::string_view bytes, size_t most) {
  std::string out = "'";
  for (const char c : bytes.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\')
      out += c;
    else
      ((out += "\\x") += "0123456789abcdef"[byte >> 4]) += "0123456789abcdef"[byte & 15];
  }
  return out + (bytes.size() > most ? "...'" : "'");
}

}  // namespace weft
