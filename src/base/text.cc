#include "base/text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "base/hex.h"

namespace weft {

namespace {

template <size_t Size, typename T>
std::string_view digits(char (&buffer)[Size], T value) {
  return {buffer, std::to_chars(buffer, buffer + Size, value).ptr};
}

void append_byte(std::string& out, char c) {
  out += "\\x";
  append_hex(out, static_cast<unsigned char>(c), 2);
}

// The number of bytes of the character at the start of the text if it is printed unchanged,
// otherwise 0.
size_t shown_bytes(std::string_view text) {
  const size_t n = utf8_bytes(text);
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool control =
      n == 1 ? at(0) < 0x20 || at(0) == 0x7f : n == 2 && at(0) == 0xc2 && at(1) < 0xa0;
  return control ? 0 : n;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

Piece::Piece(double value) : text_(digits(buffer_, value)) {}
Piece::Piece(Digits, int64_t value) : text_(digits(buffer_, value)) {}
Piece::Piece(Digits, uint64_t value) : text_(digits(buffer_, value)) {}

void append_pieces(std::string& out, std::initializer_list<Piece> pieces) {
  for (const Piece& piece : pieces) out.append(piece.text());
}

std::string bytes_text(int64_t bytes) {
  const std::string exact = cat(bytes, " bytes");
  if (bytes < int64_t{1} << 20) return exact;
  const bool large = bytes >= int64_t{10} << 30;
  const int shift = large ? 30 : 20;
  const int64_t whole = bytes >> shift;
  const int64_t rest = bytes - (whole << shift);
  return cat(exact, " (", whole, ".", (rest * 10) >> shift, large ? " GiB)" : " MiB)");
}

std::string to_text(double value) { return std::string(Piece(value).text()); }

std::string zero_padded(const Piece& number, size_t width) {
  std::string out(number.text());
  if (out.size() < width) out.insert(0, width - out.size(), '0');
  return out;
}

std::string system_text(int error) {
  std::string text = std::system_category().message(error);
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z')
    text[0] |= 0x20;
  return text;
}

Status system_failure(std::string_view what, int error) {
  const bool out = error == EMFILE || error == ENFILE || error == ENOMEM;
  return Status(out ? Code::no_memory : Code::io, cat(what, ": ", system_text(error)));
}

size_t utf8_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t n = lead < 0x80   ? 1
                   : lead < 0xc2 ? 0
                   : lead < 0xe0 ? 2
                   : lead < 0xf0 ? 3
                   : lead < 0xf5 ? 4
                                 : 0;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if (!continues(text[i])) return 0;
  if (n < 3) return n;
  const auto second = static_cast<unsigned char>(text[1]);
  // Longer than needed, a surrogate, or beyond U+10FFFF.
  const bool wrong = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                     (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return wrong ? 0 : n;
}

bool valid_utf8(std::string_view text) {
  for (size_t n; !text.empty(); text.remove_prefix(n)) {
    n = utf8_bytes(text);
    if (n == 0) return false;
  }
  return true;
}

std::string printable(std::string text) {
  std::string_view rest = text;
  while (const size_t n = rest.empty() ? 0 : shown_bytes(rest)) rest.remove_prefix(n);
  if (rest.empty()) return text;
  std::string out = text.substr(0, text.size() - rest.size());
  while (!rest.empty()) {
    const size_t n = shown_bytes(rest);
    if (n == 0)
      append_byte(out, rest[0]);
    else
      out += rest.substr(0, n);
    rest.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::string_view take_item(std::string_view& list, char separator) {
  const std::string_view item = list.substr(0, list.find(separator));
  list.remove_prefix(std::min(item.size() + 1, list.size()));
  return item;
}

std::string_view head_of(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && continues(text[most])) --most;
  return text.substr(0, most);
}

std::string shown(std::string_view name) {
  const std::string_view head = head_of(name, 80);
  return cat("'", printable(std::string(head)), head.size() < name.size() ? "...'" : "'");
}

std::string quoted(std::string_view bytes, size_t most) {
  std::string out = "'";
  for (const char c : bytes.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\')
      out += c;
    else
      append_byte(out, c);
  }
  return out + (bytes.size() > most ? "...'" : "'");
}

}  // namespace weft
