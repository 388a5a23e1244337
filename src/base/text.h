// Text without locale: numbers print the same whatever the host process has set.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft {

// Shortest decimal form that reads back as the same double.
std::string to_text(double value);

// One argument of cat(): a text that stays the caller's, or a number's digits. Errors are put
// together in hundreds of places; this keeps what each of them compiles to small.
class Piece {
 public:
  template <std::convertible_to<std::string_view> T>
  Piece(const T& text) : text_(text) {}
  Piece(char c) : text_(buffer_, 1) { buffer_[0] = c; }
  Piece(double value);
  template <std::signed_integral T>
  Piece(T value) : Piece(Digits(), static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  Piece(T value) : Piece(Digits(), static_cast<uint64_t>(value)) {}
  Piece(bool) = delete;
  Piece(const Piece&) = delete;  // a copy would look into the other's digits
  Piece& operator=(const Piece&) = delete;

  std::string_view text() const { return text_; }

 private:
  struct Digits {};
  Piece(Digits, int64_t value);
  Piece(Digits, uint64_t value);

  std::string_view text_;
  char buffer_[32];
};

void append_pieces(std::string& out, std::initializer_list<Piece> pieces);

// Onto what is there; allocates nothing while the capacity suffices.
template <typename... Parts>
void append(std::string& out, const Parts&... parts) {
  append_pieces(out, {Piece(parts)...});
}

// cat("node '", name, "': port ", 0) -> std::string
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  append_pieces(out, {Piece(parts)...});
  return out;
}

// What the system says of an errno, in lower case like all others.
std::string system_text(int error);
// A call of the system that failed with `error`: no_memory where memory or descriptors are out,
// else io. "what: text of the error"
Status system_failure(std::string_view what, int error);

// Bytes of the UTF-8 character at the start of the text; 0 if there is none.
size_t utf8_bytes(std::string_view text);
bool valid_utf8(std::string_view text);
// The text without what a terminal obeys: each byte of a control character, and each that is not
// UTF-8, becomes "\\x1b".
std::string printable(std::string text);
// The first bytes of the text that fit into `most`, up to the end of a character.
std::string_view head_of(std::string_view text, size_t most);
// 'name' for a message: printable, and cut if it is long.
std::string shown(std::string_view name);

// Bytes of unknown origin for a person: the first ones in quotes, those that are no letters as
// "\\x16".
std::string quoted(std::string_view bytes, size_t most = 16);

}  // namespace weft
