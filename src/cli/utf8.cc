#include "cli/utf8.h"

namespace weft::cli {

namespace {

// Bytes of a character that begins with this one, 0 if none does.
size_t bytes_after(char begin) {
  const auto first = static_cast<unsigned char>(begin);
  return first < 0x80                    ? 1
         : first >= 0xc2 && first < 0xe0 ? 2
         : first >= 0xe0 && first < 0xf0 ? 3
         : first >= 0xf0 && first < 0xf5 ? 4
                                         : 0;
}

}  // namespace

size_t complete_bytes(std::string_view text) {
  for (size_t tail = 1; tail <= 3 && tail <= text.size(); ++tail) {
    const char byte = text[text.size() - tail];
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80) continue;
    return bytes_after(byte) > tail ? text.size() - tail : text.size();
  }
  return text.size();
}

size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const size_t n = bytes_after(text[0]);
  if (n == 0 || n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f))
    return 0;
  return n;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

bool is_control(std::string_view character) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  return character.size() == 1 ? at(0) < 0x20 || at(0) == 0x7f
                               : character.size() == 2 && at(0) == 0xc2 && at(1) < 0xa0;
}

void append_hex(std::string& out, char byte) {
  constexpr const char* kHex = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  out += kHex[value >> 4];
  out += kHex[value & 15];
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    const std::string_view character = text.substr(0, n);
    const bool as_it_is = n > 0 && (!is_control(character) || kept.find(character) != kept.npos);
    if (as_it_is)
      out += character;
    else
      append_hex(out += "\\x", text[0]);
    text.remove_prefix(as_it_is ? n : 1);
  }
  return out;
}

}  // namespace weft::cli
