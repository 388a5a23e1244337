// Reads text of files and peers as UTF-8, and makes it printable on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::cli {

// Bytes of the UTF-8 character at the start of `text`, 0 if there is none.
size_t character_bytes(std::string_view text);
// Number of bytes of `text` without an incomplete character at its end.
size_t complete_bytes(std::string_view text);
bool is_utf8(std::string_view text);
// A control character of terminals: U+0000 to U+001F and U+007F to U+009F.
bool is_control(std::string_view character);
// Two hexadecimal digits.
void append_hex(std::string& out, char byte);

// Each byte of a control character, and each that is not UTF-8, becomes "\x1b". Characters in
// `kept` stay as they are.
std::string printable(std::string_view text, std::string_view kept = "");

}  // namespace weft::cli
