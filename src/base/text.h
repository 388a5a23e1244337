// Text without locale: the locale of the host process does not affect how numbers are printed.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft {

// The shortest decimal form that is read as the same double.
std::string to_text(double value);

// One argument of cat(): a text of the caller, or the digits of a number. cat() is called in
// hundreds of places; this keeps the compiled code of each call small.
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
  Piece(const Piece&) = delete;  // a copy would refer to the digits of the original
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

// Appends to a string; allocates nothing if the capacity is sufficient.
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

// "1000 bytes", "822404224 bytes (784.3 MiB)"; for a message to a person.
std::string bytes_text(int64_t bytes);

// A number with zeros before it, up to a width.
std::string zero_padded(const Piece& number, size_t width);

// The message of the system for an errno, in lower case.
std::string system_text(int error);
// The status of a system call that failed with `error`: no_memory if there is not enough memory or
// no free descriptor, otherwise io. The text is "what: text of the error".
Status system_failure(std::string_view what, int error);

// The number of bytes of the UTF-8 character at the start of the text, or 0.
size_t utf8_bytes(std::string_view text);
bool valid_utf8(std::string_view text);
// The text without control sequences for a terminal: each byte of a control character, and each
// byte that is not UTF-8, becomes "\\x1b".
std::string printable(std::string text);
// Removes the first item of a list, and the separator after it, from its start; returns the item.
std::string_view take_item(std::string_view& list, char separator);
// The longest start of the text with at most `most` bytes that ends with a whole character.
std::string_view head_of(std::string_view text, size_t most);
// 'name' for a message: printable, and truncated if it is long.
std::string shown(std::string_view name);

// Received bytes for a message: the first ones in quotes, with bytes that are not printable as
// "\\x16".
std::string quoted(std::string_view bytes, size_t most = 16);

}  // namespace weft
