#include "text/byte_level.h"

#include "text/unicode.h"

namespace weft {

namespace {

// Bytes that are visible characters of Latin-1 are their own letters; the 68 others follow from
// U+0100 on.
constexpr bool is_visible(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  char32_t letters[256] = {};
  unsigned char hidden[68] = {};
};

constexpr Alphabet make_alphabet() {
  Alphabet out;
  unsigned n = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_visible(byte)) {
      out.letters[byte] = byte;
      continue;
    }
    out.letters[byte] = 0x100 + n;
    out.hidden[n] = static_cast<unsigned char>(byte);
    ++n;
  }
  return out;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_letter(unsigned char byte) { return kAlphabet.letters[byte]; }

std::optional<unsigned char> byte_of_letter(char32_t letter) {
  if (letter < 0x100) {
    if (!is_visible(letter)) return std::nullopt;
    return static_cast<unsigned char>(letter);
  }
  if (letter < 0x100 + sizeof kAlphabet.hidden) return kAlphabet.hidden[letter - 0x100];
  return std::nullopt;
}

std::string to_byte_letters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char c : bytes) append_code_point(out, byte_letter(static_cast<unsigned char>(c)));
  return out;
}

std::optional<std::string> from_byte_letters(std::string_view letters) {
  std::string out;
  out.reserve(letters.size());
  while (!letters.empty()) {
    const auto byte = byte_of_letter(take_code_point(letters));
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
  }
  return out;
}

}  // namespace weft
