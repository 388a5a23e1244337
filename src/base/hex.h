// Numbers as hexadecimal digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

// Appends the lowest digits of the number, in lower case. Makes no other text, because the digits
// can be a secret.
inline void append_hex(std::string& out, uint64_t value, size_t digits) {
  while (digits-- > 0) out += "0123456789abcdef"[value >> (4 * digits) & 15];
}

// The value of a digit, or -1.
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace weft
