#include "base/text.h"

#include <cerrno>
#include <charconv>
#include <system_error>

namespace weft {

namespace {

template <size_t Size, typename T>
std::string_view digits(char (&buffer)[Size], T value) {
  return {buffer, std::to_chars(buffer, buffer + Size, value).ptr};
}

}  // namespace

Piece::Piece(double value) : text_(digits(buffer_, value)) {}
Piece::Piece(Digits, int64_t value) : text_(digits(buffer_, value)) {}
Piece::Piece(Digits, uint64_t value) : text_(digits(buffer_, value)) {}

void append_pieces(std::string& out, std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces) out.append(piece.text());
}

std::string to_text(double value) { return std::string(Piece(value).text()); }

std::string system_text(int error) {
  std::string text = std::system_category().message(error);
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z') text[0] |= 0x20;
  return text;
}

Status system_failure(std::string_view what, int error) {
  const bool out = error == EMFILE || error == ENFILE || error == ENOMEM;
  return Status(out ? Code::no_memory : Code::io, cat(what, ": ", system_text(error)));
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
